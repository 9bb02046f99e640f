package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/server/crawl"
)

// ClaimRun implements crawl.Store. Of a run that becomes RUNNING nothing is to be seen before its events are. There is
// no run that another transaction has locked: this one takes its turn, and only where a run waits.
//
// Among tenants of whose runs as many are held this store goes round. Stores that claim beside it go round on their
// own.
//
// A run whose log was ended by plain SQL, with its status forgotten, gets the status of its last event and is passed
// over. It is often the oldest, and would be claimed, and its first event refused, before every other run for ever.
func (r *Runs) ClaimRun(
	ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(crawl.Run) []crawl.NewEvent,
) (crawl.Claim, error) {
	names := jsonList(crawlers)
	_, err := r.next(ctx, r.reads.next, names, ttl)
	var c crawl.Claim
	for again := true; again && err == nil; {
		err = sqlitefile.InTx(ctx, r.db, func(tx *sql.Tx) (err error) {
			c, again, err = r.claim(ctx, tx, owner, names, ttl, events)
			return err
		})
	}
	if err != nil {
		return crawl.Claim{}, fmt.Errorf("claim a run: %w", sqlitefile.Explain(err))
	}
	r.turn.Store(c.Run.Tenant)
	return c, nil
}

// waiting is a run that a worker may claim.
type waiting struct {
	id       uuid.UUID
	tenant   string
	pending  bool
	lastType string
	ahead    bool // not waiting: the lease is from before the clock was set back
}

// next finds the run whose turn it is.
func (r *Runs) next(ctx context.Context, stmt *sql.Stmt, crawlers string, ttl time.Duration) (w waiting, err error) {
	now := time.Now()
	turn, _ := r.turn.Load().(string)
	err = stmt.QueryRowContext(ctx, crawlers, sqlitetime.Stamp(now), sqlitetime.Stamp(sqlitetime.Farthest(now, ttl)),
		turn).Scan(&w.id, &w.tenant, &w.pending, &w.lastType, &w.ahead)
	if errors.Is(err, sql.ErrNoRows) {
		err = crawl.ErrNoRun
	}
	return w, err
}

// claim claims a run, unless its log is over, or its lease is from before the clock was set back. Then it puts that
// right, and asks to be called again.
func (r *Runs) claim(
	ctx context.Context, tx *sql.Tx, owner uuid.UUID, crawlers string, ttl time.Duration,
	events func(crawl.Run) []crawl.NewEvent,
) (c crawl.Claim, again bool, err error) {
	w, err := r.next(ctx, tx.StmtContext(ctx, r.writes.next), crawlers, ttl)
	if err != nil {
		return c, false, err
	}
	if crawl.Terminal(w.lastType) {
		l, err := r.lock(ctx, tx, w.tenant, w.id)
		if err != nil {
			return c, false, err
		}
		return c, true, r.settle(ctx, tx, l)
	}
	now := time.Now()
	if w.ahead { // its worker has as long as this one would to show that it is alive
		cut, err := plain("run_cut")
		if err != nil {
			return c, false, err
		}
		_, err = tx.ExecContext(ctx, cut, w.id, sqlitetime.Stamp(now.Add(ttl)))
		return c, true, err
	}
	c.Hold.Owner = owner
	row := tx.StmtContext(ctx, r.writes.claim).QueryRowContext(ctx, w.id, owner, sqlitetime.Stamp(now),
		sqlitetime.Stamp(now.Add(ttl)))
	if err := scanRun(row, &c.Run, &c.Hold.Epoch, &c.Progress.Node, (*[]byte)(&c.Progress.State), &c.Progress.Steps,
		&c.Progress.Attempts); err != nil {
		return c, false, err
	}
	c.Resumed = c.Hold.Epoch > 1
	if !w.pending || events == nil {
		return c, false, nil
	}
	begun, err := crawl.Identified(events(c.Run))
	if err == nil {
		err = checkEvents(begun)
	}
	if err == nil {
		err = r.append(ctx, tx, c.Run, sqlitetime.Stamp(now), begun)
	}
	c.Run.LastSeq += int64(len(begun))
	return c, false, err
}

// RenewRun implements crawl.Store.
func (r *Runs) RenewRun(
	ctx context.Context, run uuid.UUID, hold crawl.Hold, ttl time.Duration,
) (status crawl.Status, held bool, err error) {
	err = sqlitefile.InTx(ctx, r.db, func(tx *sql.Tx) error {
		if _, err := tx.StmtContext(ctx, r.writes.renew).ExecContext(ctx, run, hold.Owner, hold.Epoch,
			sqlitetime.Stamp(time.Now().Add(ttl))); err != nil {
			return err
		}
		err := tx.StmtContext(ctx, r.writes.held).QueryRowContext(ctx, run, hold.Owner, hold.Epoch).Scan(&status, &held)
		if errors.Is(err, sql.ErrNoRows) {
			return crawl.ErrNotFound
		}
		return err
	})
	if err != nil {
		return "", false, fmt.Errorf("renew the lease of run %s: %w", run, sqlitefile.Explain(err))
	}
	return status, held, nil
}

// ReleaseRun implements crawl.Store. A lease that is another's by now stays as it is.
func (r *Runs) ReleaseRun(ctx context.Context, run uuid.UUID, hold crawl.Hold) error {
	err := sqlitefile.InTx(ctx, r.db, func(tx *sql.Tx) error {
		_, err := tx.StmtContext(ctx, r.writes.release).ExecContext(ctx, run, hold.Owner, hold.Epoch)
		return err
	})
	if err != nil {
		return fmt.Errorf("release run %s: %w", run, sqlitefile.Explain(err))
	}
	return nil
}
