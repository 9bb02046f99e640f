package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// knownSink refuses a name that is no sink of the settings, and of which the database has neither deliveries nor
// pauses: it is misspelt, or of other settings than those of the relay.
func knownSink(ctx context.Context, c config.Config, db app.Database, of looked) error {
	var names []string
	for _, s := range c.AllSinks() {
		names = append(names, s.Name)
	}
	if slices.Contains(names, of.sink) {
		return nil
	}
	if owed, err := hasDeliveries(ctx, c, db, of); err != nil || owed {
		return err
	}
	debts, err := db.Debts(ctx)
	if err != nil {
		return err
	}
	for _, d := range debts {
		names = append(names, d.Sink)
	}
	pauses, err := allPauses(ctx, db)
	if err != nil {
		return err
	}
	for _, p := range pauses {
		if p.To != "" {
			names = append(names, p.To)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if slices.Contains(names, of.sink) {
		return nil
	}
	known := "neither these settings nor the database name any"
	if len(names) > 0 {
		known = "these settings and the database know " + strings.Join(names, ", ")
	}
	return usagef("--to %s: there is no such sink: %s. If the relay has one of that name, give --config with the relay's "+
		"settings, or --sink NAME=URL", oneLine(of.sink), known)
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
	all := c.AllSinks()
	alone := of.sink == config.DefaultSink && len(all) == 1 && all[0].Name == of.sink
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
		return usagef("--to %s: %s has no routes in these settings, so no sink owes its events: give --table alone, to "+
			"pause all of it, or --config with the relay's settings", of.sink, of.table)
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

func allPauses(ctx context.Context, db app.Database) ([]operate.Pause, error) {
	p, err := db.Pauses(ctx)
	if err != nil {
		return nil, err
	}
	return p.Pauses(ctx)
}
