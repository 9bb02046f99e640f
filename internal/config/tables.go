package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

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

// Known returns every table there is a layout for: ours and the mapped ones, which win over ours of
// the same name.
func (c Config) Known() []Table {
	all := slices.Clone(c.mapped)
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
	t.Destination = cmp.Or(c.Destination.Of(t.Name()), t.Destination)
	t.Layout.Settle = cmp.Or(outbox.SettleMode(c.Settle.Of(t.Name())), t.Layout.Settle)
	t.MaxAttempts = cmp.Or(c.MaxAttempts, t.MaxAttempts)
	t.BackoffBase = cmp.Or(c.BackoffBase, t.BackoffBase)
	return t
}

// Tables returns the tables for the relay to serve: those of --table, or all known ones.
func (c Config) Tables() ([]Table, error) {
	var problems Error
	known := c.Known()
	served := slices.DeleteFunc(slices.Clone(known), func(t Table) bool { return c.noSink(t) != nil })
	if len(c.Table) > 0 {
		served = nil
	}
	for _, name := range c.Table {
		t, ok := find(known, name)
		if _, twice := find(served, name); !ok {
			problems.add("%s", unknownTable("table", name, known))
		} else if !twice {
			t.Required = true
			served = append(served, t)
		}
	}
	for i := range served {
		served[i] = c.served(served[i])
	}
	return served, problems.orNil()
}

// checkTables reports names of tables that nobody knows.
func (c *Config) checkTables(problems *Error) {
	var unknown *Error
	if _, err := c.Tables(); errors.As(err, &unknown) {
		problems.Problems = append(problems.Problems, unknown.Problems...)
	}
	c.checkTablesOf(problems, "destination", c.Destination.Single)
}

// checkTablesOf reports what a setting says of tables that nobody knows.
func (c *Config) checkTablesOf(problems *Error, setting string, named map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(named)) {
		if _, ok := find(c.Known(), name); !ok && (name != Letters || setting != "retention") {
			problems.add("%s", unknownTable(setting, name, c.Known()))
		}
	}
}

// noSink says why a log is left out where no tables are named: settings from before there were logs
// go on as they are.
func (c Config) noSink(t Table) error {
	if t.Layout.KeepsState() {
		return nil // which is a problem of the settings (checkSinks)
	}
	_, err := c.sinkOf(t.Name())
	return err
}

// Unserved says which table relays leave out, should the database have it, and what to set; "" if
// there is none.
func (c Config) Unserved(needs Need) string {
	if c.withParts(needs)&Serving == 0 || len(c.Table) > 0 {
		return ""
	}
	for _, t := range c.Known() {
		if err := c.noSink(t); err != nil {
			return fmt.Sprintf("no relay serves %s, should the database have it: %v; a log that only groups and "+
				"subscriptions read needs none, and a relay would send its events to a sink", t.Name(), err)
		}
	}
	return ""
}

