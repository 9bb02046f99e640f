package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Delivered chooses events that were delivered: those that match all of it.
type Delivered struct {
	Topic       string    `json:"topic,omitempty"` // a name, or a pattern in which * stands for any text
	Key         string    `json:"key,omitempty"`
	Tenant      string    `json:"tenant,omitempty"`
	Destination string    `json:"destination,omitempty"` // of events with several: it alone is served again
	Since       time.Time `json:"since,omitzero"`        // when they were delivered: inclusive
	Until       time.Time `json:"until,omitzero"`        // exclusive; zero, and what is to come: now
}

// Place is a delivered event, where it stands.
type Place struct {
	Position int64
	ID       uuid.UUID
	Archived bool // its row is in outbox_archive
}

// Replay is one replay of delivered events.
type Replay struct {
	Delivered
	Actor, Reason string
	Run           uuid.UUID // the same for all pages, for the record
}

// check reports what of the choice does not fit a layout, as an ErrFilter.
func (d Delivered) check(l outbox.Layout) error {
	switch {
	case l.DeliveredAt == "":
		return fmt.Errorf("%w in %s: its layout names no delivered_at, so nothing tells when an event was delivered",
			ErrFilter, l.Table)
	case l.Settle == outbox.SettleDelete:
		return fmt.Errorf("%w in %s: its settle mode is delete, so nothing is kept of what was delivered; "+
			"with archive, later events can be replayed", ErrFilter, l.Table)
	case d.Since.IsZero():
		return fmt.Errorf("%w in %s: say since when", ErrFilter, l.Table)
	case d.Destination != "" && (l.Destinations == "" || l.DeliveredTo == ""):
		return fmt.Errorf("%w in %s: its events have no destinations of their own, so all of them go where they went",
			ErrFilter, l.Table)
	}
	return nil
}

// Skip says who skips events, and why.
type Skip struct {
	Actor, Reason string
	Run           uuid.UUID // the same for all pages of one action, for the record
}

// Failure is what the letters of the skipped events say.
func (s Skip) Failure() outbox.Failure {
	said := errortext.Fit("skipped by " + s.Actor + ": " + s.Reason)
	return outbox.Failure{Reason: outbox.ReasonDeliveryFailed, Error: said}
}

// selected returns the query of a selection, which must not be None. A choice that does not fit the
// table is an ErrFilter.
func (b *Browser) selected(s Selection) (*query, error) {
	q, err := b.matching(s.Filter)
	if err == nil {
		q.S = s
	}
	return q, err
}

// RetryNow makes events due that wait for their next attempt, and says how many; the relay takes
// them at its next poll. What it did is recorded in outbox_audit, with who did it and why. A choice
// that does not fit the table is an ErrFilter. The role needs UPDATE on the time of the next
// attempt, and INSERT on outbox_audit.
func (b *Browser) RetryNow(ctx context.Context, s Selection, actor, reason string) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	q, err := b.selected(s)
	if err != nil {
		return 0, err
	}
	err = b.in(ctx, cold.Write, s.Tenant, func(tx *cold.Tx) (err error) {
		n, err = tx.Change(ctx, "events_retry", q)
		if err != nil || n == 0 {
			return err
		}
		return tx.Record(ctx, cold.Action{Actor: actor, Action: "retry", Reason: reason, Rows: n, Filter: s,
			Detail: auditOf(b.layout)})
	})
	if err != nil {
		return 0, fmt.Errorf("retry events of %s: %w", b.layout.Name(), err)
	}
	return n, nil
}

// Undelivered counts the events that a selection takes, and says at which position the last of them
// stands.
func (b *Browser) Undelivered(ctx context.Context, s Selection) (n int, last int64, err error) {
	if s.None() {
		return 0, 0, nil
	}
	q, err := b.selected(s)
	if err != nil {
		return 0, 0, err
	}
	err = b.read(ctx, s.Tenant, func(tx *cold.Tx) error { return tx.One(ctx, "events_undelivered", q, &n, &last) })
	if err != nil {
		return 0, 0, fmt.Errorf("count undelivered events of %s: %w", b.layout.Name(), err)
	}
	return n, last, nil
}

// SkipPage makes undelivered events dead letters instead of delivering them, at most limit of a
// selection, the oldest first, and says how many; 0 means that none is left. Rows, letters and the
// record in outbox_audit are one transaction. A relay may be publishing such an event meanwhile. If
// its settle comes first, the event is delivered and has no letter; else it has a letter, and may
// have arrived as well. It is never without both. The role needs the rights of outbox_operator.
func (b *Browser) SkipPage(ctx context.Context, s Selection, by Skip, limit int) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	q, err := b.selected(s)
	if err != nil {
		return 0, err
	}
	q.Limit = limit
	err = b.in(ctx, cold.Write, s.Tenant, func(tx *cold.Tx) (err error) {
		n, err = b.skip(ctx, tx, q, by)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("skip events of %s: %w", b.layout.Name(), err)
	}
	return n, nil
}

// skipEvents is how many events a transaction of Skip takes.
const skipEvents = 500

