package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/outboxrelay/outbox/internal/fault"
)

// Error is what is wrong with the settings, all of it.
type Error struct{ Problems []string }

func (e *Error) Error() string { return strings.Join(e.Problems, "\n") }

func (e *Error) add(format string, args ...any) {
	e.Problems = append(e.Problems, fmt.Sprintf(format, args...))
}

// orNil returns e if there is something in it.
func (e *Error) orNil() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// findings are what Load has found out beside the settings.
type findings struct {
	path     string // of the file, "": none
	environ  map[string]string
	origins  map[string]string // by key: FILE:LINE, a variable or a flag; a setting that is not here has its default
	hidden   map[string]string // by key, where the file has a setting that a variable or a flag overrides
	settings []Setting
	problems Error
}

// Load reads the settings that a command has flags for, after the command line was parsed into
// flags, for a program that can open these kinds of servers. environ is as os.Environ gives it. The
// error, an *Error, says that the file cannot be read at all. What is wrong with single settings
// Check says, together with all else that is wrong; until then they have their defaults.
func Load(kinds Kinds, environ []string, given ...*pflag.FlagSet) (Config, error) {
	c := Config{kinds: kinds}
	c.found = findings{environ: map[string]string{}, origins: map[string]string{}, hidden: map[string]string{}}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && value != "" { // an empty one counts as unset
			c.found.environ[name] = value
		}
	}
	sets, bound, command := c.flags(), flagSet("bound"), flagSet("command")
	for _, set := range []*pflag.FlagSet{sets.settings(), sets.parts, sets.client, sets.output} {
		bound.AddFlagSet(set)
	}
	for _, set := range given {
		command.AddFlagSet(set)
	}
	c.override(command.Lookup("config"), bound)
	lists := map[string][]*yaml.Node{}
	if c.found.path != "" {
		if err := c.readFile(c.found.path, sets.settings(), lists); err != nil {
			return Config{}, &Error{Problems: []string{"config file " + err.Error()}}
		}
	}
	inFile := maps.Clone(c.found.origins)
	command.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" {
			c.override(f, bound)
		}
	})
	for name, at := range inFile {
		if name != "config" && c.found.origins[name] != at {
			c.found.hidden[name] = at
			delete(lists, name)
		}
	}
	c.parse(lists)
	sets.settings().VisitAll(func(f *pflag.Flag) { c.note(key(f.Name), valueOf(f), lists) })
	for _, name := range []string{"limits", "retry"} { // which have no flag
		c.note(name, []any{}, lists)
	}
	sets.parts.AddFlagSet(sets.client)
	sets.parts.VisitAll(func(f *pflag.Flag) { c.note(key(f.Name), valueOf(f), lists) })
	return c, nil
}

// override gives the setting of a command's flag what its variable says, or the flag itself.
func (c *Config) override(f *pflag.Flag, bound *pflag.FlagSet) {
	if f == nil || bound.Lookup(f.Name) == nil {
		return
	}
	to := bound.Lookup(f.Name)
	if name, text := c.fromFile(f.Name); text != "" {
		c.take(to, split(to, text), name, name)
	}
	for _, name := range variables(f.Name) {
		if text := c.found.environ[name]; text != "" {
			c.take(to, split(to, text), name, name)
			break
		}
	}
	if f.Changed {
		c.take(to, textsOf(f), "--"+f.Name, "--"+f.Name)
	}
}

// secrets are the settings that may hold a password. Each may stand in a file, which a variable
// names.
var secrets = []string{"database", "sink", "token"}

// secretVariable is the variable that names the file of a setting, "" if the setting is no secret.
func secretVariable(flag string) string {
	if !slices.Contains(secrets, flag) {
		return ""
	}
	return variables(flag)[0] + "_FILE"
}

const maxSecret = 64 << 10 // bytes of a file

// fromFile returns what the file of a secret says, and the variable that names the file. A file
// that cannot be read is a problem, even where a variable or a flag says something else: somebody
// has meant it.
func (c *Config) fromFile(flag string) (name, text string) {
	name = secretVariable(flag)
	path := c.found.environ[name]
	if path == "" {
		return "", ""
	}
	f, err := os.Open(path)
	if err != nil {
		c.found.problems.add("%s: %v: put the value of %s there, or leave the variable out", name, err, key(flag))
		return "", ""
	}
	defer func() { _ = f.Close() }() // it was only read
	content, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	text = strings.TrimSpace(string(content))
	switch {
	case err != nil:
		c.found.problems.add("%s: %v", name, err)
	case len(content) > maxSecret:
		c.found.problems.add("%s: %s has more than %d bytes", name, path, maxSecret)
	case text == "":
		c.found.problems.add("%s: %s is empty: put the value of %s there", name, path, key(flag))
	default:
		return name, text
	}
	return "", ""
}

// take gives a setting its texts, or reports that they do not fit.
func (c *Config) take(f *pflag.Flag, texts []string, from, at string) {
	if err := assign(f, texts); err != nil {
		c.found.problems.add("%s: %s", at, Misfit(f, strings.Join(texts, ","), err))
		return
	}
	c.found.origins[key(f.Name)] = from
}

// parse reads the settings that are more than a text or a number.
func (c *Config) parse(lists map[string][]*yaml.Node) {
	w := &c.written
	c.Destination, c.Settle = byTable(nil, w.destination), byTable(nil, w.settle)
	c.Envelope, c.Retention = byTable(defaultForms, w.envelope), byTable(defaultAges, w.retention)
	for _, of := range []struct {
		name   string
		values ByTable
		check  func(all bool, value string) error
	}{
		{"destination", c.Destination, single}, {"settle", c.Settle, single}, {"envelope", c.Envelope, isEnvelope},
		{"retention", c.Retention, isAge},
	} {
		err := of.check(true, of.values.All)
		for _, value := range of.values.Single {
			err = cmp.Or(err, of.check(false, value))
		}
		if err != nil {
			c.found.problems.add("%s: %v", c.at(of.name), err)
		}
	}
	if err := c.parseSinks(); err != nil {
		c.found.problems.add("%s: %v", c.at("sink"), err)
	}
	c.readLists(lists)
}

