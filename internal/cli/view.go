package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pause"
)

// deliveries is the table of what sinks did not take at once.
var deliveries = outbox.DeliveriesOf("", "").Table

// looked is what a command looks into: a table, or what one of its sinks has not taken.
type looked struct{ table, sink string }

// String is what messages call it.
func (l looked) String() string {
	if l.sink == "" {
		return l.table
	}
	return l.table + " to " + l.sink
}

// find returns what the settings say of it.
func (l looked) find(c config.Config) (config.Table, error) {
	if l.table == deliveries {
		return config.Table{}, usagef("--table %s: name the events' table and the sink, as "+
			"--table outbox_events --to NAME; outbox sinks lists them", deliveries)
	}
	t, err := c.Find(l.table)
	if err == nil && l.sink != "" {
		t.Layout = outbox.DeliveriesOf(t.Layout.Table, l.sink)
	}
	return t, err
}

// view is an open table that people look into, or what one of its sinks owes.
type view struct {
	*operate.Browser
	c     config.Config
	db    app.Database
	of    looked
	table config.Table
}

// browse opens a table for people and runs fn. alsoNamed are flags of cmd that take no pattern here.
func (a *application) browse(
	cmd *cobra.Command, of looked, mapping *pflag.FlagSet, fn func(view) error, alsoNamed ...string,
) error {
	if err := checkFilters(cmd.Flags(), alsoNamed...); err != nil {
		return err
	}
	c, err := a.settings(config.Database, mapping)
	if err != nil {
		return err
	}
	table, err := of.find(c)
	if err != nil {
		return err
	}
	return withDatabase(cmd.Context(), c, func(db app.Database) error {
		v := view{c: c, db: db, of: of, table: table}
		if v.Browser, err = db.Browser(cmd.Context(), table.Layout); err != nil {
			return err
		}
		if of.sink != "" {
			if err := knownSink(cmd.Context(), c, db, of); err != nil {
				return err
			}
		}
		err := fn(v)
		switch {
		case errors.Is(err, outbox.ErrRowsHidden):
			return usagef("%w: name it with --tenant", err)
		case errors.Is(err, operate.ErrFilter):
			return usageError{err}
		}
		return err
	})
}

// markPaused marks the undelivered rows that wait for a pause to end.
func (v view) markPaused(ctx context.Context, rows []operate.EventRow) error {
	template, err := outbox.ParseTemplate(v.table.Destination)
	if err != nil {
		return err
	}
	paused, err := holding(ctx, v.db, v.of)
	for i := range rows {
		r := &rows[i]
		r.Paused = r.Undelivered(v.table.Layout) && paused.Holds(r.Topic, r.GoesTo(v.table.Layout, template))
	}
	return err
}

// markDeliveriesPaused marks what sinks owe of an event and waits for a pause to end.
func (v view) markDeliveriesPaused(ctx context.Context, e operate.EventDetail) error {
	for i := range e.Deliveries {
		d := &e.Deliveries[i]
		if d.Status != "pending" {
			continue
		}
		paused, err := holding(ctx, v.db, looked{v.of.table, d.Sink})
		if err != nil {
			return err
		}
		d.Paused = paused.Holds(e.Topic, []string{d.Destination})
	}
	return nil
}

// holding returns what is paused of a table, or of what one of its sinks owes. A database that has no pauses yet, and a
// role that may not see them, has none to show.
func holding(ctx context.Context, db app.Database, of looked) (paused outbox.Paused, err error) {
	p, err := db.Pauses(ctx)
	if _, old := errors.AsType[*outbox.SchemaError](err); old {
		return paused, nil
	}
	if err != nil {
		return paused, err
	}
	all, err := p.Pauses(ctx)
	if err != nil {
		return paused, nil //nolint:nilerr // a reader of one table need not have rights on this one
	}
	for _, p := range all {
		if (p.Table == "" || sameTable(p.Table, of.table)) && (p.To == "" || p.To == of.sink) {
			pause.Add(&paused, p.Topic, p.Destination)
		}
	}
	return paused, nil
}

// sameTable tells whether two names may be one table's: pauses have its schema only where that is not the relays' own.
func sameTable(a, b string) bool {
	return a == b || strings.HasSuffix(a, "."+b) || strings.HasSuffix(b, "."+a)
}

func allPauses(ctx context.Context, db app.Database) ([]operate.Pause, error) {
	p, err := db.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	return p.Pauses(ctx)
}

// hasSink tells whether the settings have a sink of that name.
func hasSink(c config.Config, name string) bool {
	return slices.ContainsFunc(c.AllSinks(), func(s config.Sink) bool { return s.Name == name })
}

