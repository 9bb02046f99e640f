package relay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// tableRelay delivers the events of one table.
type tableRelay struct {
	publisher // to the table's sink, if it has no routes
	mode
	store outbox.Store
	cfg   tableConfig
	owner uuid.UUID

	keeper *leaseKeeper
	seen   *atomic.Pointer[glance] // nil in it: nobody looks, or the last look failed
	// Nil in it: the sink has no subscribers, or nobody knows them yet.
	subscriptions atomic.Pointer[[]outbox.Subscription]
	workers       []*worker
	claimed       atomic.Int64 // when a worker last found something, in nanoseconds since 1970
	tally         tally
	causes        causes

	mu         sync.Mutex
	backlog    *outbox.Backlog // as it was last counted
	backlogErr error
}

// worker turns the loop for its share of the relay's lanes, so that one has the database work while
// another waits for the sink. A lane, and with it a key, always falls to the same worker.
type worker struct {
	*tableRelay
	number int
	woken  chan struct{}

	idle       time.Duration // the pause after a claim that found nothing
	pacer      pacer
	quarantine quarantine
	inflight   inflight
	owes       owes

	mu        sync.Mutex
	turned    time.Time // when it began its last turn
	progress  time.Time
	lastError string
	stopped   string // why the database records nothing of the table
	barred    string // why nothing may be claimed
}

// newTableRelay returns what serves a table. sink is its only one, if there is one only.
func newTableRelay(store outbox.Store, sink outbox.Sink, cfg tableConfig, m mode) (*tableRelay, error) {
	owner, err := outbox.NewID()
	if err != nil {
		return nil, err
	}
	r := &tableRelay{
		publisher: publisher{sink}, mode: m, store: store, cfg: cfg, owner: owner, seen: new(atomic.Pointer[glance]),
	}
	r.keeper = newLeaseKeeper(store, leaseConfig{
		owner: owner, table: cfg.name(), instance: cfg.Instance, ttl: cfg.LeaseTTL, margin: cfg.LeaseMargin,
		serves: cfg.table.serves, timeout: cfg.DatabaseTimeout, drain: cfg.DrainTimeout, workers: cfg.Workers,
		logger: cfg.Logger,
	}, r.seen, r.wake)
	for n := range cfg.Workers {
		w := &worker{tableRelay: r, number: n, woken: make(chan struct{}, 1), pacer: newPacer()}
		r.workers = append(r.workers, w)
	}
	return r, nil
}

// wake makes idle workers look at once.
func (r *tableRelay) wake() {
	for _, w := range r.workers {
		signal(w.woken)
	}
}

// run serves the table until ctx ends. It then finishes the batch in flight (publish and settle,
// for at most DrainTimeout), gives up its lanes and returns nil. Database and broker failures do
// not end it. If the table has another reader, it stops in the same way, with an error.
func (r *tableRelay) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// The batch in flight outlives ctx by DrainTimeout: half of it published and none of it settled
	// would be published again.
	hardStop, stopHard := context.WithCancel(context.WithoutCancel(ctx))
	defer stopHard()
	drain := context.AfterFunc(ctx, func() {
		time.AfterFunc(r.cfg.DrainTimeout, stopHard)
	})
	defer drain()

	// The keeper goes on renewing what is in flight while the last batch drains.
	defer context.AfterFunc(ctx, r.keeper.stop)()
	keeperCtx, stopKeeper := context.WithCancel(hardStop)
	var background sync.WaitGroup
	background.Go(func() {
		if err := r.keeper.run(keeperCtx, hardStop); err != nil {
			stop(err)
		}
	})
	background.Go(func() { r.logTally(keeperCtx) })

	var workers sync.WaitGroup
	for _, w := range r.workers {
		workers.Go(func() { w.serve(ctx, hardStop) })
	}
	workers.Wait()

	stopKeeper()
	background.Wait()
	if err := r.keeper.leave(ctx); err != nil {
		r.cfg.Logger.Warn("relay stopped without releasing its lanes", "table", r.cfg.name(), "error", err)
	}
	if err := context.Cause(ctx); refused(err) {
		return err
	}
	if hardStop.Err() != nil {
		return fmt.Errorf("stop relay of %s: the batch in flight did not finish in time; "+
			"it will be published again", r.cfg.name())
	}
	return nil
}

// serve turns the loop: full batches at once, then PollMin, growing to PollMax while there is
// nothing to do.
func (w *worker) serve(ctx, hardStop context.Context) {
	trouble := time.Duration(0)
	w.idle = w.cfg.PollMin
	defer w.finishLate(hardStop)
	for ctx.Err() == nil {
		w.mu.Lock()
		w.turned = time.Now()
		w.mu.Unlock()
		w.settleLate(hardStop)
		t := w.begin(ctx, hardStop)
		if t == nil {
			continue
		}
		claimed, err := w.turn(ctx, t)
		w.keeper.linger(w.number, w.inflight.lingering(), w.inflight.oldest())
		w.keeper.put(w.number)
		w.cfg.breaker.leave(t.pass)
		switch class, _ := outbox.Classify(err); {
		case err == nil:
			trouble = 0
			w.succeeded()
			w.sleepAfter(ctx, t, claimed)
		case ctx.Err() != nil && hardStop.Err() == nil:
			return // the claim was interrupted by the stop
		case class == outbox.ClassUnavailable:
			w.failed(err) // the breaker says when to go on
		default:
			w.failed(err)
			trouble = min(max(2*trouble, 100*time.Millisecond), 2*time.Second)
			w.sleep(ctx, trouble, false)
		}
	}
}

