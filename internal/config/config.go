// Package config gathers the settings of the outbox command: flags, before environment variables,
// before the file of --config, before defaults.
//
// A setting is declared once, as a flag. Text of a variable and of a file is read as the flag's
// would be, so the three accept the same, and a problem has the same words wherever it comes from.
//
// Guaranteed: what a setting may be is checked before anything is opened. All problems are reported
// at once, each with the setting's names and a remedy. A key of a file that nobody knows is a
// problem, and a variable that looks like a setting and is none can be warned of. No error and no
// Masked text contains a password.
//
// Not guaranteed: that a server answers at the URLs, or that the tables exist. That is found out by
// package app.
package config

import (
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/sink/dedup"
	"github.com/outboxrelay/outbox/internal/sink/sinks"
	"github.com/outboxrelay/outbox/relay"
)

// Config holds every setting. What it means is said where its flag is declared; keys in a file are
// the flags' names with _ for -.
type Config struct {
	Database string
	Sink     Sinks
	LogLevel string
	Settle   ByTable // modes

	Table        []string
	Destination  ByTable // templates
	Envelope     ByTable // forms
	Retention    ByTable // ages
	Batch        int
	PollMax      time.Duration
	RouteTimeout time.Duration
	LeaseTTL     time.Duration
	MaxAttempts  int
	BackoffBase  time.Duration
	DedupWindow  time.Duration
	Listen       string
	OTLP         string
	Archive      string
	Routes       []Route
	Serve        Serve

	Output        string // of what commands print
	Server, Token string // of outbox runs

	written struct{ sink, layouts, routes, settle, destination, envelope, retention []string }
	retry   []retryEntry
	limits  []limitEntry
	mapped  []Table
	kinds   Kinds
	found   findings
}

// Serve holds the settings of outbox serve beside the relay's.
type Serve struct {
	Parts       []string // of this process: no setting, since processes with others have the same file
	HTTP        string
	Auth        string
	Origins     []string
	PublicURL   string
	Crawlers    []string // names, and patterns of names
	StreamLimit int
	// SubscriptionLimit is the most subscriptions of one tenant.
	SubscriptionLimit int
	Admin             string // off, read or write
	Environment       string // a name, or NAME=COLOUR
}

// parts are those that a process of outbox serve can have: the HTTP API and its streams, delivery,
// and crawling.
var parts = []string{"gateway", "relay", "worker"}

// Has tells whether the process has a part.
func (s Serve) Has(part string) bool { return slices.Contains(s.Parts, part) }

// StreamLimitTenant is the most streams of one tenant.
func (s Serve) StreamLimitTenant() int { return max(s.StreamLimit/4, 1) }

// Global returns the flags that every command has.
func Global() *pflag.FlagSet {
	fs := new(Config).flags()
	fs.global.AddFlagSet(fs.output)
	return fs.global
}

// Mapping returns the flags of commands that work on tables of any layout.
func Mapping() *pflag.FlagSet { return new(Config).mappingFlags() }

// Relay returns the flags of the relay.
func Relay() *pflag.FlagSet { return new(Config).relayFlags() }

// RetentionFlags returns the flags of commands that remove old rows.
func RetentionFlags() *pflag.FlagSet { return new(Config).retentionFlags() }

// ServeFlags returns the flags of outbox serve beside the relay's.
func ServeFlags() *pflag.FlagSet {
	fs := new(Config).flags()
	fs.parts.AddFlagSet(fs.serve)
	return fs.parts
}

// Client returns the flags of commands that speak to a gateway. They are variables too, and in no
// file.
func Client() *pflag.FlagSet { return new(Config).clientFlags() }

// All returns the flags that are settings, in the order in which they are documented.
func All() *pflag.FlagSet { return new(Config).flags().settings() }

// setting is the annotation of flags that are settings.
const setting = "setting"

// IsSetting tells whether a flag is that of a setting, and not a command's own flag of that name.
func IsSetting(f *pflag.Flag) bool { return len(f.Annotations[setting]) > 0 }

// marked marks the flags of a set as settings.
func marked(fs *pflag.FlagSet) *pflag.FlagSet {
	fs.VisitAll(func(f *pflag.Flag) { f.Annotations = map[string][]string{setting: {"yes"}} })
	return fs
}

// flagSets are the flags by the commands that have them, each bound to its field.
type flagSets struct{ global, mapping, relay, retention, serve, parts, client, output *pflag.FlagSet }

func (fs flagSets) settings() *pflag.FlagSet {
	all := flagSet("settings")
	for _, set := range []*pflag.FlagSet{fs.global, fs.mapping, fs.relay, fs.retention, fs.serve} {
		all.AddFlagSet(set)
	}
	return all
}

func flagSet(name string) *pflag.FlagSet {
	fs := pflag.NewFlagSet(name, pflag.ContinueOnError)
	fs.SortFlags = false
	return fs
}

// relayDefaults are what a relay has where no setting says otherwise. An empty relay.Config has no
// problems.
var relayDefaults, _ = relay.Config{}.WithDefaults()

// flags declares every flag and gives each field its default. Those of outbox serve are the
// defaults of package gateway, repeated because --help shows them.
func (c *Config) flags() flagSets {
	output, process := flagSet("output"), flagSet("parts")
	output.StringVarP(&c.Output, "output", "o", "table", "output `format`: table or json")
	process.StringSliceVar(&c.Serve.Parts, "parts", parts, "`names` of the parts to run")
	return flagSets{c.globalFlags(), c.mappingFlags(), c.relayFlags(), c.retentionFlags(), c.serveFlags(), marked(process),
		c.clientFlags(), marked(output)}
}

