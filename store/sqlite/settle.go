package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// unsettledRetry is how long a row waits whose dead letter cannot be stored. Somebody has to act
// before it can.
const unsettledRetry = time.Hour

// Settle implements outbox.Store. All outcomes are one transaction, and one fsync.
//
// If the file refuses one of them (a check of a mapped table, somebody's trigger) the others are
// settled. Its row then waits, with the refusal as its error; what the file does not even take that
// for is returned as refused. Without this the lanes would stand still until somebody removed the
// row.
func (s *store) Settle(
	ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome,
) (outbox.Settled, error) {
	removes := s.layout.Settle.Removes()
	settled, refusal, err := s.settle(ctx, owner, lanes, outcomes, removes)
	if removes && sqlitefile.OfTheData(err) { // a deferred foreign key refuses the commit
		settled, refusal, err = s.settle(ctx, owner, lanes, outcomes, false)
	}
	if err != nil {
		return outbox.Settled{}, whole(fmt.Errorf("settle in %s: %w", s.layout.Table, explain(err)))
	}
	settled.Lost = len(outcomes) - settled.Delivered - settled.Retried - settled.Dead - len(refusal.Outcomes)
	if len(refusal.Outcomes) > 0 {
		return settled, &refusal
	}
	return settled, nil
}

func (s *store) settle(
	ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome, removes bool,
) (settled outbox.Settled, refusal outbox.RefusedError, err error) {
	needed := []*prepared{&s.sql.settleHeld, &s.sql.settleDelivered, &s.sql.settleRetry, &s.sql.settleApps,
		&s.sql.settleLetter, &s.sql.settleDead}
	if slices.ContainsFunc(outcomes, func(o outbox.Outcome) bool { return len(o.Owed) > 0 }) {
		needed = append(needed, &s.sql.settleOwed) // a file from before has no table for it
	}
	needed = append(needed, s.removing()...)
	for _, p := range needed {
		if _, err := p.on(ctx, s.db.write); err != nil {
			return outbox.Settled{}, refusal, err
		}
	}
	err = s.db.inTurn(ctx, func(tx *sql.Tx) error {
		held, err := s.heldNow(ctx, tx, owner, lanes)
		if err != nil || held == 0 {
			return err
		}
		// A statement a row. One for all, over json_each, takes 10 rather than 13 µs a row. But it
		// is a join, and with statistics from before a backlog the planner may begin it at the
		// wrong end. Not cancelled by ctx, statement by statement: the driver would start a
		// goroutine for each.
		t := settling{store: s, ctx: context.WithoutCancel(ctx), tx: tx, now: time.Now()} // not sooner: it may have waited
		t.stamp, t.removes = stamp(t.now), removes
		waiting := outbox.HeldKeys{}
		for i := range outcomes {
			if held&(1<<outcomes[i].Record.Lane) == 0 {
				continue
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			if waiting.Holds(outcomes[i].Record) { // were the relay to die, all of its key would go out again, in its order
				t.refuse(&outcomes[i], t.refusal.Err)
				continue
			}
			if err := t.one(&outcomes[i]); err != nil {
				return err
			}
			if n := len(t.refusal.Outcomes); n > 0 {
				waiting.Hold(t.refusal.Outcomes[n-1].Record)
			}
		}
		settled, refusal = t.settled, t.refusal
		return nil
	})
	if err != nil {
		return outbox.Settled{}, outbox.RefusedError{}, err
	}
	return settled, refusal, nil
}

// heldNow returns those of the lanes that owner holds at the epoch it knows, a bit each. They
// cannot change hands before the transaction ends.
func (s *store) heldNow(ctx context.Context, tx *sql.Tx, owner uuid.UUID, lanes []outbox.Lane) (held int64, err error) {
	stmt, err := s.sql.settleHeld.on(ctx, s.db.write)
	if err != nil {
		return 0, err
	}
	rows, err := tx.StmtContext(ctx, stmt).QueryContext(ctx, s.name, owner.String())
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var number int16
		var epoch int64
		if err := rows.Scan(&number, &epoch); err != nil {
			return 0, err
		}
		for _, l := range lanes {
			if l.Number == number && l.Epoch == epoch {
				held |= 1 << number
			}
		}
	}
	return held, rows.Err()
}

// settling is the work of one Settle in its transaction.
type settling struct {
	*store
	ctx   context.Context
	tx    *sql.Tx
	now   time.Time
	stamp string
	stmts map[*prepared]*sql.Stmt

	removes bool // delivered rows leave the table
	settled outbox.Settled
	refusal outbox.RefusedError
}

// run runs a statement for a record, and tells whether it changed anything.
func (t *settling) run(p *prepared, rec *outbox.Record, args ...any) (bool, error) {
	return t.exec(p, append([]any{rec.Position, rec.ID.String(), rec.Generation, t.stamp}, args...)...)
}

