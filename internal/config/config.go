// Package config gathers the settings of the outbox command: flags, before environment variables, before the file of
// --config, before defaults.
//
// Guaranteed: what a setting may be is checked before anything is opened. All problems are reported at once, each with
// the setting's names and a remedy. A key of a file that nobody knows is a problem, and so is a variable that is nearly
// a setting's. No error and no Masked text contains a password.
//
// Not guaranteed: that a server answers at the URLs, or that the tables exist. That is found out by package app.
package config

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/fault"
	"github.com/outboxrelay/outbox/internal/sink/dedup"
	"github.com/outboxrelay/outbox/internal/sink/sinks"
	"github.com/outboxrelay/outbox/relay"
)

// Config holds every setting. What it means is said where its flag is declared; keys in a file are the flags' names
// with _ for -.
type Config struct {
	Database  string `yaml:"database"`
	Sink      Sinks  `yaml:"sink"`
	LogLevel  string `yaml:"log_level"`
	LogFormat string `yaml:"log_format"`
	Output    string `yaml:"output"`

	Layouts []any `yaml:"layouts"` // mapped tables, not yet decoded, and names of files with more
	// Settle modes by table.
	Settle map[string]string `yaml:"settle"`

	Table        []string          `yaml:"table"`
	Destination  map[string]string `yaml:"destination"`
	Envelope     string            `yaml:"envelope"`
	Workers      int               `yaml:"workers"`
	Batch        int               `yaml:"batch"`
	BatchBytes   int               `yaml:"batch_bytes"`
	PollMax      time.Duration     `yaml:"poll_max"`
	RouteTimeout time.Duration     `yaml:"route_timeout"`
	LeaseTTL     time.Duration     `yaml:"lease_ttl"`
	MaxAttempts  int               `yaml:"max_attempts"`
	BackoffBase  time.Duration     `yaml:"backoff_base"`
	// Exceptions for destinations, not yet decoded; in the file of --config only.
	Retry []any `yaml:"retry"`
	// Which events go to which sinks, not yet decoded, and TABLE=SINK for all of a table.
	Routes []any `yaml:"routes"`
	// What sinks are given at most, not yet decoded; in the file of --config only.
	Limits       []any         `yaml:"limits"`
	DedupWindow  time.Duration `yaml:"dedup_window"`
	Listen       string        `yaml:"listen"`
	Retention    Retention     `yaml:",squash"`
	Serve        Serve         `yaml:",squash"`
	Server       string        `yaml:"server"`
	Token        string        `yaml:"token"`
	mappedTables []Table
	kinds        Kinds
	found        findings
}

// All returns the flags of every command that are settings, in the order in which they are documented.
func All() *pflag.FlagSet {
	all := pflag.NewFlagSet("all", pflag.ContinueOnError)
	all.SortFlags = false
	for _, set := range []*pflag.FlagSet{Global(), Mapping(), Relay(), RetentionFlags(), ServeFlags(), Client()} {
		set.SortFlags = false
		all.AddFlagSet(set)
	}
	return all
}

// Global returns the flags that every command has.
func Global() *pflag.FlagSet {
	fs := pflag.NewFlagSet("global", pflag.ContinueOnError)
	fs.String("config", "", "YAML `file` with settings, keys as the flags are called but with _ for -")
	fs.String("database", "",
		"`URL` of the database, better in OUTBOX_DATABASE_URL or DATABASE_URL, where ps does not show it")
	fs.StringArray("sink", nil,
		"`URL` that events are published to, or NAME=URL of one of several (in a file, keys NAME: URL); better in "+
			"OUTBOX_SINK, several apart by spaces")
	fs.String("log-level", "info", "least `level` that is logged to stderr: debug, info, warn or error")
	fs.String("log-format", "auto", "`form` of the log: text, json, or auto: text on a terminal, else json")
	fs.StringP("output", "o", "table", "`form` of what goes to stdout: table or json")
	return fs
}

// Client returns the flags of commands that speak to a gateway.
func Client() *pflag.FlagSet {
	fs := pflag.NewFlagSet("client", pflag.ContinueOnError)
	fs.String("server", "http://127.0.0.1:8080", "`URL` of outbox serve")
	fs.String("token", "", "`token` made by outbox token create; better in OUTBOX_TOKEN, where ps does not show it")
	return fs
}

// Mapping returns the flags of commands that work on tables of any layout.
func Mapping() *pflag.FlagSet {
	fs := pflag.NewFlagSet("mapping", pflag.ContinueOnError)
	fs.StringSlice("layouts", nil, "YAML `files` with lists of mapped tables (see outbox relay --help)")
	fs.StringToString("settle", nil,
		"`table=mode`: what becomes of a delivered row: mark (it stays, to be looked at, until --retention), delete (for a "+
			"table that is only a queue), or archive (it moves to outbox_archive, and can be replayed from there) (default "+
			"mark)")
	fs.Lookup("settle").DefValue = "" // or --help adds "(default [])"
	return fs
}

// relayDefaults are what a relay has where no setting says otherwise. An empty relay.Config has no problems.
var relayDefaults, _ = relay.Config{}.WithDefaults()

