package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
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

// koanf splits keys at the delimiter; a point would cut the table name billing.outbox in two.
const delim = "\x1f"

// Load reads the settings that a command has flags for, after the command line was parsed into flags, for a program
// that can open these kinds of servers. environ is as
// os.Environ gives it. The error, an *Error, says that the file cannot be read at all. What is wrong with single
// settings Check says, together with all else that is wrong; until then they have their defaults.
func Load(kinds Kinds, environ []string, flags ...*pflag.FlagSet) (Config, error) {
	given := pflag.NewFlagSet("given", pflag.ContinueOnError)
	for _, set := range flags {
		given.AddFlagSet(set)
	}
	set := settingsOf(environ)
	vars := variables(set, given)
	var problems Error
	ignored := strangers(set)
	origins := map[string]string{}

	k := koanf.New(delim)
	path := vars["config"].value
	if path != "" {
		origins["config"] = vars["config"].name
	}
	if f := given.Lookup("config"); f != nil && f.Changed {
		path, origins["config"] = f.Value.String(), "--config"
	}
	if path != "" {
		if err := loadFile(k, path, origins, &problems); err != nil {
			return Config{}, &Error{Problems: []string{err.Error()}}
		}
	}
	ofFile := maps.Clone(origins)
	if err := k.Load(confmap.Provider(fromEnvironment(vars, origins, &problems), delim), nil); err != nil {
		problems.add("read the environment: %v", err)
	}
	// Last, because it skips a flag that was not given where another source has set it, and so supplies the defaults
	// too.
	byKey := func(f *pflag.Flag) (string, any) {
		if f.Name == "config" {
			return "", nil
		}
		if f.Changed {
			origins[key(f.Name)] = "--" + f.Name
		}
		return key(f.Name), posflag.FlagVal(given, f)
	}
	if err := k.Load(posflag.ProviderWithFlag(given, delim, k, byKey), nil); err != nil {
		problems.add("read the flags: %v", err)
	}
	var c Config
	_, wrong := decode(k.Raw(), &c)
	problems.Problems = append(problems.Problems, wrong...)
	c.kinds = kinds
	c.found = findings{path: path, environ: set, origins: origins, ignored: ignored, problems: problems.Problems,
		hidden: map[string]string{}}
	for name, at := range ofFile {
		if name != "config" && origins[name] != at {
			c.found.hidden[name] = at
		}
	}
	return c, nil
}

// findings are what Load has found out beside the settings.
type findings struct {
	path     string // of the file, "": none
	environ  map[string]string
	origins  map[string]string // by key; a setting that is not here has its default
	hidden   map[string]string // by key, where the file has a setting that a variable or a flag overrides
	ignored  []string          // variables
	problems []string
}

// Ignored returns the environment variables that look like settings of ours and are none. Others may have set them;
// somebody may have meant one.
func (c Config) Ignored() []string {
	var read []string
	for _, d := range c.kinds.Sinks.Drivers() {
		read = append(read, d.Reads...)
	}
	return slices.DeleteFunc(slices.Clone(c.found.ignored), func(name string) bool { return slices.Contains(read, name) })
}

// loadFile merges the keys of a file that are right into k.
func loadFile(k *koanf.Koanf, path string, origins map[string]string, problems *Error) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("config file %s does not exist: correct --config or OUTBOX_CONFIG", path)
	}
	if err != nil {
		return fmt.Errorf("config file: %w", err)
	}
	top, err := readYAML(path, text)
	if err != nil {
		return fmt.Errorf("config file %w", err)
	}
	if top == nil || top.Tag == "!!null" {
		return nil
	}
	if top.Kind != yaml.MappingNode {
		return fmt.Errorf("config file %s:%d: want settings such as batch: 500, and not a list or text", path, top.Line)
	}
	raw, lines := map[string]any{}, map[string]int{}
	if err := into(path, top, &raw); err != nil {
		return fmt.Errorf("config file %w", err)
	}
	for i := 0; i < len(top.Content); i += 2 {
		lines[top.Content[i].Value] = top.Content[i].Line
	}
	inOrder := func(a, b string) int { return cmp.Or(cmp.Compare(lines[a], lines[b]), cmp.Compare(a, b)) }
	for _, name := range slices.SortedFunc(maps.Keys(raw), inOrder) { // one by one, so that the others have their values
		at := fmt.Sprintf("%s:%d", path, lines[name])
		unused, wrong := decode(map[string]any{name: raw[name]}, &Config{})
		switch {
		case len(wrong) > 0:
			for _, problem := range wrong {
				problems.add("config file %s: %s", at, problem)
			}
			delete(raw, name)
		case len(unused) > 0:
			problems.add("config file %s: %s (keys are the names of flags with _ for -, limits and retry)", at,
				unknownKeys(unused))
			delete(raw, name)
		case raw[name] == nil: // "batch:" and nothing behind it
			delete(raw, name)
		default:
			origins[name] = at
		}
	}
	return k.Load(confmap.Provider(raw, delim), nil)
}

type variable struct{ name, value string }

// settingsOf returns the variables of an environment. An empty one counts as unset.
func settingsOf(environ []string) map[string]string {
	set := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && value != "" {
			set[name] = value
		}
	}
	return set
}

// variables finds each flag's environment variable.
func variables(set map[string]string, given *pflag.FlagSet) map[string]variable {
	found := map[string]variable{}
	given.VisitAll(func(f *pflag.Flag) {
		for _, name := range variableNames(f.Name) {
			if value, ok := set[name]; ok {
				found[f.Name] = variable{name, value}
				return
			}
		}
	})
	return found
}

// fromEnvironment parses each variable as its flag would be, so that both accept the same and a problem names the
// variable.
func fromEnvironment(vars map[string]variable, origins map[string]string, problems *Error) map[string]any {
	parsed := All() // a copy: setting the real flags would look like the command line
	values := map[string]any{}
	for _, flag := range slices.Sorted(maps.Keys(vars)) {
		if flag == "config" {
			continue
		}
		f := parsed.Lookup(flag)
		each := []string{vars[flag].value}
		if f.Value.Type() == "stringArray" { // a flag that is given several times
			each = strings.Fields(vars[flag].value)
		}
		if err := setEach(f, each); err != nil {
			problems.add("%s: %s", vars[flag].name, Misfit(f, vars[flag].value, err))
			continue
		}
		values[key(flag)], origins[key(flag)] = posflag.FlagVal(parsed, f), vars[flag].name
	}
	return values
}

func setEach(f *pflag.Flag, values []string) error {
	for _, value := range values {
		if err := f.Value.Set(value); err != nil {
			return err
		}
	}
	return nil
}
