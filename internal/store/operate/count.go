package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// written is when the first of some events was written, by its column or its id; zero: nobody
// knows.
func written(at, id sqltable.Text) time.Time {
	event, _ := sqltable.ParseID(id)
	return uuid7.Written(at.Moment(), event)
}

// Backlog says whose the undelivered events are. What the table does not have is an ErrFilter.
func (b *Browser) Backlog(ctx context.Context, asked BacklogQuery) (Backlog, error) {
	found, err := asked.newBacklog(b.layout)
	if found.Hidden = b.hidden; err != nil || b.hidden {
		return found, err
	}
	q := b.query()
	q.ByTopic, q.Shares, q.Count = asked.By == "topic", asked.Shares, asked.Count
	err = cold.Ask(ctx, b.db, "backlog_by", q, func(rows cold.Rows) error {
		var s BacklogShare
		var at, id, now sqltable.Text
		err := rows.Scan(&s.Value, &s.Waiting, &at, &id, &now, &found.Counted, &found.Total)
		s.Oldest = age(written(at, id), now)
		found.Shares = append(found.Shares, s)
		return err
	})
	if err != nil {
		return Backlog{}, fmt.Errorf("count undelivered events of %s by %s: %w", b.layout.Table, asked.By, err)
	}
	found.Bounded = found.Counted >= asked.Count
	return found, nil
}

// age is how many seconds before now a time was; nil: nobody knows.
func age(at time.Time, now sqltable.Text) *float64 {
	end := now.Moment()
	if at.IsZero() || end == nil {
		return nil
	}
	seconds := max(end.Sub(at), 0).Seconds()
	return &seconds
}

// Lanes reports on the table's lanes and relays. Undelivered rows are counted up to limit.
func (b *Browser) Lanes(ctx context.Context, limit int) (LaneReport, error) {
	r := newLaneReport(b.layout.Table)
	r.Hidden = b.hidden
	q := b.query()
	q.Count = limit
	// One snapshot, so that a lane that changes hands meanwhile is not counted for both.
	err := cold.Read(ctx, b.db, func(tx *cold.Tx) error {
		if err := tx.Each(ctx, "lanes_relays", q, r.addRelay); err != nil {
			return err
		}
		if err := tx.Each(ctx, "lanes", q, r.addLane); err != nil {
			return err
		}
		pauses, err := listPauses(ctx, tx, b.leased)
		r.Pauses = append(r.Pauses, pauses...)
		if err == nil && !b.layout.KeepsState() {
			r.Reader, err = b.reader(ctx, tx)
		}
		if err != nil || b.hidden || !b.layout.KeepsState() && r.Reader != "" {
			return err
		}
		counted := "lanes_backlog"
		if !b.layout.KeepsState() {
			counted = "log_lanes"
		}
		return tx.Each(ctx, counted, q, r.addBacklog)
	})
	if err != nil {
		return LaneReport{}, fmt.Errorf("read lanes of %s: %w", b.layout.Table, err)
	}
	r.Bounded = r.Counted >= limit
	return r, nil
}

// Written is how many events were ever written into the table, or about as many: it tells a rate.
func (b *Browser) Written(ctx context.Context) (n int64, err error) {
	err = cold.Ask(ctx, b.db, "written", b.query(), func(rows cold.Rows) error { return rows.Scan(&n) })
	if err != nil {
		return 0, fmt.Errorf("count what was written into %s: %w", b.layout.Table, err)
	}
	return n, nil
}

// left is how many seconds of a lease are left; below 0: it has lapsed.
func left(expires, now sqltable.Text) *float64 {
	ends, at := expires.Moment(), now.Moment()
	if ends == nil || at == nil {
		return nil
	}
	seconds := ends.Sub(*at).Seconds()
	return &seconds
}

func (r *LaneReport) addRelay(rows cold.Rows) error {
	var v RelayView
	var joined, expires, now, seen sqltable.Text
	if err := rows.Scan(&v.Owner, &v.Name, &joined, &expires, &now, &v.Lanes, &v.Share, &v.Serves, &seen); err != nil {
		return err
	}
	if at := joined.Moment(); at != nil {
		v.JoinedAt = *at
	}
	if at := seen.Moment(); at != nil {
		v.SeenAt = *at
	}
	if in := left(expires, now); in != nil {
		v.ExpiresIn = *in
	}
	r.Relays = append(r.Relays, v)
	return nil
}