func (t *settling) exec(p *prepared, args ...any) (bool, error) {
	stmt, ok := t.stmts[p]
	if !ok {
		kept, err := p.on(t.ctx, t.db.write)
		if err != nil {
			return false, err
		}
		if t.stmts == nil {
			t.stmts = map[*prepared]*sql.Stmt{}
		}
		stmt = t.tx.StmtContext(t.ctx, kept)
		t.stmts[p] = stmt
	}
	result, err := stmt.ExecContext(t.ctx, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n > 0, err
}

// one settles one outcome.
func (t *settling) one(o *outbox.Outcome) (err error) {
	var changed bool
	switch o.State {
	case outbox.Delivered:
		if changed, err = t.delivered(o); changed {
			t.settled.Delivered++
		}
	case outbox.Retry:
		if changed, err = t.retry(o); changed {
			t.settled.Retried++
		}
	case outbox.Dead:
		if changed, err = t.dead(o); changed {
			t.settled.Dead++
		}
	}
	if !sqlitefile.OfTheData(err) {
		return err
	}
	refusal := err
	if ended := t.ended(err); ended != nil {
		return ended
	}
	if o.State == outbox.Delivered && t.removes {
		// The table does not let the row go, for example because of a foreign key. It is marked,
		// and retention removes it when it can.
		t.removes = false
		defer func() { t.removes = true }()
		return t.one(o)
	}
	// Nothing could say that it was, and it would be published again.
	if o.State == outbox.Delivered && t.layout.DeliveredTo == "" {
		t.refuse(o, refusal)
		return nil
	}
	again := *o
	again.Attempts = max(o.Attempts, o.Record.Attempts)
	again.RetryIn, again.Failures = max(o.RetryIn, unsettledRetry), []outbox.Failure{{Error: err.Error()}}
	changed, err = t.retry(&again)
	if sqlitefile.OfTheData(err) { // not even with that error
		if ended := t.ended(err); ended != nil {
			return ended
		}
		again.Failures = nil
		changed, err = t.retry(&again)
	}
	if sqlitefile.OfTheData(err) { // nor anything else
		if ended := t.ended(err); ended != nil {
			return ended
		}
		t.refuse(o, refusal)
		return nil
	}
	if changed {
		t.settled.Retried++
	}
	return err
}

func (t *settling) refuse(o *outbox.Outcome, refusal error) {
	t.refusal.Outcomes = append(t.refusal.Outcomes, *o)
	if t.refusal.Err == nil {
		t.refusal.Err = refusal
	}
}

// ended returns the refusal of a row if the whole transaction has ended with it, as raise(ROLLBACK)
// in somebody's trigger does, and a constraint that says ON CONFLICT ROLLBACK. The rows after it
// would be settled one by one, and without the guard of the lease. Only where there is no
// transaction another can begin; it is rolled back with ours.
func (t *settling) ended(refusal error) error {
	if _, err := t.tx.ExecContext(t.ctx, "BEGIN"); err == nil {
		return fmt.Errorf("nothing is settled, a trigger or a constraint of the table rolls the transaction back instead "+
			"of refusing one row (raise(ABORT) would): %w", refusal)
	}
	return nil
}

func (t *settling) retry(o *outbox.Outcome) (bool, error) {
	problem, served, err := sqltable.Retry(o)
	if err != nil {
		return false, err
	}
	return t.run(&t.sql.settleRetry, o.Record, o.Attempts, stamp(t.now.Add(o.RetryIn)), problem,
		eventrow.OrNull(served))
}

// delivered writes down what sinks owe of a row, and marks or removes it.
func (t *settling) delivered(o *outbox.Outcome) (bool, error) {
	if len(o.Owed) == 0 && (!t.removes || t.layout.Settle != outbox.SettleArchive) {
		return t.leave(o.Record)
	}
	return sqlitetable.Wholly(t.ctx, t.tx, func() (bool, error) {
		if err := t.owe(o); err != nil {
			return false, err
		}
		return t.leave(o.Record)
	})
}

// leave marks a delivered row, or removes it. What a letter needs is marked. What an earlier
// settle, whose reply was lost, has removed counts as delivered.
func (t *settling) leave(rec *outbox.Record) (changed bool, err error) {
	if !t.removes {
		return t.run(&t.sql.settleDelivered, rec)
	}
	if t.layout.Settle == outbox.SettleArchive {
		if _, err := t.run(&t.sql.settleArchive, rec, t.name); err != nil {
			return false, err
		}
	}
	if changed, err = t.run(&t.sql.settleDelete, rec); err != nil || changed {
		return changed, err
	}
	if changed, err = t.run(&t.sql.settleDelivered, rec); err != nil || changed {
		return changed, err
	}
	known, err := t.sql.settleKnown.on(t.ctx, t.db.write)
	if err != nil {
		return false, err
	}
	err = t.tx.StmtContext(t.ctx, known).QueryRowContext(t.ctx, rec.Position, rec.ID.String()).Scan(&changed)
	return changed, err
}

// removing are the statements by which delivered rows leave the table, if they do.
func (s *store) removing() (all []*prepared) {
	switch s.layout.Settle {
	case outbox.SettleArchive:
		all = append(all, &s.sql.settleArchive, &s.sql.settleDelete, &s.sql.settleKnown)
	case outbox.SettleDelete:
		all = append(all, &s.sql.settleDelete, &s.sql.settleKnown)
	}
	return all
}

// dead writes one letter a failed destination and marks or removes the row; all of it or, if the
// file refuses a part, nothing.
func (t *settling) dead(o *outbox.Outcome) (changed bool, err error) {
	return sqlitetable.Die(t.ctx, t.tx, o, t.layout.Table, t.stamp, func(name string, args ...any) (bool, error) {
		return t.exec(t.sql.deadly(name), args...)
	})
}
