package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/relay"
)

// Table is an outbox table with what its relay needs to know.
type Table struct {
	Layout      outbox.Layout
	Destination string        // template
	MaxAttempts int           // 0: the relay's default
	BackoffBase time.Duration // 0: the relay's default
	// Asked for by name or mapped, so its absence is an error; others are served where they exist.
	Required bool
}

// Name is the table's name, as in --table.
func (t Table) Name() string { return t.Layout.Table }

// builtin are the tables of the migration sets.
func builtin() (all []Table) {
	for _, t := range relay.Tables() {
		all = append(all, Table{Layout: t.Layout, Destination: cmp.Or(t.Destination.String(), "{topic}"),
			MaxAttempts: t.MaxAttempts, BackoffBase: t.Backoff.Base})
	}
	return all
}

// Known returns every table there is a layout for: ours and the mapped ones, which win over ours of the same name.
func (c Config) Known() []Table {
	all := slices.Clone(c.mappedTables)
	for _, t := range builtin() {
		if _, taken := find(all, t.Name()); !taken {
			all = append(all, t)
		}
	}
	return all
}

// Find returns the known table of that name, as it is served.
func (c Config) Find(name string) (Table, error) {
	t, ok := find(c.Known(), name)
	if !ok {
		return Table{}, &Error{Problems: []string{unknownTable("table", name, c.Known())}}
	}
	return c.served(t), nil
}

// served returns a table with what the settings say of it.
func (c Config) served(t Table) Table {
	if d, ok := c.Destination[t.Name()]; ok {
		t.Destination = d
	}
	if mode, ok := c.Settle[t.Name()]; ok {
		t.Layout.Settle = outbox.SettleMode(mode)
	}
	if c.MaxAttempts != 0 {
		t.MaxAttempts = c.MaxAttempts
	}
	if c.BackoffBase != 0 {
		t.BackoffBase = c.BackoffBase
	}
	return t
}

// Tables returns the tables for the relay to serve: those of --table, or all known ones.
func (c Config) Tables() ([]Table, error) {
	var problems Error
	known := c.Known()
	served := slices.DeleteFunc(slices.Clone(known), func(t Table) bool { return c.noSink(t) != nil })
	if len(c.Table) > 0 {
		served = nil
		for _, name := range c.Table {
			t, ok := find(known, name)
			if _, twice := find(served, name); twice {
				continue
			}
			if !ok {
				problems.add("%s", unknownTable("table", name, known))
				continue
			}
			t.Required = true
			served = append(served, t)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Destination)) {
		if _, ok := find(known, name); !ok {
			problems.add("%s", unknownTable("destination", name, known))
		}
	}
	for i := range served {
		served[i] = c.served(served[i])
	}
	return served, problems.orNil()
}

// noSink says why a log is left out where no tables are named: settings from before there were logs go on as they are.
func (c Config) noSink(t Table) error {
	if t.Layout.KeepsState() {
		return nil // which is a problem of the settings (checkSinks)
	}
	_, err := c.sinkOf(t.Name())
	return err
}

// Unserved says which table relays leave out, should the database have it, and what to set; "" if there is none.
func (c Config) Unserved(needs Need) string {
	needs = c.withParts(needs)
	if needs&Serving == 0 || len(c.Table) > 0 {
		return ""
	}
	for _, t := range c.Known() {
		if err := c.noSink(t); err != nil {
			return fmt.Sprintf("no relay serves %s, should the database have it: %v", t.Name(), err)
		}
	}
	return ""
}

func (c Config) checkSettle(problems *Error) {
	for _, name := range slices.Sorted(maps.Keys(c.Settle)) {
		if _, ok := find(c.Known(), name); !ok {
			problems.add("%s", unknownTable("settle", name, c.Known()))
		}
		if t, ok := find(c.Known(), name); ok && !t.Layout.KeepsState() {
			problems.add("settle: %s is a log, whose rows stay until their part is truncated: leave it out", name)
		}
		switch mode := outbox.SettleMode(c.Settle[name]); mode {
		case outbox.SettleMark, outbox.SettleDelete, outbox.SettleArchive:
		case "":
			problems.add("settle: %s: no mode is given: %s", name, set("settle"))
		default:
			problems.add("settle: %s: %q is no settle mode: it is %s, %s or %s: %s", name, string(mode), outbox.SettleMark,
				outbox.SettleDelete, outbox.SettleArchive, set("settle"))
		}
	}
}

func unknownTable(setting, name string, known []Table) string {
	return setting + ": there is no layout for table " + name + ": it is one of " + names(known) +
		", or map it with --layouts FILE"
}

func find(tables []Table, name string) (Table, bool) {
	i := slices.IndexFunc(tables, func(t Table) bool { return t.Name() == name })
	if i < 0 {
		return Table{}, false
	}
	return tables[i], true
}

func names(tables []Table) string {
	var list []string
	for _, t := range tables {
		list = append(list, t.Name())
	}
	return strings.Join(list, ", ")
}

