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
	"strings"
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

// IsSetting tells whether a flag is that of a setting, whatever a command's own flag of that name is.
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
	output.StringVarP(&c.Output, "output", "o", "table", "`form` of what goes to stdout: table or json")
	process.StringSliceVar(&c.Serve.Parts, "parts", parts,
		"`what` this process does: gateway serves the HTTP API and the streams, relay delivers "+
			"events, worker crawls runs")
	return flagSets{c.globalFlags(), c.mappingFlags(), c.relayFlags(), c.retentionFlags(), c.serveFlags(), marked(process),
		c.clientFlags(), marked(output)}
}

func (c *Config) globalFlags() *pflag.FlagSet {
	fs := flagSet("global")
	fs.StringVar(&c.found.path, "config", "",
		"YAML `file` with settings, keys as the flags are called but with _ for -")
	fs.StringVar(&c.Database, "database", "",
		"`URL` of the database, better in OUTBOX_DATABASE_URL or DATABASE_URL, where ps does not "+
			"show it")
	fs.StringArrayVar(&c.written.sink, "sink", nil,
		"`URL` that events are published to, or NAME=URL of one of several (in a file, keys NAME: "+
			"URL); better in OUTBOX_SINK, several apart by spaces")
	fs.StringVar(&c.LogLevel, "log-level", "info",
		"least `level` that is logged to stderr: debug, info, warn or error; as text on a "+
			"terminal, else as JSON")
	return marked(fs)
}

func (c *Config) mappingFlags() *pflag.FlagSet {
	fs := flagSet("mapping")
	fs.StringSliceVar(&c.written.layouts, "layouts", nil, "YAML `files` with lists of mapped "+
		"tables (see outbox relay --help)")
	fs.StringSliceVar(&c.written.settle, "settle", nil,
		"`table=mode`: what becomes of a delivered row: mark (it stays, to be looked at, until "+
			"--retention), delete (for a table that is only a queue), or archive (it moves to "+
			"outbox_archive, and can be replayed from there) (default mark)")
	return marked(fs)
}

func (c *Config) relayFlags() *pflag.FlagSet {
	fs := flagSet("relay")
	fs.StringSliceVar(&c.Table, "table", nil,
		"`tables` to serve (default: those of outbox_events, event_outbox, crawl_outbox and "+
			"outbox_log that exist, and every mapped one)")
	fs.StringSliceVar(&c.written.destination, "destination", nil,
		"`table=template` for events that name no destination, of {topic}, {key}, {type}, "+
			"{tenant} and {source} (default run:{key} for crawl_outbox, {topic} for others)")
	fs.StringSliceVar(&c.written.routes, "routes", nil,
		"`table=sink`: the name of the sink that a table's events go to, in a file also by topic, "+
			"tenant and type (default: the only sink, or the one called default)")
	fs.StringSliceVar(&c.written.envelope, "envelope", defaultForms,
		"`form` of what a subscriber receives: cloudevents, or payload for the bare payload; of a "+
			"single table as TABLE=FORM, after a comma")
	fs.IntVar(&c.Batch, "batch", relayDefaults.BatchRecords, "most `events` in one claim, publish and settle")
	fs.DurationVar(&c.PollMax, "poll-max", relayDefaults.PollMax,
		"`pause` that an idle relay's polling grows to, from 1.5ms while events arrive; what an "+
			"event waits if its wake-up is lost")
	fs.DurationVar(&c.RouteTimeout, "route-timeout", relayDefaults.RouteTimeout,
		"how `long` a batch waits for each sink of a table with routes; what one has not answered "+
			"by then it is sent again, by itself")
	fs.DurationVar(&c.LeaseTTL, "lease-ttl", relayDefaults.LeaseTTL,
		"how `long` the lanes of a relay that died, and the runs of a worker, stay reserved for it")
	fs.IntVar(&c.MaxAttempts, "max-attempts", 0,
		"failed `attempts` until an event is a dead letter (default 3 for crawl_outbox, 5 for "+
			"others)")
	fs.DurationVar(&c.BackoffBase, "backoff-base", 0,
		"`wait` after an event's first failed attempt; each further one is twice as long, give or "+
			"take a fifth, and 15m at most (default 200ms for crawl_outbox, 5s for others)")
	fs.DurationVar(&c.DedupWindow, "dedup-window", dedup.DefaultWindow,
		"how `long` a sink that can remembers event ids to refuse a second copy; 0: not at all")
	fs.StringVar(&c.Listen, "listen", "",
		"`address` to serve /metrics, /healthz and /readyz on, e.g. 127.0.0.1:9464 (default: none)")
	fs.StringVar(&c.OTLP, "otlp", "",
		"`URL` of an OpenTelemetry collector that gets spans and metrics, e.g. http://127.0.0.1:4318 "+
			"(default: what OTEL_EXPORTER_OTLP_ENDPOINT says, or none)")
	return marked(fs)
}

func (c *Config) retentionFlags() *pflag.FlagSet {
	fs := flagSet("retention")
	fs.StringSliceVar(&c.written.retention, "retention", defaultAges,
		"how `long` delivered events stay in their table, 0: for ever; of a single table as "+
			"TABLE=AGE, after a comma, and of replayed dead letters as job_dlq=AGE")
	fs.StringVar(&c.Archive, "archive", relayDefaults.Retention.Archive,
		"`where` they go then: table (outbox_archive), none, or a directory for compressed files; "+
			"event_outbox and job_dlq go nowhere")
	return marked(fs)
}

func (c *Config) serveFlags() *pflag.FlagSet {
	fs, s := flagSet("serve"), &c.Serve
	fs.StringVar(&s.HTTP, "http", "127.0.0.1:8080", "`address` of the API")
	fs.StringVar(&s.Auth, "auth", "token",
		"`who` may use the API: token, who has one of outbox token create; or none, anybody on "+
			"this machine")
	fs.StringSliceVar(&s.Origins, "cors-origin", nil,
		"`origins` whose pages may use the API in a browser, e.g. https://shop.example, or "+
			"http://localhost:* for every port")
	fs.StringVar(&s.PublicURL, "public-url", "",
		"`URL` at which clients reach the API through a proxy, e.g. https://api.example.com; "+
			"streamUrl and Location begin with it")
	fs.StringSliceVar(&s.Crawlers, "crawlers", []string{"demo", "script:*"},
		"built-in `crawlers` that a run may have here, and that the worker runs")
	fs.IntVar(&s.StreamLimit, "stream-limit", 20_000,
		"most `streams` open in this process, of which a quarter may be of one tenant; they "+
			"follow a fifth as many topics, and at least 4000")
	fs.IntVar(&s.SubscriptionLimit, "subscription-limit", 100, "most `subscriptions` of one tenant of the API")
	fs.StringVar(&s.Admin, "admin", "off",
		"what `operators` may do through the API and the page at /ui, with tokens of admin scopes: off, read or write")
	fs.StringVar(&s.Environment, "environment", "",
		"`name` of this environment on the page at /ui, with a colour: production=#b91c1c")
	return marked(fs)
}

func (c *Config) clientFlags() *pflag.FlagSet {
	fs := flagSet("client")
	fs.StringVar(&c.Server, "server", "http://127.0.0.1:8080", "`URL` of outbox serve")
	fs.StringVar(&c.Token, "token", "",
		"`token` made by outbox token create; better in OUTBOX_TOKEN, where ps does not show it")
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

// Describe adds to the texts of the flags that are URLs how those look. There are too many sinks to
// show them all.
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