// knownSink refuses a name that is no sink of the settings, and of which the database has neither deliveries nor
// pauses: it is misspelt, or of other settings than those of the relay.
func knownSink(ctx context.Context, c config.Config, db app.Database, of looked) error {
	if hasSink(c, of.sink) {
		return nil
	}
	if owed, err := hasDeliveries(ctx, c, db, of); err != nil || owed {
		return err
	}
	debts, err := db.Debts(ctx)
	if err != nil {
		return err
	}
	pauses, err := allPauses(ctx, db)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range c.AllSinks() {
		names = append(names, s.Name)
	}
	for _, d := range debts {
		names = append(names, d.Sink)
	}
	for _, p := range pauses {
		names = append(names, p.To)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	if slices.Contains(names, of.sink) {
		return nil
	}
	known := "neither these settings nor the database name any"
	if len(names) > 0 {
		known = "these settings and the database know " + strings.Join(names, ", ")
	}
	return usagef("--to %s: there is no such sink: %s. If the relay has one of that name, give "+
		"--config with the relay's settings, or --sink NAME=URL", oneLine(of.sink), known)
}

// pausableSink refuses what knownSink does, and a sink to which no route of a table leads: nothing would be paused.
// Settings without routes may be others than the relay's, unless all they have is the default sink.
func pausableSink(ctx context.Context, c config.Config, db app.Database, of looked) error {
	routed := c.SinksOwing(of.table)
	if slices.Contains(routed, of.sink) {
		return nil
	}
	if err := knownSink(ctx, c, db, of); err != nil {
		return err
	}
	alone := of.sink == config.DefaultSink && len(c.AllSinks()) == 1 && hasSink(c, of.sink)
	if len(c.Routes) == 0 && !alone {
		return nil
	}
	if owed, err := hasDeliveries(ctx, c, db, of); err != nil || owed {
		return err
	}
	pauses, err := allPauses(ctx, db)
	if err != nil || slices.ContainsFunc(pauses, func(p operate.Pause) bool {
		return sameTable(p.Table, of.table) && p.To == of.sink
	}) {
		return err
	}
	if len(routed) == 0 {
		return usagef("--to %s: %s has no routes in these settings, so no sink owes its events: "+
			"give --table alone, to pause all of it, or --config with the relay's settings", of.sink, of.table)
	}
	return usagef("--to %s: no route of these settings leads from %s there, but to %s: give one of them, or --config "+
		"with the relay's settings", of.sink, of.table, strings.Join(routed, ", "))
}

// hasDeliveries tells whether the database has deliveries of a table to one of its sinks, in whatever state.
func hasDeliveries(ctx context.Context, c config.Config, db app.Database, of looked) (bool, error) {
	t, err := of.find(c)
	if err != nil {
		return false, err
	}
	b, err := db.Browser(ctx, t.Layout)
	if err != nil {
		return false, err
	}
	for _, statuses := range [][]string{{t.Layout.Pending}, nil} { // the former has an index
		rows, _, err := b.List(ctx, operate.Filter{Statuses: statuses, Limit: 1})
		if err != nil || len(rows) > 0 {
			return len(rows) > 0, err
		}
	}
	return false, nil
}

// troublesOf returns what hinders the relays of a table, or all relays. Who may not see the relays, or has an older
// database, has none to show.
func troublesOf(ctx context.Context, db app.Database, table string) []operate.Trouble {
	all, err := db.Troubles(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(t operate.Trouble) bool { return table != "" && !t.Concerns(table) })
}

// printTroubles says what is wrong before anything else is shown: a reason is one line, whoever has it.
func (a *application) printTroubles(form string, all []operate.Trouble) {
	to := a.Out
	if form == "json" {
		to = a.Err
	}
	var reasons []string
	first, relays := map[string]operate.Trouble{}, map[string][]string{}
	for _, t := range all {
		for _, r := range t.Reasons() {
			if seen, ok := first[r]; !ok {
				reasons, first[r] = append(reasons, r), t
			} else if t.Since != nil && seen.Since != nil && t.Since.Before(*seen.Since) {
				first[r] = t
			}
			if t.Relay != "" && !slices.Contains(relays[r], t.Relay) {
				relays[r] = append(relays[r], t.Relay)
			}
		}
	}
	for _, r := range reasons {
		line := "NOT READY: " + oneLine(r)
		if len(relays[r]) > 0 {
			line += fmt.Sprintf(" (relay %s, since %s)", strings.Join(relays[r], ", "), text(first[r].Since))
		}
		fmt.Fprintln(to, line)
	}
}
