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
	"time"

	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/dedup"
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
