package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Pauses are what operators have paused. Running relays obey with their next check of their lease, twice a second. They
// need the rights of outbox_operator; reading is also outbox_reader's. It is safe for concurrent use.
type Pauses struct{ db cold.Database }

// Pauses answers with a *outbox.SchemaError where the database has no table of pauses yet.
func (d Database) Pauses(ctx context.Context) (*Pauses, error) {
	if err := d.db.Check(ctx, "outbox_pauses", nil); err != nil {
		return nil, err
	}
	return &Pauses{d.db}, nil
}

// pauseQuery is what the files pause_*.sql are given.
type pauseQuery struct {
	Pause
	Leased string // its table, as relays look for their pauses
	Now    time.Time
}

// Pauses returns all, those of every table first.
func (p *Pauses) Pauses(ctx context.Context) (all []Pause, err error) {
	err = cold.Read(ctx, p.db, func(tx *cold.Tx) (err error) {
		all, err = listPauses(ctx, tx, "")
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	return all, nil
}

// listPauses returns those that concern a table, "" for all.
func listPauses(ctx context.Context, tx *cold.Tx, leased string) (all []Pause, err error) {
	err = tx.Each(ctx, "pause_list", pauseQuery{Leased: leased}, func(rows cold.Rows) error {
		var one Pause
		var at sqltable.Text
		err := rows.Scan(&one.Table, &one.Topic, &one.Destination, &one.Reason, &one.Actor, &at)
		if since := at.Moment(); since != nil {
			one.At = *since
		}
		one.Table, one.To = TableAndSink(one.Table)
		all = append(all, one)
		return err
	})
	return all, err
}

// Pause adds one, or gives the one of those names a new reason. It is recorded in outbox_audit.
func (p *Pauses) Pause(ctx context.Context, pause Pause) error {
	if _, err := p.change(ctx, "pause", "pause_add", pause); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	return nil
}

// Resume removes the one of those names, and tells whether it was there. It is recorded likewise, with the actor and
// reason of pause.
func (p *Pauses) Resume(ctx context.Context, pause Pause) (bool, error) {
	found, err := p.change(ctx, "resume", "pause_remove", pause)
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	return found, nil
}

// change runs a statement for what a pause names, and records it if it changed something.
func (p *Pauses) change(ctx context.Context, action, statement string, pause Pause) (changed bool, err error) {
	if pause.Table != "" {
		if pause.Table, err = p.db.Leased(ctx, pause.Table); err != nil {
			return false, err
		}
	}
	q := pauseQuery{pause, pause.Name(), time.Now()}
	err = cold.Write(ctx, p.db, func(tx *cold.Tx) error {
		n, err := tx.Change(ctx, statement, q)
		if changed = n > 0; err != nil || !changed {
			return err
		}
		return tx.Record(ctx, cold.Action{Actor: pause.Actor, Action: action, Reason: pause.Reason, Filter: pause.Names()})
	})
	return changed, err
}
