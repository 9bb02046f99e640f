package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
)

// Need is what a command cannot do without.
type Need int

// The needs, to be combined with |.
const (
	Database   Need = 1 << iota
	Publishing      // a sink
	Tailing         // one that can be listened to
	Serving         // the relay's settings
	Retaining       // those of retention
	Parts           // those of outbox serve, and what the parts need that are on
	Asking          // a gateway's address
)

// withParts adds what the chosen parts of outbox serve need.
func (c Config) withParts(needs Need) Need {
	if needs&Parts != 0 {
		needs |= c.Serve.needs()
	}
	return needs
}

// Check reports everything that is wrong with the settings, or missing from them, for a command with these needs. The
// error is an *Error.
func (c *Config) Check(needs Need) error {
	problems := Error{Problems: slices.Clone(c.found.problems)}
	needs = c.withParts(needs)
	if needs&Database != 0 {
		if c.Database == "" {
			problems.add("the database is not set: %s", set("database"))
		} else if err := c.kinds.Databases.Check(c.Database); err != nil {
			problems.add("database: %v: %s", err, set("database"))
		}
	}
	if _, err := c.Level(); err != nil {
		problems.add("%v", err)
	}
	oneOf(&problems, "log-format", c.LogFormat, "auto", "text", "json")
	oneOf(&problems, "output", c.Output, "table", "json")
	c.mappedTables = c.layouts(&problems)
	c.checkSettle(&problems)
	if needs&(Publishing|Tailing) != 0 {
		c.checkSinks(&problems, needs)
	}
	if needs&Serving != 0 {
		c.checkServing(&problems)
	}
	if needs&Retaining != 0 {
		c.checkRetention(&problems)
	}
	if needs&Parts != 0 {
		c.checkServe(&problems, needs&Serving == 0)
	}
	if needs&Asking != 0 {
		c.checkClient(&problems)
	}
	for i, problem := range problems.Problems {
		problems.Problems[i] += c.overriding(problem)
	}
	return problems.orNil()
}

// overriding says of a problem with settings which of them the file has otherwise.
func (c *Config) overriding(problem string) (text string) {
	for _, name := range slices.Sorted(maps.Keys(c.found.hidden)) {
		if strings.Contains(problem, set(strings.ReplaceAll(name, "_", "-"))) {
			text += fmt.Sprintf(" (%s is in effect instead of %s at %s)", c.found.origins[name], name,
				c.found.hidden[name])
		}
	}
	return text
}

func (c *Config) checkServing(problems *Error) {
	atLeast(problems, "workers", c.Workers, 1)
	atLeast(problems, "batch", c.Batch, 1)
	atLeast(problems, "batch-bytes", c.BatchBytes, 1)
	atLeast(problems, "poll-max", c.PollMax, time.Millisecond)
	atLeast(problems, "route-timeout", c.RouteTimeout, time.Millisecond)
	atLeast(problems, "lease-ttl", c.LeaseTTL, time.Second)
	atLeast(problems, "dedup-window", c.DedupWindow, 0)
	if c.MaxAttempts < 0 {
		problems.add("max-attempts is %d, must be 1 or more, or 0 for the tables' defaults: %s", c.MaxAttempts,
			set("max-attempts"))
	}
	if longest := relayDefaults.Backoff.Cap; c.BackoffBase != 0 && (c.BackoffBase < time.Millisecond ||
		c.BackoffBase > longest) {
		problems.add("backoff-base is %s, must be from 1ms to %s, or 0 for the tables' defaults: %s", c.BackoffBase,
			brief(longest), set("backoff-base"))
	}
	c.retryEntries(problems)
	c.routeEntries(problems)
	c.limitEntries(problems)
	if _, err := c.envelopes(); err != nil {
		problems.add("envelope: %v: %s", err, set("envelope"))
	}
	c.checkListen(problems)
	tables := c.checkTables(problems)
	for _, t := range tables {
		if t.Destination == "" {
			continue
		}
		if _, err := outbox.ParseTemplate(t.Destination); err != nil {
			problems.add("destination of %s: %v: %s", t.Name(), err, set("destination"))
		}
	}
}