// Relay returns the flags of the relay.
func Relay() *pflag.FlagSet {
	fs := pflag.NewFlagSet("relay", pflag.ContinueOnError)
	fs.StringSlice("table", nil,
		"`tables` to serve (default: those of outbox_events, event_outbox, crawl_outbox and outbox_log that exist, and "+
			"every mapped one)")
	fs.StringToString("destination", nil,
		"`table=template` for events that name no destination, of {topic}, {key}, {type}, {tenant} and {source} (default "+
			"run:{key} for crawl_outbox, {topic} for others)")
	fs.Lookup("destination").DefValue = "" // or --help adds "(default [])"
	fs.StringSlice("routes", nil,
		"`table=sink`: the name of the sink that a table's events go to, in a file also by topic, tenant and type "+
			"(default: the only sink, or the one called default)")
	fs.String("envelope", "cloudevents",
		"`form` of what a subscriber receives: cloudevents, or payload for the bare payload; of a single table as "+
			"TABLE=FORM, after a comma")
	fs.Int("workers", relayDefaults.Workers,
		"`loops` that share a table's lanes: one publishes while another works in the database")
	fs.Int("batch", relayDefaults.BatchRecords, "most `events` in one claim, publish and settle")
	fs.Int("batch-bytes", relayDefaults.BatchBytes,
		"most `bytes` of payload in a batch (a single larger event still goes)")
	fs.Duration("poll-max", relayDefaults.PollMax,
		"`pause` that an idle relay's polling grows to, from 1.5ms while events arrive; what an event waits if its "+
			"wake-up is lost")
	fs.Duration("route-timeout", relayDefaults.RouteTimeout,
		"how `long` a batch waits for each sink of a table with routes; what one has not answered by then it is sent "+
			"again, by itself")
	fs.Duration("lease-ttl", relayDefaults.LeaseTTL,
		"how `long` the lanes of a relay that died, and the runs of a worker, stay reserved for it")
	fs.Int("max-attempts", 0,
		"failed `attempts` until an event is a dead letter (default 3 for crawl_outbox, 5 for others)")
	fs.Duration("backoff-base", 0,
		"`wait` after an event's first failed attempt; each further one is twice as long, give or take a fifth, and 15m at "+
			"most (default 200ms for crawl_outbox, 5s for others)")
	fs.Duration("dedup-window", dedup.DefaultWindow,
		"how `long` a sink that can remembers event ids to refuse a second copy; 0: not at all")
	fs.String("listen", "", "`address` to serve /metrics, /healthz and /readyz on, e.g. 127.0.0.1:9464 (default: none)")
	return fs
}

// checkClient does not repeat the address where it holds a password.
func (c *Config) checkClient(problems *Error) {
	u, err := url.Parse(c.Server)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		problems.add("server is no address such as http://127.0.0.1:8080 or https://outbox.example: %s", set("server"))
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		problems.add("server is an address and no more: without user, ? and #; who you are says the token: %s", set("server"))
	}
	if strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		problems.add("token has characters that no token has (it is not shown): %s", set("token"))
	}
}

// variableNames returns the environment variables of a flag: OUTBOX_ and its name. That of the database ends in _URL,
// and falls back to the name that platforms set.
func variableNames(flag string) []string {
	if flag == "database" {
		return []string{"OUTBOX_DATABASE_URL", "DATABASE_URL"}
	}
	return []string{prefix + strings.ToUpper(key(flag))}
}

const prefix = "OUTBOX_"

func key(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// lists are the keys that a file has beside the flags' names.
var lists = []string{"limits", "retry"}

// knownNames returns the keys of a file and the variables that are settings.
func knownNames() (keys, variables map[string]bool) {
	keys, variables = map[string]bool{}, map[string]bool{}
	All().VisitAll(func(f *pflag.Flag) {
		variables[variableNames(f.Name)[0]] = true
		if f.Name != "config" { // says where the file is
			keys[key(f.Name)] = true
		}
	})
	for _, l := range lists {
		keys[l] = true
	}
	return keys, variables
}

// unknownKeys names the keys that nobody knows.
func unknownKeys(unknown []string) string {
	var each []string
	for _, name := range unknown {
		each = append(each, fmt.Sprintf("unknown key %q", name))
	}
	return strings.Join(each, "; ")
}

// strangers returns the variables that begin with OUTBOX_ and are no setting of any command. They may be somebody
// else's, and must not stop a daemon. Those that Kubernetes sets for a Service whose name begins with outbox are.
func strangers(set map[string]string) (ignored []string) {
	_, known := knownNames()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		ofService := strings.Contains(name, "_SERVICE_") || strings.Contains(name+"_", "_PORT_")
		if strings.HasPrefix(name, prefix) && !known[name] && !ofService &&
			(!fault.Enabled || !strings.HasPrefix(name, prefix+"FAULT")) {
			ignored = append(ignored, name)
		}
	}
	return ignored
}

// Kinds are the databases and the sinks that the program can open, as far as settings are concerned. Package app knows
// which they are.
type Kinds struct {
	Databases Databases
	Sinks     sinks.Registry
}

// Databases knows the URLs of databases. No password is in what it returns.
type Databases interface {
	// Check says what is wrong with a URL, without connecting.
	Check(url string) error
	// Show returns the URL as one would write it, or the name of the database if a password may be in it.
	Show(url string) string
	// Examples are how URLs look, one for each kind of database.
	Examples() []string
}

// Describe adds to the texts of the flags that are URLs how those look. There are too many sinks to show them all.
func (k Kinds) Describe(flags *pflag.FlagSet) {
	for name, look := range map[string]string{
		"database": strings.Join(k.Databases.Examples(), "; "),
		"sink":     "one of " + k.Sinks.Schemes() + " (outbox relay --help shows each)",
	} {
		if f := flags.Lookup(name); f != nil {
			f.Usage += ": " + look
		}
	}
}
