package app

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/server/crawl"
)

// runEvents is the table that the events of runs go out by.
const runEvents = "crawl_outbox"

// waker tells relays that a run has new events.
type waker struct {
	own atomic.Pointer[relay.Relay] // of this process; nil: it has none, or none yet
}

// wake tells the relay of this process at once, and unless that holds all lanes, those of others
// through the database.
func (w *waker) wake(others Notifier) {
	own := w.own.Load()
	if own != nil {
		own.Wake(runEvents)
	}
	if own == nil || own.Health().Tables[runEvents].Lanes < outbox.LaneCount {
		others.Wake(runEvents)
	}
}

// noRuns stands for the runs of a database without their tables. It has what a gateway calls.
type noRuns struct{ crawl.Store }

func (noRuns) CreateRun(context.Context, string, crawl.NewRun, int) (r crawl.Run, created bool, err error) {
	return r, false, crawl.ErrNoTables
}

func (noRuns) GetRun(context.Context, string, uuid.UUID) (r crawl.Run, err error) {
	return r, crawl.ErrNoTables
}

func (noRuns) ListRuns(context.Context, string, crawl.RunFilter) ([]crawl.Run, bool, error) {
	return nil, false, crawl.ErrNoTables
}

func (noRuns) ListEvents(context.Context, string, uuid.UUID, int64, int) ([]crawl.Event, error) {
	return nil, crawl.ErrNoTables
}

func (noRuns) LastSeqs(context.Context, string, []uuid.UUID) (map[uuid.UUID]int64, error) {
	return nil, crawl.ErrNoTables
}

func (noRuns) EndedRuns(context.Context, string, []uuid.UUID) (map[uuid.UUID]int64, error) {
	return nil, crawl.ErrNoTables
}

func (noRuns) Change(context.Context, string, uuid.UUID, crawl.Change) (c crawl.Changed, err error) {
	return c, crawl.ErrNoTables
}

// wakingRuns is a store that wakes the relays after each commit that has something for them. Else
// an event would wait for a relay's next poll.
type wakingRuns struct {
	crawl.Store
	wake func()
}

func (s wakingRuns) Change(ctx context.Context, tenant string, run uuid.UUID, c crawl.Change) (crawl.Changed, error) {
	changed, err := s.Store.Change(ctx, tenant, run, c)
	if changed.Appended > 0 {
		s.wake()
	}
	return changed, err
}

func (s wakingRuns) ClaimRun(
	ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(crawl.Run) []crawl.NewEvent,
) (crawl.Claim, error) {
	claim, err := s.Store.ClaimRun(ctx, owner, crawlers, ttl, events)
	if err == nil {
		s.wake()
	}
	return claim, err
}