// mappedTable is one entry of a list of layouts: outbox.Layout's keys, and what only the relay needs to know.
type mappedTable struct {
	outbox.Layout `yaml:",squash"`
	Like          string `yaml:"like"`         // start from the layout of this table of ours; other keys change it
	Destination   string `yaml:"destination"`  // template
	MaxAttempts   int    `yaml:"max_attempts"` // 0: the relay's default
}

// layouts returns the mapped tables of the files that --layouts names, or of the entries and files in that of --config.
func (c *Config) layouts(problems *Error) (tables []Table) {
	var here []any
	for _, entry := range c.Layouts {
		path, isFile := entry.(string)
		if !isFile {
			here = append(here, entry)
			continue
		}
		entries, err := readLayouts(path)
		if err != nil {
			problems.add("%v", err)
		}
		tables = append(tables, mapped("layout file "+path, entries, problems)...)
	}
	return append(tables, mapped("layouts in the config file", here, problems)...)
}

// readLayouts reads a file of layouts: a YAML list, alone or under the key layouts as in the file of --config.
func readLayouts(path string) ([]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("layout file: %w: correct --layouts or OUTBOX_LAYOUTS", err)
	}
	top, err := readYAML(path, text)
	if err != nil {
		return nil, fmt.Errorf("layout file %w", err)
	}
	if top != nil && top.Kind == yaml.MappingNode {
		file := map[string]yaml.Node{}
		if err := into(path, top, &file); err != nil {
			return nil, fmt.Errorf("layout file %w", err)
		}
		list := file["layouts"]
		top = &list
	}
	if top == nil || top.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("layout file %s: want a YAML list of tables, or one under the key layouts", path)
	}
	var entries []any
	if err := into(path, top, &entries); err != nil {
		return nil, fmt.Errorf("layout file %w", err)
	}
	return entries, nil
}

// mapped turns the entries of a list into tables. where is how problems name the list.
func mapped(where string, entries []any, problems *Error) (tables []Table) {
	for i, entry := range entries {
		at := fmt.Sprintf("%s, entry %d", where, i+1)
		var m mappedTable
		unused, wrong := decode(entry, &m)
		if m.Table != "" {
			at += fmt.Sprintf(" (table %q)", m.Table)
		}
		if problems.entry(at, unused, wrong) {
			continue
		}
		t := Table{Required: true}
		if m.Like != "" {
			base, ok := find(builtin(), m.Like)
			if !ok {
				problems.add("%s: like: there is no table %q: it is one of %s", at, m.Like, names(builtin()))
				continue
			}
			t.Destination, t.MaxAttempts, t.BackoffBase = base.Destination, base.MaxAttempts, base.BackoffBase
			m = mappedTable{Layout: base.Layout}
			decode(entry, &m) // once more, over the base
		}
		if err := m.Validate(); err != nil {
			problems.add("%s: %v", where, err)
			continue
		}
		t.Layout = m.Layout
		if m.Destination != "" {
			t.Destination = m.Destination
		}
		if m.MaxAttempts != 0 {
			t.MaxAttempts = m.MaxAttempts
		}
		if t.MaxAttempts < 0 {
			problems.add("%s: max_attempts is %d, must be positive", at, t.MaxAttempts)
		}
		tables = append(tables, t)
	}
	return tables
}

// entry adds what is wrong with an entry of a list, and tells whether that is anything.
func (e *Error) entry(at string, unused, wrong []string) bool {
	for _, problem := range wrong {
		e.add("%s: %s", at, problem)
	}
	if len(unused) > 0 {
		e.add("%s: %s", at, unknownKeys(unused))
	}
	return len(wrong)+len(unused) > 0
}

// parseEnvelope returns what messages of a form are.
func parseEnvelope(form string) (outbox.Envelope, error) {
	switch form {
	case "", "cloudevents":
		return outbox.CloudEvent, nil
	case "payload":
		return outbox.PayloadOnly, nil
	}
	return nil, fmt.Errorf("unknown envelope %q (known: cloudevents, payload)", form)
}

// envelopes reads the setting: a form for all tables, and TABLE=FORM for single ones, apart by commas. It returns what
// a table's form is.
func (c Config) envelopes() (formOf func(table string) string, err error) {
	all, single := "cloudevents", map[string]string{}
	for part := range strings.SplitSeq(c.Envelope, ",") {
		table, form, ofOne := strings.Cut(strings.TrimSpace(part), "=")
		if !ofOne {
			form = table
		}
		if _, err := parseEnvelope(form); err != nil {
			return nil, err
		}
		if !ofOne {
			all = form
			continue
		}
		if _, ok := find(c.Known(), table); !ok {
			return nil, errors.New(unknownTable("envelope", table, c.Known()))
		}
		single[table] = form
	}
	return func(table string) string {
		if form, ok := single[table]; ok {
			return form
		}
		return all
	}, nil
}

