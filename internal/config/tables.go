package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
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
	if !t.Layout.IsLog() {
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
		if t, ok := find(c.Known(), name); ok && t.Layout.IsLog() {
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