// at is what has set a setting.
func (c *Config) at(name string) string {
	from := c.found.origins[name]
	if strings.HasPrefix(from, "--") || strings.HasPrefix(from, prefix) {
		return from
	}
	return "config file " + from + ": " + name
}

const prefix = "OUTBOX_"

// variables returns the environment variables of a flag: OUTBOX_ and its name. That of the database
// ends in _URL, and falls back to the name that platforms set. The form of the output has none: one
// asks for it once.
func variables(flag string) []string {
	switch flag {
	case "database":
		return []string{"OUTBOX_DATABASE_URL", "DATABASE_URL"}
	case "output":
		return nil
	}
	return []string{prefix + strings.ToUpper(key(flag))}
}

func key(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// Ignored returns the environment variables that begin with OUTBOX_ and are no setting of any
// command. Others may have set them, so they must not stop a daemon; somebody may have meant one.
// Variables that Kubernetes sets for a Service whose name begins with outbox are left out.
func (c Config) Ignored() (ignored []string) {
	var known []string
	for _, fs := range []*pflag.FlagSet{All(), ServeFlags(), Client()} {
		fs.VisitAll(func(f *pflag.Flag) { known = append(append(known, variables(f.Name)...), secretVariable(f.Name)) })
	}
	for _, name := range slices.Sorted(maps.Keys(c.found.environ)) {
		ofService := strings.Contains(name, "_SERVICE_") || strings.Contains(name+"_", "_PORT_")
		ofTests := fault.Enabled && strings.HasPrefix(name, prefix+"FAULT")
		if strings.HasPrefix(name, prefix) && !slices.Contains(known, name) && !ofService && !ofTests {
			ignored = append(ignored, name)
		}
	}
	return ignored
}

// Setting is a setting as it is in effect.
type Setting struct {
	Name  string `json:"name"`  // its key in a file
	Value any    `json:"value"` // never a password or a token; a duration is a string
	From  string `json:"from"`  // "default", or what set it: FILE:LINE, OUTBOX_POLL_MAX, --poll-max
	// Hides is where the file has it too, in vain: FILE:LINE.
	Hides string `json:"hides,omitempty"`
}

// Effective returns every setting, in the order in which they are documented, and the flags that
// are variables too.
func (c Config) Effective() []Setting { return c.found.settings }

// deciding are the settings that decide what becomes of an event, whichever relay has it.
var deciding = []string{"sink", "layouts", "settle", "destination", "routes", "envelope", "route_timeout", "lease_ttl",
	"max_attempts", "backoff_base", "retry", "dedup_window", "retention", "archive"}

// Fingerprint is how relays with the same settings know each other: digits of the settings that
// decide what becomes of an event, a slash, and digits of the tables that a relay is told to serve.
// No password is in it.
func (c Config) Fingerprint() string {
	settings, tables := sha256.New(), sha256.New()
	for _, s := range c.found.settings {
		if texts, ok := s.Value.([]string); ok {
			s.Value = slices.Sorted(slices.Values(texts))
		}
		switch {
		case slices.Contains(deciding, s.Name):
			fmt.Fprintf(settings, "%s=%v\n", s.Name, s.Value)
		case s.Name == "table":
			fmt.Fprint(tables, s.Value)
		}
	}
	return fmt.Sprintf("%.3x/%.3s", settings.Sum(nil), hex.EncodeToString(tables.Sum(nil)))
}

// Given tells whether a flag, a variable or the file has set a flag's setting.
func (c Config) Given(flag string) bool { return c.found.origins[key(flag)] != "" }

// SecretFile returns the file of the settings if it has what may hold a password: the URL of the
// database or of a sink.
func (c Config) SecretFile() string {
	for _, name := range []string{"database", "sink"} {
		if from := c.found.origins[name]; c.found.path != "" && strings.HasPrefix(from, c.found.path+":") {
			return c.found.path
		}
	}
	return ""
}

// note adds a setting to those in effect.
func (c *Config) note(name string, value any, lists map[string][]*yaml.Node) {
	from, ok := c.found.origins[name]
	if !ok {
		from = "default"
	}
	if nodes, ok := lists[name]; ok {
		entries := make([]any, len(nodes))
		for i, n := range nodes {
			_ = n.Decode(&entries[i]) // what is no YAML is no entry either, and reported
		}
		value = entries
	}
	c.found.settings = append(c.found.settings, Setting{name, c.shown(name, value), from, c.found.hidden[name]})
}

// shown is a value that anybody may see.
func (c *Config) shown(name string, value any) any {
	text, _ := value.(string)
	switch {
	case name == "sink":
		masked := map[string]string{}
		for name, url := range c.Sink {
			masked[name] = c.kinds.Sinks.Mask(url)
		}
		return masked
	case name == "cors_origin":
		origins := slices.Clone(c.Serve.Origins)
		for i, o := range origins {
			if o != "*" && !isOrigin(o) {
				origins[i] = "(no origin, not shown)"
			}
		}
		return origins
	case text == "":
	case name == "database":
		return c.kinds.Databases.Show(text)
	case name == "token":
		return "(set, not shown)"
	case slices.Contains([]string{"server", "public_url", "otlp"}, name) && !IsBase(text): // a password may be in it
		return "(no valid address, not shown)"
	}
	return value
}