// Skip is SkipPage until total events of a selection were skipped, or none is left. It ends between
// two pages with ctx, and says how many it has done also where it fails.
func (b *Browser) Skip(ctx context.Context, s Selection, by Skip, total int) (done int, err error) {
	for done < total {
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		n, err := b.SkipPage(context.WithoutCancel(ctx), s, by, min(skipEvents, total-done))
		if err != nil {
			return done, err
		}
		if done += n; n > 0 {
			continue
		}
		// None of those that were chosen was left when they were locked. A relay has delivered
		// them; there may be others.
		if left, _, err := b.Undelivered(ctx, s); err != nil || left == 0 {
			return done, err
		}
	}
	return done, nil
}

func (b *Browser) skip(ctx context.Context, tx *cold.Tx, q *query, by Skip) (n int, err error) {
	var dead []outbox.Outcome
	failures := []outbox.Failure{by.Failure()}
	err = tx.Each(ctx, "events_skip", q, func(rows cold.Rows) error {
		var id, tenant sqltable.Text
		var attempts sqltable.Number
		var rec outbox.Record
		err := rows.Scan(&rec.Position, &id, &rec.Generation, &attempts, &tenant)
		rec.ID, _ = sqltable.ParseID(id)
		rec.Attempts, rec.TenantID = int(attempts.N), tenant.S
		dead = append(dead, outbox.Outcome{Record: &rec, State: outbox.Dead, Attempts: rec.Attempts, Failures: failures})
		return err
	})
	if err != nil || len(dead) == 0 {
		return 0, err
	}
	if n, err = b.db.Bury(ctx, tx, b.layout, dead); err != nil {
		return 0, err
	}
	if n != len(dead) { // they are locked
		return 0, fmt.Errorf("%d of %d rows died", n, len(dead))
	}
	detail := auditOf(b.layout)
	detail["run"] = by.Run
	return n, tx.Record(ctx, cold.Action{Actor: by.Actor, Action: "skip", Reason: by.Reason, Rows: n, Filter: q.S,
		Detail: detail})
}

// delivered returns the query of a choice of delivered events.
func (b *Browser) delivered(ctx context.Context, d Delivered) (*query, error) {
	if err := b.check(Filter{Tenant: d.Tenant, Key: d.Key}); err != nil {
		return nil, err
	}
	if err := d.check(b.layout); err != nil {
		return nil, err
	}
	columns, err := b.db.Columns(ctx, b.layout)
	q := b.query()
	q.D, q.Columns = d, columns
	return q, err
}

// Replayable returns the events that are chosen, in the order of their positions, and the Until
// that the database's clock gives. It reads the table, and the archive, once. A choice that does
// not fit the table is an ErrFilter. The role needs SELECT on outbox_archive.
func (b *Browser) Replayable(ctx context.Context, d Delivered) (places []Place, until time.Time, err error) {
	q, err := b.delivered(ctx, d)
	if err != nil {
		return nil, until, err
	}
	err = b.read(ctx, d.Tenant, func(tx *cold.Tx) error {
		var now sqltable.Text
		if err := tx.One(ctx, "replay_until", q, &now); err != nil {
			return err
		}
		until = *now.Moment()
		if !d.Until.IsZero() && d.Until.Before(until) {
			until = d.Until
		}
		q.D.Until = until
		return tx.Each(ctx, "replay_find", q, func(rows cold.Rows) error {
			var p Place
			var id sqltable.Text
			err := rows.Scan(&p.Position, &id, &p.Archived)
			p.ID, _ = sqltable.ParseID(id)
			places = append(places, p)
			return err
		})
	})
	if err != nil {
		return nil, until, fmt.Errorf("look for delivered events of %s: %w", b.layout.Table, err)
	}
	return places, until, nil
}

// ReplayPage puts events back under their ids, at their positions, and says how many: not what is
// gone, or has been put back since. They get new attempts, and a generation that no sink has seen.
// It is one transaction with its record in outbox_audit. The role needs the rights of
// outbox_operator.
func (b *Browser) ReplayPage(ctx context.Context, r Replay, places []Place) (n int, err error) {
	q, err := b.delivered(ctx, r.Delivered)
	if err != nil {
		return 0, err
	}
	err = b.in(ctx, cold.Write, r.Tenant, func(tx *cold.Tx) error {
		n = 0
		for _, put := range []struct {
			statement string
			archived  bool
		}{{"replay_insert", true}, {"replay_revive", false}} {
			part := *q
			for _, p := range places {
				if p.Archived == put.archived {
					part.Positions, part.IDs = append(part.Positions, p.Position), append(part.IDs, p.ID)
				}
			}
			if len(part.IDs) == 0 {
				continue
			}
			changed, err := tx.Change(ctx, put.statement, &part)
			if err != nil {
				return err
			}
			n += changed
		}
		if n == 0 {
			return nil
		}
		return tx.Record(ctx, cold.Action{Actor: r.Actor, Action: "replay", Reason: r.Reason, Rows: n, Filter: r.Delivered,
			Detail: map[string]any{"table": b.leased, "run": r.Run, "delivered": true}})
	})
	if err != nil {
		return 0, fmt.Errorf("replay events of %s: %w", b.layout.Table, err)
	}
	return n, nil
}