func (c *Config) globalFlags() *pflag.FlagSet {
	fs := flagSet("global")
	fs.StringVar(&c.found.path, "config", "", "YAML `file` with the settings")
	fs.StringVar(&c.Database, "database", "", "`url` of the database; better in OUTBOX_DATABASE_URL")
	fs.StringArrayVar(&c.written.sink, "sink", nil,
		"`url` of the sink, or NAME=URL of several; better in OUTBOX_SINK")
	fs.StringVar(&c.LogLevel, "log-level", "info", "`level` of the log: debug, info, warn or error")
	return marked(fs)
}

func (c *Config) mappingFlags() *pflag.FlagSet {
	fs := flagSet("mapping")
	fs.StringSliceVar(&c.written.layouts, "layouts", nil, "YAML `files` of mapped tables: outbox help layouts")
	fs.StringSliceVar(&c.written.settle, "settle", nil,
		"`table=mode` for delivered rows: mark, delete or archive")
	return marked(fs)
}

func (c *Config) relayFlags() *pflag.FlagSet {
	fs := flagSet("relay")
	fs.StringSliceVar(&c.Table, "table", nil, "`names` of the tables to serve (default: all that exist)")
	fs.StringSliceVar(&c.written.destination, "destination", nil,
		"`table=text` with the template of a table's destinations")
	fs.StringSliceVar(&c.written.routes, "routes", nil, "`table=sink` with the sink of a table's events")
	fs.StringSliceVar(&c.written.envelope, "envelope", defaultForms, "message `format`: cloudevents or payload")
	fs.IntVar(&c.Batch, "batch", relayDefaults.BatchRecords, "maximum events per claim, publish and settle")
	fs.DurationVar(&c.PollMax, "poll-max", relayDefaults.PollMax, "maximum polling interval of an idle relay")
	fs.DurationVar(&c.RouteTimeout, "route-timeout", relayDefaults.RouteTimeout,
		"time for each sink to acknowledge a batch")
	fs.DurationVar(&c.LeaseTTL, "lease-ttl", relayDefaults.LeaseTTL,
		"time until an unresponsive relay loses its lanes")
	fs.IntVar(&c.MaxAttempts, "max-attempts", 0, "attempts until an event is dead (default 5, crawl_outbox 3)")
	fs.DurationVar(&c.BackoffBase, "backoff-base", 0,
		"delay after the first failure (default 5s, crawl_outbox 200ms)")
	fs.DurationVar(&c.DedupWindow, "dedup-window", dedup.DefaultWindow,
		"time in which sinks reject duplicates; 0: off")
	fs.StringVar(&c.Listen, "listen", "", "`address` of /metrics, /healthz and /readyz (default: none)")
	fs.StringVar(&c.OTLP, "otlp", "", "`url` of an OpenTelemetry collector")
	return marked(fs)
}

func (c *Config) retentionFlags() *pflag.FlagSet {
	fs := flagSet("retention")
	fs.StringSliceVar(&c.written.retention, "retention", defaultAges, "`age` limit of delivered rows; 0: none")
	fs.StringVar(&c.Archive, "archive", relayDefaults.Retention.Archive,
		"target of old rows: table, none or a directory")
	return marked(fs)
}

func (c *Config) serveFlags() *pflag.FlagSet {
	fs, s := flagSet("serve"), &c.Serve
	fs.StringVar(&s.HTTP, "http", "127.0.0.1:8080", "`address` of the API")
	fs.StringVar(&s.Auth, "auth", "token", "authentication `mode`: token or none")
	fs.StringSliceVar(&s.Origins, "cors-origin", nil, "`urls` of the pages that may use the API")
	fs.StringVar(&s.PublicURL, "public-url", "", "`url` of the API behind a proxy")
	fs.StringSliceVar(&s.Crawlers, "crawlers", []string{"demo", "script:*"},
		"`names` of the crawlers of this process")
	fs.IntVar(&s.StreamLimit, "stream-limit", 20_000, "maximum number of open streams")
	fs.IntVar(&s.SubscriptionLimit, "subscription-limit", 100, "maximum number of subscriptions per tenant")
	fs.StringVar(&s.Admin, "admin", "off", "access `mode` of operators: off, read or write")
	fs.StringVar(&s.Environment, "environment", "", "`name` of this environment on the page, or NAME=COLOUR")
	return marked(fs)
}

func (c *Config) clientFlags() *pflag.FlagSet {
	fs := flagSet("client")
	fs.StringVar(&c.Server, "server", "http://127.0.0.1:8080", "`url` of outbox serve")
	fs.StringVar(&c.Token, "token", "", "API `token`; better in OUTBOX_TOKEN")
	return marked(fs)
}

// pairwise are the flags of NAME=VALUE, which may be keys with values in a file.
var pairwise = map[string]bool{"sink": true, "settle": true, "destination": true, "envelope": true, "retention": true}

// Kinds are the databases and the sinks that the program can open, as far as settings are
// concerned. Package app knows which they are.
type Kinds struct {
	Databases Databases
	Sinks     sinks.Registry
}

// Databases knows the URLs of databases. No password is in what it returns.
type Databases interface {
	// Check says what is wrong with a URL, without connecting.
	Check(url string) error
	// Show returns the URL as one would write it, or the name of the database if a password may be
	// in it.
	Show(url string) string
	// Examples are how URLs look, one for each kind of database.
	Examples() []string
}
