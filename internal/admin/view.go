package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pause"
)

// Deliveries is the table of what sinks did not take at once.
var Deliveries = outbox.DeliveriesOf("", "").Table

// Of is what a command looks into: a table, or what one of its sinks has not taken.
type Of struct{ Table, Sink string }

// String is what messages call it.
func (l Of) String() string {
	if l.Sink == "" {
		return l.Table
	}
	return l.Table + " to " + l.Sink
}

// find returns what the settings say of it.
func (l Of) Find(c config.Config) (config.Table, error) {
	if l.Table == Deliveries {
		return config.Table{}, refusef("--table %s: name the events' table and the sink, as "+
			"--table outbox_events --sink NAME; outbox sinks lists them", Deliveries)
	}
	if name, group, ok := strings.Cut(l.Table, "/"); ok && l.Sink == "" {
		if t, err := c.Find(name); err == nil && !t.Layout.KeepsState() { // what the group has failed to handle
			t.Layout = outbox.DeliveriesOf(l.Table, group)
			return t, nil
		}
	}
	t, err := c.Find(l.Table)
	if err == nil && l.Sink != "" {
		t.Layout = outbox.DeliveriesOf(t.Layout.Table, l.Sink)
	}
	return t, err
}

// View is an open table that people look into, or what one of its sinks owes.
type View struct {
	*operate.Browser
	Of    Of
	Table config.Table

	db Database
}

// Letters opens the dead letters. Those of the tables that the settings know can be put back.
func Letters(ctx context.Context, c config.Config, db Database) (deadletter.Store, error) {
	var layouts []outbox.Layout
	for _, t := range c.Known() {
		layouts = append(layouts, t.Layout)
	}
	return db.Letters(ctx, layouts)
}

// Open opens what an operator looks into.
func Open(ctx context.Context, c config.Config, db Database, of Of) (v View, err error) {
	v = View{Of: of, db: db}
	if v.Table, err = of.Find(c); err != nil {
		return v, err
	}
	if v.Browser, err = db.Browser(ctx, v.Table.Layout); err != nil {
		return v, err
	}
	if of.Sink != "" {
		err = KnownSink(ctx, c, db, of)
	}
	return v, err
}

// MarkPaused marks the undelivered rows that wait for a pause to end.
func (v View) MarkPaused(ctx context.Context, rows []operate.EventRow) error {
	template, err := outbox.ParseTemplate(v.Table.Destination)
	if err != nil {
		return err
	}
	paused, err := holding(ctx, v.db, v.Of)
	for i := range rows {
		r := &rows[i]
		r.Paused = r.Undelivered(v.Table.Layout) && paused.Holds(r.Topic, r.GoesTo(v.Table.Layout, template))
	}
	return err
}

// MarkDeliveriesPaused marks what sinks owe of an event and waits for a pause to end.
func (v View) MarkDeliveriesPaused(ctx context.Context, e operate.EventDetail) error {
	for i := range e.Deliveries {
		d := &e.Deliveries[i]
		if d.Status != "pending" {
			continue
		}
		paused, err := holding(ctx, v.db, Of{v.Of.Table, d.Sink})
		if err != nil {
			return err
		}
		d.Paused = paused.Holds(e.Topic, []string{d.Destination})
	}
	return nil
}

// holding returns what is paused of a table, or of what one of its sinks owes. A database that has
// no pauses yet, and a role that may not see them, has none to show.
func holding(ctx context.Context, db Database, of Of) (paused outbox.Paused, err error) {
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
		if (p.Table == "" || SameTable(p.Table, of.Table)) && (p.To == "" || p.To == of.Sink) {
			pause.Add(&paused, p.Topic, p.Destination)
		}
	}
	return paused, nil
}

// SameTable tells whether two names may be one table's: pauses have its schema only where that is
// not the relays' own.
func SameTable(a, b string) bool {
	return a == b || strings.HasSuffix(a, "."+b) || strings.HasSuffix(b, "."+a)
}