// checkTables returns the tables to serve.
func (c *Config) checkTables(problems *Error) []Table {
	tables, err := c.Tables()
	var unknown *Error
	if errors.As(err, &unknown) {
		problems.Problems = append(problems.Problems, unknown.Problems...)
	}
	return tables
}

func (c *Config) checkListen(problems *Error) {
	if c.Listen == "" {
		return
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		problems.add("listen is %q, want host:port such as 127.0.0.1:9464: %s", c.Listen, set("listen"))
	}
}

// Level is the log level.
func (c *Config) Level() (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return level, fmt.Errorf("log-level is %q, want debug, info, warn or error: %s", c.LogLevel, set("log-level"))
	}
	return level, nil
}

// atLeast reports a number or a duration that is too small.
func atLeast[T int | time.Duration](problems *Error, flag string, value, least T) {
	if value < least {
		problems.add("%s is %v, must be %v or more: %s", flag, value, least, set(flag))
	}
}

func oneOf(problems *Error, flag, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	problems.add("%s is %q, want %s: %s", flag, value, strings.Join(allowed, " or "), set(flag))
}

// set says where a setting is set.
func set(flag string) string {
	return fmt.Sprintf("give --%s, or set %s or %s in the file of --config", flag,
		strings.Join(variableNames(flag), " or "), key(flag))
}

// ShortWindow says why the duplicate window is shorter than what can lie between two attempts to publish an event. It
// is "" if the window is not, or if that does not matter for these needs. It is no problem that keeps a relay from
// starting: in normal operation nothing is published twice.
func (c Config) ShortWindow(needs Need) string {
	needs = c.withParts(needs)
	// The relay that takes over asks for lanes every third of a lease, and claims before it publishes.
	publish, claim := relayDefaults.PublishTimeout, relayDefaults.DatabaseTimeout // which no setting changes
	apart := (publish + c.LeaseTTL + c.LeaseTTL/3 + claim + time.Second - 1).Truncate(time.Second)
	if needs&Serving == 0 || c.withinProcess() || c.DedupWindow == 0 || c.DedupWindow >= apart {
		return ""
	}
	return fmt.Sprintf("dedup-window is %s, but after the death of a relay %s can lie between two attempts to publish "+
		"an event (a publish of %s, "+
		"lease-ttl of %s and a third of it for the take-over, a claim of %s), and a copy that late is delivered: give "+
		"--dedup-window %s or more",
		brief(c.DedupWindow), brief(apart), brief(publish), brief(c.LeaseTTL), brief(claim), brief(apart))
}

// withinProcess tells whether all events stay in this process: no other relay publishes to its sinks.
func (c Config) withinProcess() bool {
	return !slices.ContainsFunc(c.AllSinks(), func(s Sink) bool { return !s.Driver.InProcess })
}

// RunChannel returns the function that names the channel of a run: where the relay sends the events of crawl_outbox.
// Whoever subscribes has not seen an event yet, so a template that needs more than run and tenant is an error.
func (c Config) RunChannel() (func(tenant string, run uuid.UUID) (string, error), error) {
	table := outbox.CrawlOutbox().Table
	name := func(tenant string, run uuid.UUID) *outbox.Record {
		return &outbox.Record{Event: outbox.Event{AggregateID: run.String(), TenantID: tenant, Source: table}}
	}
	template, err := c.channelTemplate(table, "run (use {key}, {tenant}, {source})", name("t", uuid.New()))
	if err != nil {
		return nil, err
	}
	return func(tenant string, run uuid.UUID) (string, error) { return template.Expand(name(tenant, run)) }, nil
}