func (r *LaneReport) addLane(rows cold.Rows) error {
	var v LaneView
	var owner, trial uuid.NullUUID
	var expires, now, reader sqltable.Text
	var lane *int
	if err := rows.Scan(&lane, &owner, &v.Name, &v.Epoch, &expires, &now, &v.Crashes, &v.TrialSize, &trial,
		&reader); err != nil {
		return err
	}
	if r.Reader = reader.S; lane == nil {
		return nil
	}
	v.Lane = *lane
	if owner.Valid {
		v.Owner, v.ExpiresIn = &owner.UUID, left(expires, now)
	}
	if trial.Valid {
		v.TrialEvent = &trial.UUID
	}
	v.judge()
	r.Lanes[v.Lane] = v
	return nil
}

func (r *LaneReport) addBacklog(rows cold.Rows) error {
	var lane, counted int
	var position int64
	var at, id, now sqltable.Text
	l := LaneView{}
	if err := rows.Scan(&lane, &counted, &position, &at, &id, &now, &l.Retrying, &l.Held, &l.HeldKeys); err != nil {
		return err
	}
	v := &r.Lanes[lane]
	v.Backlog, v.Retrying, v.Held, v.HeldKeys = counted, l.Retrying, l.Held, l.HeldKeys
	v.Oldest = age(written(at, id), now)
	r.Counted += counted
	return nil
}

// Debts returns what sinks of tables with routes have not taken. It answers with a
// *outbox.SchemaError where the database has no table of deliveries yet.
func (d Database) Debts(ctx context.Context) (debts []Debt, err error) {
	if err := d.db.Check(ctx, "outbox_deliveries", nil); err != nil {
		return nil, err
	}
	hidden, err := cold.Hidden(ctx, d.db, "job_dlq")
	if err != nil {
		return nil, err
	}
	asked := struct {
		Now     time.Time
		Visible bool // letters
	}{time.Now(), !hidden}
	err = cold.Ask(ctx, d.db, "debts", asked, func(rows cold.Rows) error {
		var of Debt
		var oldest, now sqltable.Text
		err := rows.Scan(&of.Sink, &of.Table, &of.Owed, &of.Retrying, &oldest, &now, &of.Dead)
		if at := oldest.Moment(); at != nil {
			of.Oldest = age(*at, now)
		}
		debts = append(debts, of)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("count what sinks owe: %w", err)
	}
	return debts, nil
}

// MoveDebt gives at most limit of the deliveries that a sink owes to another one, the oldest first,
// and records it. It needs the rights of outbox_operator. A relay that serves the sink could be
// publishing one of them.
func (d Database) MoveDebt(ctx context.Context, m DebtMove, limit int) (done DebtMoved, err error) {
	asked := struct {
		DebtMove
		Leased string
		Limit  int
		Now    time.Time
	}{m, m.Table, limit, time.Now()}
	err = cold.Write(ctx, d.db, func(tx *cold.Tx) error {
		done = DebtMoved{}
		err := tx.Each(ctx, "debts_move", asked, func(rows cold.Rows) error {
			var had bool
			err := rows.Scan(&had)
			if had {
				done.Had++
			} else {
				done.Moved++
			}
			return err
		})
		if err != nil || done == (DebtMoved{}) {
			return err
		}
		return tx.Record(ctx, cold.Action{Actor: m.Actor, Action: "move", Reason: m.Reason, Rows: done.Moved + done.Had,
			Filter: Selection{All: true}, Detail: m.detail(done)})
	})
	if err != nil {
		return DebtMoved{}, fmt.Errorf("move what %s owes of %s: %w", m.Sink, m.Table, err)
	}
	return done, nil
}

// Troubles returns what hinders the relays.
func (d Database) Troubles(ctx context.Context) (all []Trouble, err error) {
	err = cold.Ask(ctx, d.db, "troubles", struct{ Now time.Time }{time.Now()}, func(rows cold.Rows) error {
		var t Trouble
		var since, health sqltable.Text
		if err := rows.Scan(&t.Relay, &t.Of, &since, &health); err != nil {
			return err
		}
		t.Since = since.Moment()
		if err := t.tell([]byte(health.S)); err != nil {
			return err
		}
		all = append(all, t)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask what hinders relays: %w", err)
	}
	return all, nil
}