func AllPauses(ctx context.Context, db Database) ([]operate.Pause, error) {
	p, err := db.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	return p.Pauses(ctx)
}

// HasSink tells whether the settings have a sink of that name.
func HasSink(c config.Config, name string) bool {
	return slices.ContainsFunc(c.AllSinks(), func(s config.Sink) bool { return s.Name == name })
}

// KnownSink refuses a name that is no sink of the settings, and of which the database has neither
// deliveries nor pauses: it is misspelt, or of other settings than those of the relay.
func KnownSink(ctx context.Context, c config.Config, db Database, of Of) error {
	if HasSink(c, of.Sink) {
		return nil
	}
	if owed, err := hasDeliveries(ctx, c, db, of); err != nil || owed {
		return err
	}
	names, err := SinkNames(ctx, c, db)
	if err != nil || slices.Contains(names, of.Sink) {
		return err
	}
	known := "neither these settings nor the database name any"
	if len(names) > 0 {
		known = "these settings and the database know " + strings.Join(names, ", ")
	}
	return refusef("--sink %s: there is no such sink: %s. If the relay has one of that name, give "+
		"--config with the relay's settings, or OUTBOX_SINK", of.Sink, known)
}

// SinkNames returns the sinks of the settings, and those of which the database has deliveries or
// pauses. With an error it returns the names that are known without the part that failed.
func SinkNames(ctx context.Context, c config.Config, db Database) (names []string, err error) {
	for _, s := range c.AllSinks() {
		names = append(names, s.Name)
	}
	debts, err := db.Debts(ctx)
	for _, d := range debts {
		names = append(names, d.Sink)
	}
	pauses, failed := AllPauses(ctx, db)
	for _, p := range pauses {
		names = append(names, p.To)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
	return names, cmp.Or(err, failed)
}

// PausableSink refuses what KnownSink does, and a sink to which no route of a table leads: nothing
// would be paused. Settings without routes may be others than the relay's, unless all they have is
// the default sink.
func PausableSink(ctx context.Context, c config.Config, db Database, of Of) error {
	routed := c.SinksOwing(of.Table)
	if slices.Contains(routed, of.Sink) {
		return nil
	}
	if err := KnownSink(ctx, c, db, of); err != nil {
		return err
	}
	alone := of.Sink == config.DefaultSink && len(c.AllSinks()) == 1 && HasSink(c, of.Sink)
	if len(c.Routes) == 0 && !alone {
		return nil
	}
	if owed, err := hasDeliveries(ctx, c, db, of); err != nil || owed {
		return err
	}
	pauses, err := AllPauses(ctx, db)
	if err != nil || slices.ContainsFunc(pauses, func(p operate.Pause) bool {
		return SameTable(p.Table, of.Table) && p.To == of.Sink
	}) {
		return err
	}
	if len(routed) == 0 {
		return refusef("--sink %s: %s has no routes in these settings, so no sink owes its events: "+
			"give --table alone, to pause all of it, or --config with the relay's settings", of.Sink, of.Table)
	}
	return refusef("--sink %s: no route of these settings leads from %s there, but to %s: give one of them, or --config "+
		"with the relay's settings", of.Sink, of.Table, strings.Join(routed, ", "))
}

// hasDeliveries tells whether the database has deliveries of a table to one of its sinks, in
// whatever state.
func hasDeliveries(ctx context.Context, c config.Config, db Database, of Of) (bool, error) {
	t, err := of.Find(c)
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

// TroublesOf returns what hinders the relays of a table, or all relays. Who may not see the relays,
// or has an older database, has none to show.
func TroublesOf(ctx context.Context, db Database, table string) []operate.Trouble {
	all, err := db.Troubles(ctx)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(t operate.Trouble) bool { return table != "" && !t.Concerns(table) })
}
