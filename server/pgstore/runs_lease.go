package pgstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/server/crawl"
)

// ClaimRun implements crawl.Store, in two round trips. Of a run that becomes RUNNING nothing is to be seen before its
// events are.
//
// Among tenants of whose runs as many are held this store goes round. Stores that claim beside it go round on their
// own.
//
// A run whose log was ended by plain SQL, with its status forgotten, gets the status of its last event and is passed
// over. It is often the oldest, and would be claimed, and its first event refused, before every other run for ever.
func (r *Runs) ClaimRun(
	ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(crawl.Run) []crawl.NewEvent,
) (crawl.Claim, error) {
	for {
		c, over, err := r.claim(ctx, owner, crawlers, ttl, events)
		if err == nil && over {
			if err = r.settle(ctx, c.Run); err == nil {
				continue
			}
		}
		if err != nil {
			return crawl.Claim{}, fmt.Errorf("claim a run: %w", err)
		}
		return c, nil
	}
}

// claim claims a run, unless its log is over: then nothing has changed.
func (r *Runs) claim(
	ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(crawl.Run) []crawl.NewEvent,
) (c crawl.Claim, over bool, err error) {
	err = r.transaction(ctx, func(conn *pgx.Conn) error {
		c = crawl.Claim{Hold: crawl.Hold{Owner: owner}}
		found, pending, lastType := false, false, ""
		var batch pgx.Batch
		r.begin(&batch)
		turn, _ := r.turn.Load().(string)
		batch.Queue(r.sql.claim, owner, crawlers, ttl.Microseconds(), turn).Query(func(rows pgx.Rows) error {
			return first(rows, &found, func(row pgx.CollectableRow) error {
				return scanRun(row, &c.Run, &pending, &c.Hold.Epoch, &c.Progress.Node, (*[]byte)(&c.Progress.State),
					&c.Progress.Steps, &c.Progress.Attempts, &lastType)
			})
		})
		if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		if !found {
			return crawl.ErrNoRun
		}
		if over = crawl.Terminal(lastType); over {
			return nil // rolled back: the run may never have been started
		}
		c.Resumed = c.Hold.Epoch > 1
		var begun []crawl.NewEvent
		if pending && events != nil {
			var err error
			if begun, err = crawl.Identified(events(c.Run)); err != nil {
				return err
			}
		}
		batch = pgx.Batch{}
		r.queueAppend(&batch, c.Run.ID, begun)
		batch.Queue("COMMIT")
		if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
			return refusedAppend(err)
		}
		c.Run.LastSeq += int64(len(begun))
		r.turn.Store(c.Run.Tenant)
		return nil
	})
	return c, over, err
}

// settle gives a run the status its log ended with.
func (r *Runs) settle(ctx context.Context, run crawl.Run) error {
	return r.transaction(ctx, func(conn *pgx.Conn) error {
		_, err := r.lockSettled(ctx, conn, run.Tenant, run.ID, nil)
		if errors.Is(err, crawl.ErrNotFound) {
			return nil // deleted meanwhile: nobody's
		}
		return err
	})
}

// RenewRun implements crawl.Store.
func (r *Runs) RenewRun(
	ctx context.Context, run uuid.UUID, hold crawl.Hold, ttl time.Duration,
) (status crawl.Status, held bool, err error) {
	found := false
	var batch pgx.Batch // one implicit transaction
	batch.Queue(r.sql.renew, run, hold.Owner, hold.Epoch, ttl.Microseconds())
	batch.Queue(r.sql.held, run, hold.Owner, hold.Epoch).Query(func(rows pgx.Rows) error {
		return first(rows, &found, func(row pgx.CollectableRow) error { return row.Scan(&status, &held) })
	})
	err = r.pool.SendBatch(ctx, &batch).Close()
	if err == nil && !found {
		err = crawl.ErrNotFound
	}
	if err != nil {
		return "", false, fmt.Errorf("renew the lease of run %s: %w", run, err)
	}
	return status, held, nil
}

// ReleaseRun implements crawl.Store. A lease that is another's by now stays as it is.
func (r *Runs) ReleaseRun(ctx context.Context, run uuid.UUID, hold crawl.Hold) error {
	if _, err := r.pool.Exec(ctx, r.sql.release, run, hold.Owner, hold.Epoch); err != nil {
		return fmt.Errorf("release run %s: %w", run, err)
	}
	return nil
}
