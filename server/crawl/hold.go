package crawl

import (
	"context"
	"errors"
	"time"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// errLapsed is why a worker lets go of a run whose lease it could not renew.
var errLapsed = errors.New("the lease could not be renewed in time")

// lookEvery is how often a worker looks whether its run was cancelled: the system around the seeds
// gives it 5 s to stop.
const lookEvery = time.Second

// keep holds the lease until the work on the run is over, and calls off the work if the run has
// ended or the lease is lost. What it believes to hold ends on the local monotonic clock, counted
// from before the request was sent, so it ends before the database's expiry.
func (c *crawling) keep(asked time.Time) {
	ttl := c.cfg.LeaseTTL
	every := min(lookEvery, ttl/3)
	lapse := time.AfterFunc(time.Until(asked.Add(ttl-c.cfg.LeaseMargin)), func() { c.lose(errLapsed) })
	defer lapse.Stop()
	for next := every; backoff.Wait(c.held, next); {
		now := time.Now()
		due := now.Sub(asked)+every > ttl/3
		status, held, err := c.look(due)
		switch {
		case c.held.Err() != nil: // the work is over, and this was cut off
			return
		case errors.Is(err, ErrNotFound):
			c.lose(err)
		case err != nil:
			c.worker.outage.failed(err)
			next = ttl / 30 // two failures a third of the lease apart would be its end although the database is well
			continue
		case status.Ended():
			c.lose(&StateError{Run: c.run.ID, Status: status, From: []Status{Running}})
		case !held:
			c.lose(ErrLeaseLost)
		case due:
			asked = now
			lapse.Reset(time.Until(asked.Add(ttl - c.cfg.LeaseMargin)))
		}
		c.worker.outage.over()
		next = every
	}
}

// look asks for the run's status. Only every few times it renews the lease too: that is a write.
func (c *crawling) look(renew bool) (status Status, held bool, err error) {
	ctx, cancel := context.WithTimeout(c.held, c.cfg.LeaseTTL/3)
	defer cancel()
	if renew {
		return c.store.RenewRun(ctx, c.id, c.lease, c.cfg.LeaseTTL)
	}
	r, err := c.store.GetRun(ctx, c.tenant, c.id)
	return r.Status, true, err
}

// release gives the run to whoever claims it next. Stopped politely, the node has killed nobody:
// the claim is not counted against it.
//
// In doubt it stays counted. To take it off is to write where the run stands. If the change whose
// reply was lost was made, at is before it: its node would be visited and logged again.
func (c *crawling) release() error {
	ctx, cancel := context.WithTimeout(c.held, c.cfg.LeaseTTL/3)
	defer cancel()
	if c.at.Attempts > 0 && !c.doubt {
		if _, err := c.store.Change(ctx, c.tenant, c.id,
			Change{From: []Status{Running}, Hold: &c.lease, Progress: c.at}); err != nil {
			return err
		}
	}
	return c.store.ReleaseRun(ctx, c.id, c.lease)
}
