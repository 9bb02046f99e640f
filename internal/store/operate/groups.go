package operate

import (
	"context"
	"errors"
	"fmt"
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
	State    string     `json:"state"`
	LastSeen *time.Time `json:"lastSeen,omitempty"` // the last sign of life of any of its processes
	// Processes are alive; each is listed with its last renewal.
	Processes []RelayView `json:"processes"`
	Held      int         `json:"lanesHeld"`
	Lapsed    int         `json:"lanesLapsed"`
	// Waiting is how many events it has still to handle, failed ones included. If Bounded, counting
	// stopped there. Events that were committed late, behind the position of a log, are not
	// counted. Hidden says that this role or these settings do not show them.
	Waiting int      `json:"waiting"`
	Bounded bool     `json:"bounded,omitempty"`
	Hidden  bool     `json:"hidden,omitempty"`
	Oldest  *float64 `json:"oldestSeconds,omitempty"`
	// Failed is how many events have failed, or wait behind one that has. FailedHidden says that
	// this role may not see the failed events of a log.
	Failed       int        `json:"failed"`
	FailedHidden bool       `json:"failedHidden,omitempty"`
	Pauses       []Pause    `json:"pauses"`            // that concern it
	Blocked      []EventRow `json:"blocked,omitempty"` // of Database.Group: the events that its keys wait for

	leased string         // as in outbox_lanes
	layout *outbox.Layout // nil: the settings have none
}

// Leased is the name by which processes of the group lease lanes and look for their pauses.
func (g Group) Leased() string { return g.leased }

// blockedShown is how many blocked keys a group is shown with.
const blockedShown = 20

// Groups returns the groups of a database, whose tables have these layouts. Without a limit they
// have no more than their names, and when they were last seen; else events are counted up to it.
func (d Database) Groups(ctx context.Context, layouts []outbox.Layout, limit int) (all []Group, err error) {
	asked := struct{ Logs []string }{}
	of := map[string]outbox.Layout{}
	for _, l := range layouts {
		leased, err := d.db.Leased(ctx, l.Table)
		if err != nil {
			return nil, err
		}
		of[leased] = l
		_, missing := errors.AsType[*outbox.SchemaError](d.db.Check(ctx, l.Table, nil))
		if !l.KeepsState() && !missing {
			asked.Logs = append(asked.Logs, leased)
		}
	}
	err = cold.Ask(ctx, d.db, "groups", asked, func(rows cold.Rows) error {
		g := Group{Processes: []RelayView{}, Pauses: []Pause{}}
		var seen sqltable.Text
		err := rows.Scan(&g.leased, &g.Table, &g.Name, &seen)
		if g.LastSeen = seen.Moment(); g.LastSeen == nil {
			g.State = "new"
		}
		if l, ok := of[g.Table]; ok {
			g.Table, g.layout = l.Table, &l
		}
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
func (d Database) fill(ctx context.Context, g *Group, limit int) error {
	b := &Browser{db: d.db, layout: outbox.Layout{Table: g.Table}, leased: g.leased, hidden: true}
	if g.layout != nil {
		of := *g.layout
		of.Reader = g.Name
		found, err := d.Browser(ctx, of)
		if err != nil {
			return err
		}
		b = found
	}
	report, err := b.Lanes(ctx, limit)
	if err != nil {
		return err
	}
	g.Hidden, g.Bounded, g.Pauses = report.Hidden, report.Bounded, report.Pauses
	for _, r := range report.Relays {
		if r.ExpiresIn > 0 {
			g.Processes = append(g.Processes, r)
		}
	}
	g.count(report)
	if b.layout.KeepsState() {
		for _, l := range report.Lanes {
			g.Failed += l.Retrying + l.Held
		}
	} else if err := d.failed(ctx, g, limit); err != nil {
		return err
	}
	switch {
	case len(g.Processes) > 0:
		g.State = "alive"
	case g.Lapsed > 0:
		g.State = "dead"
	case g.State == "":
		g.State = "stopped"
	}
	return nil
}

// count adds the lanes of a report.
func (g *Group) count(report LaneReport) {
	for _, l := range report.Lanes {
		switch l.State {
		case "held":
			g.Held++
		case "lapsed":
			g.Lapsed++
		}
		if g.Waiting += l.Backlog; l.Oldest != nil && (g.Oldest == nil || *l.Oldest > *g.Oldest) {
			g.Oldest = l.Oldest
		}
	}
}

// failed adds the failed events of a group of a log, which are in outbox_deliveries.
func (d Database) failed(ctx context.Context, g *Group, limit int) error {
	_, allowed, err := Seen(ctx, cold.In(d.db, d.db.Alone()), "outbox_deliveries")
	if g.FailedHidden = !allowed; err != nil || !allowed {
		return err
	}
	b, err := d.Browser(ctx, outbox.DeliveriesOf(g.leased, g.Name))
	if err != nil {
		return err
	}
	report, err := b.Lanes(ctx, limit)
	if err != nil {
		return err
	}
	held, lapsed := g.Held, g.Lapsed
	g.count(report)
	g.Held, g.Lapsed = held, lapsed
	g.Failed, g.Bounded = report.Counted, g.Bounded || report.Bounded
	return nil
}

// Blocked adds to a group the events that its keys wait for, each with its error: the oldest.
func (d Database) Blocked(ctx context.Context, g *Group) error {
	if g.layout == nil || g.Failed == 0 {
		return nil
	}
	of := *g.layout
	if !of.KeepsState() {
		of = outbox.DeliveriesOf(g.leased, g.Name)
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
		return fmt.Errorf("read blocked keys of %s: %w", g.leased, err)
	}
	return nil
}