// begin asks for what a turn needs. nil: there is none now, and a pause is over.
func (w *worker) begin(ctx, hardStop context.Context) *turn {
	if by, _ := w.stoppedBy(); by != nil && by != w {
		w.succeeded() // the other one tries, and what this one publishes could not be settled
		w.sleep(ctx, w.cfg.PollMax, false)
		return nil
	}
	pass := w.cfg.breaker.enter(w.quarantine.alone)
	if pass.wait > 0 {
		w.sleep(ctx, pass.wait, false)
		return nil
	}
	began := time.Now()
	lanes, until, ok := w.keeper.take(w.number)
	if ok {
		return &turn{hardStop: hardStop, pass: pass, lanes: lanes, until: until, held: outbox.HeldKeys{},
			changes: w.keeper.paused().changes, began: began}
	}
	w.cfg.breaker.leave(pass)
	w.quarantine.alone = false
	if len(lanes) == 0 {
		w.bar(nil)
		w.succeeded() // standing by is what it is there for
		w.records()   // what it was to settle, other relays have
	}
	w.sleep(ctx, w.cfg.PollMax, true)
	return nil
}

// sleepAfter sleeps after a turn that went well.
func (w *worker) sleepAfter(ctx context.Context, t *turn, claimed int) {
	if claimed == 0 && !t.pass.alone && !t.pass.fresh {
		w.pacer.outage = t.pass.outage // what had gathered meanwhile is delivered
	} else if w.pacer.recovering(t.pass) {
		w.sleep(ctx, w.cfg.breaker.pace(claimed, w.cfg.RecoveryRate), false)
	}
	if claimed > 0 {
		w.idle = w.cfg.PollMin
	}
	woken := false
	switch {
	case claimed >= w.cfg.BatchRecords:
	case w.pacer.rest > w.idle:
		w.sleep(ctx, w.pacer.rest, false)
	default:
		woken = w.sleep(ctx, max(w.idle, w.pacer.lull), true)
	}
	switch {
	case woken:
		w.idle = w.cfg.PollMin
	case claimed == 0:
		w.idle = min(w.idle*2, w.cfg.PollMax)
	}
}

// sleep waits for d, for the end of ctx or, if wakeable, for Wake, and tells whether it was woken.
func (w *worker) sleep(ctx context.Context, d time.Duration, wakeable bool) (woken bool) {
	wake := w.woken
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

// see takes note of a look, and wakes whoever slept because there was nothing to do.
func (r *tableRelay) see(now *glance) {
	before := r.seen.Swap(now)
	if before == nil {
		return
	}
	if now.Undelivered && !before.Undelivered {
		r.wake()
	}
	if now.Leases != before.Leases {
		signal(r.keeper.disturbed)
	}
}

// busy tells whether a worker has claimed something a moment before now. To ask whether there is
// more would cost a step over all that is delivered and not vacuumed: it was 4 % of a drain of
// 100,000 events.
func (r *tableRelay) busy(now time.Time) bool {
	return now.UnixNano()-r.claimed.Load() < int64(r.cfg.PollMax)
}

// quiet tells whether there is nothing to claim. It is asked once a worker has found that itself
// for a while, and has not been woken since.
func (r *tableRelay) quiet() bool {
	g := r.seen.Load()
	return g.fresh() && !g.Undelivered
}

// failed notes a failed turn. Of failures in a row the first is logged; succeeded logs the
// recovery.
func (w *worker) failed(err error) {
	w.mu.Lock()
	first := w.lastError == ""
	w.lastError = err.Error()
	w.mu.Unlock()
	if first {
		w.cfg.Logger.Error("relay cannot make progress, trying again",
			"table", w.cfg.name(), "worker", w.number, "error", err)
	}
}

func (w *worker) succeeded() {
	w.mu.Lock()
	recovered, since := w.lastError != "", w.progress
	w.lastError, w.progress = "", time.Now()
	w.mu.Unlock()
	if recovered {
		attrs := []any{"table", w.cfg.name(), "worker", w.number}
		if !since.IsZero() {
			attrs = append(attrs, "after", time.Since(since).Round(time.Millisecond).String())
		}
		w.cfg.Logger.Info("relay makes progress again", attrs...)
	}
}

// report tells everybody who wants to know about a batch.
func (r *tableRelay) report(b outbox.BatchReport) {
	r.tally.add(b)
	if r.cfg.Observer != nil {
		r.cfg.Observer.ObserveBatch(b)
	}
}

func (r *tableRelay) logTally(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.tally.flush(ctx, r.cfg.Logger, r.cfg.name())
			return
		case <-tick.C:
			r.tally.flush(ctx, r.cfg.Logger, r.cfg.name())
		}
	}
}
