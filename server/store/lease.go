package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
)

// leased is what the files about leases are given.
type leased struct {
	Run          uuid.UUID
	Owner        uuid.UUID
	Epoch        int64
	Crawlers     []string
	Turn         string // whose run was claimed last
	Now, Until   time.Time
	Microseconds int64 // until then, where the database's clock says when
}

func lease(run uuid.UUID, hold crawl.Hold, ttl time.Duration) leased {
	now := time.Now()
	return leased{Run: run, Owner: hold.Owner, Epoch: hold.Epoch, Now: now, Until: now.Add(ttl),
		Microseconds: ttl.Microseconds()}
}

// ClaimRun implements crawl.Store, in two round trips. Of a run that becomes RUNNING nothing is to
// be seen before its events are.
//
// Among tenants of whose runs as many are held this store goes round. Stores that claim beside it
// go round on their own.
//
// A run whose log was ended by plain SQL, with its status forgotten, gets the status of its last
// event and is passed over. It is often the oldest, and would be claimed, and its first event
// refused, before every other run for ever.
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

// Turn is the tenant whose run was claimed last: the one behind it is next.
func (r *Runs) Turn() string {
	turn, _ := r.turn.Load().(string)
	return turn
}

// claim claims a run, unless its log is over: then nothing has changed.
func (r *Runs) claim(
	ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(crawl.Run) []crawl.NewEvent,
) (c crawl.Claim, over bool, err error) {
	q := lease(uuid.Nil, crawl.Hold{Owner: owner}, ttl)
	q.Crawlers, q.Turn = crawlers, r.Turn()
	err = r.db.Change(ctx, "", func(tx Tx) error {
		c = crawl.Claim{Hold: crawl.Hold{Owner: owner}}
		found, pending, lastType := false, false, ""
		if err := tx.Run(ctx, Ask{"run_claim", q, func(row Row) error {
			found = true
			return scanRun(row, &c.Run, &pending, &c.Hold.Epoch, &c.Progress.Node, (*[]byte)(&c.Progress.State),
				&c.Progress.Steps, &c.Progress.Attempts, &lastType)
		}}); err != nil {
			return err
		}
		if !found {
			return crawl.ErrNoRun
		}
		if over = crawl.Terminal(lastType); over {
			return nil // undone: the run may never have been started
		}
		c.Resumed = c.Hold.Epoch > 1
		var begun []crawl.NewEvent
		if pending && events != nil {
			var err error
			if begun, err = identified(events(c.Run)); err != nil {
				return err
			}
		}
		if err := tx.Commit(ctx, appending(c.Run, begun, q.Now)...); err != nil {
			return refused(r.db, err, "events")
		}
		c.Run.LastSeq += int64(len(begun))
		r.turn.Store(c.Run.Tenant)
		return nil
	})
	return c, over, err
}

// settle gives a run the status its log ended with.
func (r *Runs) settle(ctx context.Context, run crawl.Run) error {
	return r.db.Change(ctx, run.Tenant, func(tx Tx) error {
		_, _, err := r.lock(ctx, tx, run.Tenant, run.ID, nil)
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
	q := lease(run, hold, ttl)
	err = r.db.Write(ctx, "", Ask{Name: "run_renew", Data: q}, Ask{"run_held", q, scanned(&found, &status, &held)})
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
	if err := r.db.Write(ctx, "", Ask{Name: "run_release", Data: lease(run, hold, 0)}); err != nil {
		return fmt.Errorf("release run %s: %w", run, err)
	}
	return nil
}
