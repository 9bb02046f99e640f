package condition

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// owedToNobody compares what is owed with the sinks of the settings.
func owedToNobody(ctx context.Context, x *Examination) (found []Finding, err error) {
	sinks := x.Config.AllSinks()
	if len(sinks) == 0 {
		return nil, errNothing // settings of no relay
	}
	all, err := x.DB.Debts(ctx)
	for _, d := range all {
		if d.Owed > 0 && !slices.ContainsFunc(sinks, func(s config.Sink) bool { return s.Name == d.Sink }) {
			found = append(found, at(d.Sink, "%s is owed %s of %s, and these settings have no such sink", d.Sink,
				many(d.Owed, "event"), d.Table)...)
		}
	}
	return found, err
}

// canary looks whether the canary has arrived: its row is delivered, or gone, and no sink owes it.
func canary(ctx context.Context, x *Examination) ([]Finding, error) {
	if x.Canary == (Canary{}) {
		return nil, errNothing
	}
	all, err := x.tables(false)
	for i := range all {
		t := &all[i]
		if t.Name() != x.Canary.Table {
			continue
		}
		b, err := x.DB.Browser(ctx, t.Layout)
		if err != nil {
			return nil, err
		}
		e, err := b.Show(ctx, x.Canary.ID.String(), "")
		switch {
		case errors.Is(err, operate.ErrNoEvent):
			return nil, nil // settled, in a table that keeps nothing
		case err != nil:
			return nil, err
		case e.Undelivered(t.Layout) || e.DeliveredAt == nil && e.Status != operate.StatusGone:
			return lost(x, fmt.Sprintf("is %s in %s", e.Status, t.Name())), nil
		}
		for _, d := range e.Deliveries {
			if d.Status != "delivered" {
				return lost(x, fmt.Sprintf("was not taken by %s", d.Sink)), nil
			}
		}
		return nil, nil
	}
	return nil, err
}

func lost(x *Examination, how string) []Finding {
	return []Finding{{About: x.Canary.Table, Says: fmt.Sprintf("the canary, event %s, %s", x.Canary.ID, how),
		Remedy: "outbox why " + x.Canary.ID.String()}}
}