// ReservedChannels tells of a channel whether it is some run's. Events of other tables do not belong there. It is nil
// where no channel can be known to be a run's.
func (c Config) ReservedChannels() func(channel string) bool {
	if _, err := c.RunChannel(); err != nil {
		return nil // no gateway listens either
	}
	run := c.runTemplate()
	pattern := strings.NewReplacer(
		`\{key\}`, `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, `\{tenant\}`, `.+`, `\{source\}`,
		regexp.QuoteMeta(outbox.CrawlOutbox().Table),
	).Replace(regexp.QuoteMeta(run))
	return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString
}

// OwnRunChannels tells whether a table's events belong on the channels of runs: because it is theirs, or because
// somebody has given it their destination.
func (c Config) OwnRunChannels(table, destination string) bool {
	return table == outbox.CrawlOutbox().Table || destination == c.runTemplate()
}

func (c Config) runTemplate() string { return c.templateOf(outbox.CrawlOutbox().Table) }

// TopicChannel is RunChannel for the topics of outbox_events.
func (c Config) TopicChannel() (func(tenant, topic string) (string, error), error) {
	name := func(tenant, topic string) *outbox.Record {
		return &outbox.Record{Event: outbox.Event{Topic: topic, TenantID: tenant}}
	}
	template, err := c.channelTemplate(outbox.OutboxEvents().Table, "topic (use {topic}, {tenant})", name("t", "t"))
	if err != nil {
		return nil, err
	}
	return func(tenant, topic string) (string, error) { return template.Expand(name(tenant, topic)) }, nil
}

// channelTemplate returns where a table's events go, if that can be known from what is known.
func (c Config) channelTemplate(table, of string, known *outbox.Record) (outbox.Template, error) {
	text := c.templateOf(table)
	template, err := outbox.ParseTemplate(text)
	if err != nil {
		return template, err
	}
	if _, err := template.Expand(known); err != nil {
		return template,
			fmt.Errorf("destination of %s is %q: the gateway subscribes before it has seen an event, when it knows only the %s",
				table, text, of)
	}
	return template, nil
}

func (c Config) templateOf(table string) string {
	if d, ok := c.Destination[table]; ok && d != "" {
		return d
	}
	if t, ok := find(c.Known(), table); ok && t.Destination != "" {
		return t.Destination
	}
	return "{topic}" // the relay's default
}

// Setting is a setting as it is in effect.
type Setting struct {
	Name  string `json:"name"`  // its key in a file
	Value any    `json:"value"` // never a password or a token; a duration is a string
	From  string `json:"from"`  // "default", or what set it: FILE:LINE, OUTBOX_POLL_MAX, --poll-max
	// Hides is where the file has it too, in vain: FILE:LINE.
	Hides string `json:"hides,omitempty"`
}

// Effective returns every setting, in the order in which they are documented.
func (c Config) Effective() ([]Setting, error) {
	values := map[string]any{}
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: &values, TagName: "yaml"})
	if err == nil {
		err = d.Decode(c)
	}
	if err != nil {
		return nil, fmt.Errorf("list settings: %w", err)
	}
	values["config"] = c.found.path
	var names []string
	All().VisitAll(func(f *pflag.Flag) { names = append(names, key(f.Name)) })
	var settings []Setting
	for _, name := range append(names, lists...) {
		from, ok := c.found.origins[name]
		if !ok {
			from = "default"
		}
		settings = append(settings, Setting{name, c.shown(name, values[name]), from, c.found.hidden[name]})
	}
	return settings, nil
}

// Given tells whether a flag, a variable or the file has set a flag's setting.
func (c Config) Given(flag string) bool { return c.found.origins[key(flag)] != "" }

// shown is a value that anybody may see.
func (c Config) shown(name string, value any) any {
	if d, ok := value.(time.Duration); ok {
		return brief(d)
	}
	if origins, ok := value.([]string); ok && name == "cors_origin" {
		origins = slices.Clone(origins)
		for i, o := range origins {
			if o != "*" && !isOrigin(o) {
				origins[i] = "(no origin, not shown)"
			}
		}
		return origins
	}
	if name == "sink" {
		masked := map[string]string{}
		for name, url := range c.Sink {
			masked[name] = c.kinds.Sinks.Mask(url)
		}
		return masked
	}
	text, _ := value.(string)
	switch {
	case text == "":
		return value
	case name == "database":
		return c.kinds.Databases.Show(text)
	case name == "token":
		return "(set, not shown)"
	case (name == "server" || name == "public_url") && !isBase(text): // neither may hold a password, but it might
		return "(no valid address, not shown)"
	}
	return value
}

// brief is a duration without the zeros: 168h and not 168h0m0s.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
