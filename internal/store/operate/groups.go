package operate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Group is a consumer group of a log, or the group that is the recorded reader of another table. It
// exists once a process of it has leased lanes or has noted where it begins.
type Group struct {
	Table string `json:"table"` // whose events it handles
	Name  string `json:"group"`
	// State is alive, dead if its lanes have lapsed, stopped if its processes have handed them
	// over, or new if no process has had a lane.
	State     string      `json:"state"`
	LastSeen  *time.Time  `json:"lastSeen,omitempty"` // the last sign of life of any of its processes
	Processes []RelayView `json:"processes"`          // that are alive
	Held      int         `json:"lanesHeld"`
	Lapsed    int         `json:"lanesLapsed"`
	// Waiting is how many events it has still to handle, failed ones included. If Bounded, counting
	// stopped before. Events of a log that were committed behind its position are not counted.
	Waiting int      `json:"waiting"`
	Bounded bool     `json:"bounded,omitempty"`
	Oldest  *float64 `json:"oldestSeconds,omitempty"`
	Failed  int      `json:"failed"` // of Waiting, those that have failed, or wait behind one that has
	// Hidden says that this role or these settings do not show all of its events.
	Hidden  bool       `json:"hidden,omitempty"`
	Pauses  []Pause    `json:"pauses"`            // that concern it
	Blocked []EventRow `json:"blocked,omitempty"` // by Database.Blocked

	// Leased is the name by which its processes lease lanes and look for their pauses.
	Leased string `json:"-"`
	layout outbox.Layout
}

// blockedShown is how many blocked keys a group is shown with.
const blockedShown = 20

// Groups returns the groups of a database, whose tables have these layouts. Events are counted up
// to a limit; with 0 groups have no more than their names.
func (d Database) Groups(ctx context.Context, layouts []outbox.Layout, limit int) (all []Group, err error) {
	asked := struct{ Logs []string }{}
	of := map[string]outbox.Layout{}
	for _, l := range layouts {
		leased, err := d.db.Leased(ctx, l.Table)
		if err != nil {
			return nil, err
		}
		of[leased] = l
		if !l.KeepsState() && d.db.Check(ctx, l.Table, nil) == nil {
			asked.Logs = append(asked.Logs, leased)
		}
	}
	err = cold.Ask(ctx, d.db, "groups", asked, func(rows cold.Rows) error {
		var g Group
		var seen sqltable.Text
		err := rows.Scan(&g.Leased, &g.Table, &g.Name, &seen)
		g.LastSeen, g.layout = seen.Moment(), of[g.Table]
		g.Table = cmp.Or(g.layout.Table, g.Table)
		all = append(all, g)
		return err
	})
	for i := range all {
		if err == nil && limit > 0 {
			err = d.fill(ctx, &all[i], limit)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("read consumer groups: %w", err)
	}
	return all, nil
}

// fill reads who serves a group, and what it has still to do.
func (d Database) fill(ctx context.Context, g *Group, limit int) (err error) {
	b := &Browser{db: d.db, layout: outbox.Layout{Table: g.Table}, leased: g.Leased, hidden: true} // of other settings
	if g.layout.Table != "" {
		of := g.layout
		of.Reader = g.Name
		if b, err = d.Browser(ctx, of); err != nil {
			return err
		}
	}
	report, err := b.Lanes(ctx, limit)
	if err != nil {
		return err
	}
	g.Hidden, g.Bounded, g.Pauses = report.Hidden, report.Bounded, report.Pauses
	g.Processes = slices.DeleteFunc(report.Relays, func(r RelayView) bool { return r.ExpiresIn <= 0 })
	states := map[string]int{}
	for _, l := range report.Lanes {
		states[l.State]++
		g.Waiting, g.Failed = g.Waiting+l.Backlog, g.Failed+l.Retrying+l.Held
		g.oldest(l.Oldest)
	}
	switch g.Held, g.Lapsed = states["held"], states["lapsed"]; {
	case len(g.Processes) > 0:
		g.State = "alive"
	case g.Lapsed > 0:
		g.State = "dead"
	case g.LastSeen != nil:
		g.State = "stopped"
	default:
		g.State = "new"
	}
	if b.layout.KeepsState() {
		return nil
	}
	_, allowed, err := Seen(ctx, cold.In(d.db, d.db.Alone()), "outbox_deliveries")
	if g.Hidden = !allowed; err != nil || !allowed {
		return err
	}
	debts, err := d.Debts(ctx)
	for _, debt := range debts {
		if debt.Table == g.Leased && debt.Sink == g.Name {
			g.Waiting, g.Failed = g.Waiting+debt.Owed, debt.Owed
			g.oldest(debt.Oldest)
		}
	}
	return err
}

func (g *Group) oldest(age *float64) {
	if age != nil && (g.Oldest == nil || *age > *g.Oldest) {
		g.Oldest = age
	}
}

// Blocked adds to a group the oldest events that its keys wait for, each with its error.
func (d Database) Blocked(ctx context.Context, g *Group) error {
	if g.Failed == 0 {
		return nil
	}
	of := g.layout
	if !of.KeepsState() {
		of = outbox.DeliveriesOf(g.Leased, g.Name)
	}
	b, err := d.Browser(ctx, of)
	if err != nil {
		return err
	}
	q := b.query()
	q.Limit = blockedShown
	err = cold.Ask(ctx, d.db, "groups_blocked", q, func(found cold.Rows) error {
		var r browsedRow
		err := found.Scan(r.columns()...)
		g.Blocked = append(g.Blocked, r.row())
		return err
	})
	if err != nil {
		return fmt.Errorf("read blocked keys of %s: %w", g.Leased, err)
	}
	return nil
}