// EnvelopeOf returns what the messages of a table are.
func (c Config) EnvelopeOf(table string) (outbox.Envelope, error) {
	formOf, err := c.envelopes()
	if err != nil {
		return nil, err
	}
	return parseEnvelope(formOf(table))
}

// BareTopics tells whether messages of a table other than that of runs may arrive without their CloudEvent: what such a
// message says of itself is its producer's word.
func (c Config) BareTopics() bool {
	formOf, err := c.envelopes()
	return err != nil || slices.ContainsFunc(c.Known(), func(t Table) bool {
		return t.Name() != outbox.CrawlOutbox().Table && formOf(t.Name()) == "payload"
	})
}

// Retention holds the settings of what becomes of old rows.
type Retention struct {
	OlderThan    time.Duration `yaml:"retention"`     // 0: off
	LetterAge    time.Duration `yaml:"dlq_retention"` // 0: off
	Archive      string        `yaml:"archive"`
	parsedTarget retention.Archive
}

// Letters is the table of dead letters, which retention looks after too. It has no layout.
const Letters = "job_dlq"

// RetentionFlags returns the flags of commands that remove old rows. The defaults are the library's, which are the
// seeds'.
func RetentionFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("retention", pflag.ContinueOnError)
	fs.Duration("retention", relayDefaults.Retention.After, "how `long` delivered events stay in their table; 0: for ever")
	fs.Duration("dlq-retention", relayDefaults.LetterRetention.After,
		"how `long` replayed dead letters stay in job_dlq; 0: for ever")
	fs.String("archive", relayDefaults.Retention.Archive,
		"`where` they go then: table (outbox_archive), none, or a directory for compressed files; event_outbox and job_dlq "+
			"go nowhere")
	return fs
}

func (c *Config) checkRetention(problems *Error) {
	atLeast(problems, "retention", c.Retention.OlderThan, 0)
	atLeast(problems, "dlq-retention", c.Retention.LetterAge, 0)
	target, err := retention.ParseArchive(c.Retention.Archive)
	if err != nil {
		problems.add("archive: %v: %s", err, set("archive"))
	}
	c.Retention.parsedTarget = target
}

// Of returns how old a table's rows become, 0 for any age, and where they go. The seeds' purge functions delete; what
// they purge is not archived.
func (r Retention) Of(table string) (time.Duration, retention.Archive) {
	switch table {
	case Letters:
		return r.LetterAge, retention.Archive{None: true}
	case outbox.EventOutbox().Table, outbox.DeliveriesOf("", "").Table, outbox.OutboxLog().Table:
		return r.OlderThan, retention.Archive{None: true}
	}
	return r.OlderThan, r.parsedTarget
}

// retryEntry is one entry of the list retry in the file of --config.
type retryEntry struct {
	Destination   string        `yaml:"destination"` // a name or a pattern
	Table         string        `yaml:"table"`       // "": all
	MaxAttempts   int           `yaml:"max_attempts"`
	BackoffBase   time.Duration `yaml:"backoff_base"`
	BackoffFactor float64       `yaml:"backoff_factor"`
	BackoffCap    time.Duration `yaml:"backoff_cap"`
}

// retryEntries decodes and checks the list. What an entry leaves out is the table's.
func (c *Config) retryEntries(problems *Error) (entries []retryEntry) {
	for i, raw := range c.Retry {
		at := fmt.Sprintf("retry, entry %d", i+1)
		var e retryEntry
		unused, wrong := decode(raw, &e)
		if e.Destination != "" {
			at += fmt.Sprintf(" (destination %q)", e.Destination)
		}
		if problems.entry(at, unused, wrong) && len(wrong) > 0 {
			continue
		}
		if _, err := path.Match(e.Destination, ""); err != nil || e.Destination == "" {
			problems.add("%s: want a destination, or a pattern such as orders.*", at)
		}
		if e.Table != "" {
			if _, ok := find(c.Known(), e.Table); !ok {
				problems.add("%s: %s", at, unknownTable("table", e.Table, c.Known()))
			}
		}
		if e.MaxAttempts < 0 {
			problems.add("%s: max_attempts is %d, must be 1 or more", at, e.MaxAttempts)
		}
		if e.BackoffBase < 0 || e.BackoffCap < 0 {
			problems.add("%s: backoff_base and backoff_cap must be positive", at)
		}
		if e.BackoffFactor != 0 && e.BackoffFactor < 1 {
			problems.add("%s: backoff_factor is %g, must be 1 or more", at, e.BackoffFactor)
		}
		entries = append(entries, e)
	}
	return entries
}

// Policies returns the exceptions for destinations of a table. Check has found them right.
func (c Config) Policies(table string) (policies []relay.RetryPolicy) {
	for _, e := range c.retryEntries(&Error{}) {
		if e.Table == "" || e.Table == table {
			policies = append(policies, relay.RetryPolicy{
				Destination: e.Destination, MaxAttempts: e.MaxAttempts,
				Backoff: relay.Backoff{Base: e.BackoffBase, Factor: e.BackoffFactor, Cap: e.BackoffCap},
			})
		}
	}
	return policies
}