func (c Config) checkSettle(problems *Error) {
	c.checkTablesOf(problems, "settle", c.Settle.Single)
	for _, name := range slices.Sorted(maps.Keys(c.Settle.Single)) {
		if t, ok := find(c.Known(), name); ok && !t.Layout.KeepsState() {
			problems.add("settle: %s is a log, whose rows stay until their part is truncated: "+
				"leave it out", name)
		}
		switch mode := outbox.SettleMode(c.Settle.Single[name]); mode {
		case outbox.SettleMark, outbox.SettleDelete, outbox.SettleArchive:
		case "":
			problems.add("settle: %s: no mode is given: %s", name, give("settle"))
		default:
			problems.add("settle: %s: %q is no settle mode: it is %s, %s or %s: %s", name, string(mode), outbox.SettleMark,
				outbox.SettleDelete, outbox.SettleArchive, give("settle"))
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

// readLists reads the entries of all lists. Layouts may be in files of their own, whose names flags
// and the list have.
func (c *Config) readLists(lists map[string][]*yaml.Node) {
	problems := &c.found.problems
	layouts := append(scalars(c.written.layouts), lists["layouts"]...)
	for i, n := range layouts {
		if n.Kind != yaml.ScalarNode {
			c.readLayout("layouts in the config file", i, n)
			continue
		}
		entries, err := readLayouts(n.Value)
		if err != nil {
			problems.add("layout file %v", err)
		}
		for i, entry := range entries {
			c.readLayout("layout file "+n.Value, i, entry)
		}
	}
	for i, n := range append(scalars(c.written.routes), lists["routes"]...) {
		c.readRoute(i, n)
	}
	for i, n := range lists["limits"] {
		e, at := limitEntry{}, fmt.Sprintf("limits, entry %d", i+1)
		if problems.fill(&e, n, &at, "") {
			c.limits = append(c.limits, e)
		}
	}
	for i, n := range lists["retry"] {
		e := retryEntry{at: fmt.Sprintf("retry, entry %d", i+1)}
		if problems.fill(&e, n, &e.at, "destination") {
			c.retry = append(c.retry, e)
		}
	}
}

// scalars are texts as a file would have them.
func scalars(texts []string) (nodes []*yaml.Node) {
	for _, text := range texts {
		nodes = append(nodes, &yaml.Node{Kind: yaml.ScalarNode, Value: text})
	}
	return nodes
}

// readLayouts reads a file of layouts: a YAML list, alone or under the key layouts as in the file
// of --config.
func readLayouts(path string) ([]*yaml.Node, error) {
	top, err := readYAML(path)
	if err != nil {
		return nil, fmt.Errorf("%w: correct --layouts or OUTBOX_LAYOUTS", err)
	}
	if top != nil && top.Kind == yaml.MappingNode {
		if i := slices.IndexFunc(mapping(top), func(k pair) bool { return k.name == "layouts" }); i >= 0 {
			top = mapping(top)[i].value
		}
	}
	if top == nil || top.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%s: want a YAML list of tables, or one under the key layouts", path)
	}
	return top.Content, nil
}

// mappedTable is one entry of a list of layouts: outbox.Layout's keys, and what only the relay
// needs to know.
type mappedTable struct {
	outbox.Layout
	Like        string `yaml:"like"`         // start from the layout of this table of ours; other keys change it
	Destination string `yaml:"destination"`  // template ({topic})
	MaxAttempts int    `yaml:"max_attempts"` // 0: the relay's default
}

// readLayout reads an entry of the list where.
func (c *Config) readLayout(where string, i int, n *yaml.Node) {
	problems, at := &c.found.problems, fmt.Sprintf("%s, entry %d", where, i+1)
	var m mappedTable
	if !problems.fill(&m, n, &at, "table") {
		return
	}
	t := Table{Required: true}
	if m.Like != "" {
		base, ok := find(builtin(), m.Like)
		if !ok {
			problems.add("%s: like: there is no table %q: it is one of %s", at, m.Like, names(builtin()))
			return
		}
		t, m = base, mappedTable{Layout: base.Layout}
		t.Required = true
		problems.fill(&m, n, &at, "") // once more, over the base
	}
	if err := m.Validate(); err != nil {
		problems.add("%s: %v", where, err)
		return
	}
	if m.MaxAttempts < 0 {
		problems.add("%s: max_attempts is %d, must be positive", at, m.MaxAttempts)
	}
	t.Layout = m.Layout
	t.Destination = cmp.Or(m.Destination, t.Destination, "{topic}") // relay.Table's default
	t.MaxAttempts = cmp.Or(m.MaxAttempts, t.MaxAttempts)
	c.mapped = append(c.mapped, t)
}

// EnvelopeOf returns what the messages of a table are.
func (c Config) EnvelopeOf(table string) outbox.Envelope {
	if c.Envelope.Of(table) == "payload" {
		return outbox.PayloadOnly
	}
	return outbox.CloudEvent
}

// Letters is the table of dead letters, which retention looks after too. It has no layout.
const Letters = "job_dlq"

// RetentionOf returns how old a table's rows become, 0 for any age, and where they go. The seeds'
// purge functions delete; what they purge is not archived.
func (c Config) RetentionOf(table string) (age time.Duration, archive retention.Archive) {
	age, _ = time.ParseDuration(c.Retention.Of(table)) // Check has found it right
	switch table {
	case Letters, outbox.EventOutbox().Table, outbox.DeliveriesOf("", "").Table, outbox.OutboxLog().Table:
		return age, retention.Archive{None: true}
	}
	archive, _ = retention.ParseArchive(c.Archive)
	return age, archive
}

// retryEntry is one entry of the list retry in the file of --config. What an entry leaves out is
// the table's.
type retryEntry struct {
	Destination   string        `yaml:"destination"` // a name or a pattern
	Table         string        `yaml:"table"`       // "": all
	MaxAttempts   int           `yaml:"max_attempts"`
	BackoffBase   time.Duration `yaml:"backoff_base"`
	BackoffFactor float64       `yaml:"backoff_factor"`
	BackoffCap    time.Duration `yaml:"backoff_cap"`

	at string
}

func (c *Config) checkRetry(problems *Error) {
	for _, e := range c.retry {
		if _, err := path.Match(e.Destination, ""); err != nil || e.Destination == "" {
			problems.add("%s: want a destination, or a pattern such as orders.*", e.at)
		}
		if e.Table != "" {
			c.checkTablesOf(problems, e.at+": table", map[string]string{e.Table: ""})
		}
		if e.MaxAttempts < 0 {
			problems.add("%s: max_attempts is %d, must be 1 or more", e.at, e.MaxAttempts)
		}
		if e.BackoffBase < 0 || e.BackoffCap < 0 {
			problems.add("%s: backoff_base and backoff_cap must be positive", e.at)
		}
		if e.BackoffFactor != 0 && e.BackoffFactor < 1 {
			problems.add("%s: backoff_factor is %g, must be 1 or more", e.at, e.BackoffFactor)
		}
	}
}

// Policies returns the exceptions for destinations of a table. Check has found them right.
func (c Config) Policies(table string) (policies []relay.RetryPolicy) {
	for _, e := range c.retry {
		if e.Table == "" || e.Table == table {
			policies = append(policies, relay.RetryPolicy{
				Destination: e.Destination, MaxAttempts: e.MaxAttempts,
				Backoff: relay.Backoff{Base: e.BackoffBase, Factor: e.BackoffFactor, Cap: e.BackoffCap},
			})
		}
	}
	return policies
}
