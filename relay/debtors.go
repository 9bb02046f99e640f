package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// What a sink owes is served by whoever serves the sink, whatever its routes say now: rows that
// were copied into outbox_deliveries under other routes are still that sink's to deliver. So a
// relay opens, beside what its tables need, each part of outbox_deliveries that a sink of its own
// owes, and looks for more once a minute. What nobody serves it tells.

const debtorsEvery = time.Minute

// openDebts opens what the relay's sinks owe and none of its tables has opened.
func (r *Relay) openDebts(ctx context.Context, opened *serving, debtors []outbox.Debtor) error {
	for _, d := range debtors {
		if !r.hasSink(d) || opened.serves(d) {
			continue
		}
		if _, err := r.openOwed(ctx, opened, Table{}, d.Table, d.Sink); err != nil {
			return err
		}
	}
	return nil
}

// hasSink tells whether a debt is one of this relay's sinks. Groups and sinks may have the same
// names: a relay delivers nothing of a group's, and a group nothing of a sink's.
func (r *Relay) hasSink(d outbox.Debtor) bool {
	group := slices.ContainsFunc(r.tables, func(t Table) bool { return t.Layout.Reader != "" })
	return r.sinks[d.Sink] != nil && !group && !d.OfGroup()
}

// serves tells whether the part of outbox_deliveries that a debt is in is open.
func (s *serving) serves(d outbox.Debtor) bool {
	name := outbox.DeliveriesOf(d.Table, d.Sink).Name()
	return slices.ContainsFunc(s.tables, func(t *tableRelay) bool { return t.cfg.name() == name })
}

// indebted tells whether a sink owes something of a table.
func indebted(debtors []outbox.Debtor, table, sink string) bool {
	return slices.ContainsFunc(debtors, func(d outbox.Debtor) bool { return d.Table == table && d.Sink == sink })
}

// watchDebts looks for debts once a minute until ctx ends, and tells of those that nobody serves.
// It calls reopen for one that the relay could serve and has not opened.
func (r *Relay) watchDebts(ctx context.Context, opened *serving, reopen func()) error {
	tick := time.NewTicker(debtorsEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, r.cfg.DatabaseTimeout)
		debtors, err := r.db.Debtors(limited)
		cancel()
		var unserved []outbox.Debtor
		var names []string
		for _, d := range debtors {
			switch {
			case opened.serves(d):
			case r.hasSink(d):
				r.cfg.Logger.Info("opening the tables again, for what a sink owes", "table", d.Table, "sink", d.Sink)
				reopen()
				return nil
			case !d.Served && !d.OfGroup():
				unserved, names = append(unserved, d), append(names, fmt.Sprintf("%s of %s", d.Sink, d.Table))
			}
		}
		if err == nil {
			r.mu.Lock()
			r.unserved = unserved
			r.mu.Unlock()
		}
		if len(unserved) > 0 {
			r.cfg.Logger.Warn("events are owed to sinks that no relay serves: give a relay a sink of that name, or see "+
				"outbox sinks --help", "sinks", strings.Join(names, ", "))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return nil
}
