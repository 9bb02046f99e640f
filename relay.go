package outbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/fault"
)

// Relay delivers the events of one table to one sink. Any number of relays may run against the same table: a lane is served by one of
// them at a time.
type Relay struct {
	store Store
	sink  Sink
	cfg   RelayConfig
	owner uuid.UUID

	keeper leaseKeeper
	wake   chan struct{}
	tally  tally

	mu        sync.Mutex
	progress  time.Time
	lastError string
}

// NewRelay returns a relay that serves store's table with sink. All problems of cfg are reported at once.
func NewRelay(store Store, sink Sink, cfg RelayConfig) (*Relay, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("configure relay: %w", err)
	}
	owner, err := NewID()
	if err != nil {
		return nil, err
	}
	r := &Relay{store: store, sink: sink, cfg: cfg, owner: owner, wake: make(chan struct{}, 1)}
	r.keeper.relay = r
	return r, nil
}

// Wake makes an idle relay look at once instead of at its next poll. It never blocks. A wake-up that gets lost costs PollMax.
func (r *Relay) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run serves the table until ctx ends. It then finishes the batch in flight (publish and settle, for at most DrainTimeout), gives up its
// lanes and returns nil. Database and broker failures do not end it: it goes on trying, and Health tells.
// A relay can be run once.
func (r *Relay) Run(ctx context.Context) error {
	// The batch in flight outlives ctx by DrainTimeout: half of it published and none of it settled would be published again.
	hardStop, stopHard := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHard()
	drain := context.AfterFunc(ctx, func() {
		time.AfterFunc(r.cfg.DrainTimeout, stopHard)
	})
	defer drain()

	// The keeper goes on renewing while the last batch drains.
	keeperCtx, stopKeeper := context.WithCancel(hardStop)
	var background sync.WaitGroup
	background.Go(func() { r.keeper.run(keeperCtx) })
	background.Go(func() { r.logTally(keeperCtx) })

	r.serve(ctx, hardStop)

	stopKeeper()
	background.Wait()
	if err := r.keeper.release(ctx); err != nil {
		r.cfg.Logger.Warn("relay stopped without releasing its lanes", "table", r.cfg.Name, "error", err)
	}
	if hardStop.Err() != nil {
		return fmt.Errorf("stop relay of %s: %w", r.cfg.Name, errors.New("the batch in flight did not finish in time; it will be published again"))
	}
	return nil
}

// serve turns the loop: full batches at once, then PollMin, growing to PollMax while there is nothing to do.
func (r *Relay) serve(ctx, hardStop context.Context) {
	idle, trouble := r.cfg.PollMin, time.Duration(0)
	for ctx.Err() == nil {
		lanes, until, ok := r.keeper.get()
		if !ok {
			r.pause(ctx, r.cfg.PollMax, true)
			continue
		}
		claimed, err := r.turn(ctx, hardStop, lanes, until)
		if err != nil {
			if ctx.Err() != nil && hardStop.Err() == nil {
				return // the claim was interrupted by the stop
			}
			r.failed(err)
			trouble = min(max(2*trouble, 100*time.Millisecond), 2*time.Second)
			r.pause(ctx, trouble, false)
			continue
		}
		trouble = 0
		r.succeeded()
		switch {
		case claimed >= r.cfg.BatchRecords:
			idle = r.cfg.PollMin
		case claimed > 0:
			idle = r.cfg.PollMin
			r.pause(ctx, idle, true)
		default:
			if r.pause(ctx, idle, true) {
				idle = r.cfg.PollMin
			} else {
				idle = min(idle*2, r.cfg.PollMax)
			}
		}
	}
}

// turn is one claim, publish and settle. until is when publishing must have ended.
func (r *Relay) turn(ctx, hardStop context.Context, lanes []Lane, until time.Time) (claimed int, err error) {
	t0 := time.Now()
	records, err := r.claim(ctx, lanes)
	if err != nil || len(records) == 0 {
		return 0, err
	}
	fault.Hit(fault.AfterClaim)

	t1 := time.Now()
	batch, owner, defects := r.route(records)
	deadline := t1.Add(r.cfg.PublishTimeout)
	if until.Before(deadline) {
		deadline = until
	}
	pubCtx, cancel := context.WithDeadline(hardStop, deadline)
	results := r.publish(pubCtx, batch)
	cancel()
	fault.Hit(fault.AfterPublish)

	t2 := time.Now()
	v := r.judge(records, batch, owner, results, defects)
	settled, err := r.settle(hardStop, lanes, v.outcomes)
	t3 := time.Now()

	report := BatchReport{
		Table: r.cfg.Name, Claimed: len(records), Settled: settled, Duplicates: v.duplicates, Unavailable: v.unavailable != nil,
		Claim: t1.Sub(t0), Publish: t2.Sub(t1), Settle: t3.Sub(t2),
	}
	for i := range v.outcomes {
		if o := &v.outcomes[i]; o.State == Delivered && !o.Record.WrittenAt.IsZero() {
			report.Latencies = append(report.Latencies, t2.Sub(o.Record.WrittenAt))
		}
	}
	r.tally.add(report)
	if r.cfg.Observer != nil {
		r.cfg.Observer.ObserveBatch(report)
	}
	if err != nil {
		return len(records), err
	}
	if v.unavailable != nil {
		return len(records), fmt.Errorf("publish: %w", v.unavailable)
	}
	return len(records), nil
}

// pause waits for d, for the end of ctx or, if wakeable, for Wake, and tells whether it was woken.
func (r *Relay) pause(ctx context.Context, d time.Duration, wakeable bool) (woken bool) {
	wake := r.wake
	if !wakeable {
		wake = nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-wake:
		return true
	}
	return false
}

func (r *Relay) logTally(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.tally.flush(ctx, r.cfg.Logger, r.cfg.Name)
			return
		case <-tick.C:
			r.tally.flush(ctx, r.cfg.Logger, r.cfg.Name)
		}
	}
}
