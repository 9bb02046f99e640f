package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/fault"
)

// tableRelay delivers the events of one table to its sink.
type tableRelay struct {
	publisher // to the table's sink, if it has no routes
	store     outbox.Store
	cfg       tableConfig
	owner     uuid.UUID

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

// worker turns the loop for its share of the relay's lanes, so that one has the database work while another waits for
// the sink. A lane, and with it a key, always falls to the same worker.
type worker struct {
	*tableRelay
	number int
	woken  chan struct{}

	idle       time.Duration // the pause after a claim that found nothing
	pacer      pacer
	quarantine quarantine
	recall     recall
	unsettled  unsettled
	late       lateAnswers
	owes       owes

	mu        sync.Mutex
	progress  time.Time
	lastError string
	stopped   string // why the database records nothing of the table
}

func newTableRelay(store outbox.Store, sink outbox.Sink, cfg tableConfig) (*tableRelay, error) {
	owner, err := outbox.NewID()
	if err != nil {
		return nil, err
	}
	r := &tableRelay{
		publisher: publisher{sink}, store: store, cfg: cfg, owner: owner, seen: new(atomic.Pointer[glance]),
	}
	r.keeper = newLeaseKeeper(store, leaseConfig{
		owner: owner, table: cfg.name(), instance: cfg.Instance, ttl: cfg.LeaseTTL, margin: cfg.LeaseMargin,
		timeout: cfg.DatabaseTimeout, drain: cfg.DrainTimeout, workers: cfg.Workers, logger: cfg.Logger,
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

// signal leaves a message in a channel of one, if there is none yet. It never blocks.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run serves the table until ctx ends. It then finishes the batch in flight (publish and settle, for at most
// DrainTimeout), gives up its lanes and returns nil. Database and broker failures do not end it.
func (r *tableRelay) run(ctx context.Context) error {
	// The batch in flight outlives ctx by DrainTimeout: half of it published and none of it settled would be published
	// again.
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
	background.Go(func() { r.keeper.run(keeperCtx, hardStop) })
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
	if hardStop.Err() != nil {
		return fmt.Errorf("stop relay of %s: the batch in flight did not finish in time; "+
			"it will be published again", r.cfg.name())
	}
	return nil
}

// serve turns the loop: full batches at once, then PollMin, growing to PollMax while there is nothing to do.
func (w *worker) serve(ctx, hardStop context.Context) {
	trouble := time.Duration(0)
	w.idle = w.cfg.PollMin
	defer w.finishLate(hardStop)
	for ctx.Err() == nil {
		w.settleLate(hardStop)
		if by, _ := w.stoppedBy(); by != nil && by != w {
			w.succeeded() // the other one tries, and what this one publishes could not be settled
			w.pause(ctx, w.cfg.PollMax, false)
			continue
		}
		pass := w.cfg.breaker.enter(w.quarantine.alone)
		if pass.wait > 0 {
			w.pause(ctx, pass.wait, false)
			continue
		}
		lanes, until, ok := w.keeper.take(w.number)
		if !ok {
			w.cfg.breaker.leave(pass)
			w.quarantine.alone = false
			if len(lanes) == 0 {
				w.succeeded() // standing by is what it is there for
				w.records()   // what it was to settle, other relays have
			}
			w.pause(ctx, w.cfg.PollMax, true)
			continue
		}
		claimed, err := w.turn(ctx, hardStop, pass, lanes, until)
		w.keeper.linger(w.number, w.late.lanes())
		w.keeper.put(w.number)
		w.cfg.breaker.leave(pass)
		if err != nil {
			if ctx.Err() != nil && hardStop.Err() == nil {
				return // the claim was interrupted by the stop
			}
			w.failed(err)
			if class, _ := outbox.Classify(err); class == outbox.ClassUnavailable {
				continue // the breaker says when to go on
			}
			trouble = min(max(2*trouble, 100*time.Millisecond), 2*time.Second)
			w.pause(ctx, trouble, false)
			continue
		}
		trouble = 0
		w.succeeded()
		if claimed == 0 && !pass.alone && !pass.fresh {
			w.pacer.outage = pass.outage // what had gathered meanwhile is delivered
		} else if w.pacer.recovering(pass) {
			w.pause(ctx, w.cfg.breaker.pace(claimed, w.cfg.RecoveryRate), false)
		}
		switch {
		case claimed >= w.cfg.BatchRecords:
			w.idle = w.cfg.PollMin
		case claimed > 0:
			w.idle = w.cfg.PollMin
			w.pause(ctx, w.idle, true)
		case w.pacer.rest > w.cfg.PollMax:
			w.pause(ctx, w.pacer.rest, false)
		default:
			if w.pause(ctx, w.idle, true) {
				w.idle = w.cfg.PollMin
			} else {
				w.idle = min(w.idle*2, w.cfg.PollMax)
			}
		}
	}
}

// turn is one claim and, batch by batch, publish and settle; and then a trial of each suspect lane. until is when
// publishing must have ended.
func (w *worker) turn(
	ctx, hardStop context.Context, pass *ticket, lanes []outbox.Lane, until time.Time,
) (claimed int, err error) {
	if !w.cfg.begun() {
		return 0, nil
	}
	if err := w.settleAgain(hardStop, lanes); err != nil {
		return 0, err
	}
	if err := w.askOwed(hardStop, lanes); err != nil {
		return 0, err
	}
	trusted, suspects := w.quarantine.sift(lanes, &w.cfg)
	w.quarantine.alone = !pass.alone && slices.ContainsFunc(suspects, (*suspicion).single)
	if pass.alone {
		trusted = nil // the other workers are waiting
	}
	if len(trusted) > 0 {
		if claimed, err = w.turnTrusted(ctx, hardStop, pass, trusted, until); err != nil {
			return claimed, err
		}
		if proven := w.quarantine.proven(trusted); len(proven) > 0 {
			if err := w.keeper.mark(hardStop, proven...); err != nil {
				return claimed, err
			}
		}
	}
	for _, s := range suspects {
		if ctx.Err() != nil || over(until) {
			break
		}
		if s.single() != pass.alone {
			continue
		}
		if !w.cfg.breaker.resume(pass) {
			break
		}
		n, err := w.try(ctx, hardStop, pass, s, until)
		if claimed += n; err != nil {
			return claimed, err
		}
	}
	return claimed, nil
}

func (w *worker) turnTrusted(
	ctx, hardStop context.Context, pass *ticket, lanes []outbox.Lane, until time.Time,
) (claimed int, err error) {
	if w.idle == w.cfg.PollMax && w.quiet() {
		return 0, nil
	}
	t0 := time.Now()
	limit := w.pacer.limit(pass, &w.cfg)
	if w.unsettled.wholly > 0 {
		limit.Records = min(limit.Records, unsettledProbe)
	}
	records, err := w.claim(ctx, lanes, limit)
	if err != nil || len(records) == 0 {
		return 0, err
	}
	fault.Hit(fault.AfterClaim)
	w.claimed.Store(t0.UnixNano())
	took := time.Since(t0)
	// Without it, a claim that takes longer than what was left of the lease would be thrown away, and again, for ever.
	until = w.keeper.extended(lanes, until)
	if over(until) { // another relay may hold the lanes before the sink has answered
		return 0, fmt.Errorf("claim: it took %s, the lease is too close to its end to publish",
			took.Round(time.Millisecond))
	}
	claimedAt, cost, full := time.Now(), took, w.full(records)
	defer func() { w.pacer.adapt(full, cost, time.Since(claimedAt)) }()
	held := outbox.HeldKeys{}
	changes := w.keeper.paused().changes
	var down error
	for batch := range slices.Chunk(records, w.cfg.BatchRecords) {
		if !w.cfg.breaker.resume(pass) {
			break // claimed again once the others have had their turns
		}
		b := w.publishBatch(hardStop, pass, lanes, until, batch, held)
		b.report.Claim = took
		if !full && len(records) < gatherRecords && !pass.probe && !w.pacer.recovering(pass) && w.unsettled.wholly == 0 {
			b = w.gather(ctx, hardStop, pass, lanes, until, held, b)
		}
		lost, err := w.settleBatch(hardStop, pass, lanes, b, held)
		if class, _ := outbox.Classify(err); pass.probe && class == outbox.ClassUnavailable &&
			time.Since(claimedAt) < probeTime {
			down = err // what the sink can take may come in the next batch
		} else if err != nil {
			return len(records), err
		}
		took = 0
		// The rest is claimed again by whoever holds its lanes then, and after a probe that got through at the rate of
		// a recovery.
		paused := w.keeper.paused().changes != changes
		if lost || ctx.Err() != nil || over(until) || paused || pass.probe && w.cfg.breaker.recovered() {
			break
		}
	}
	if !w.cfg.breaker.isOpen() {
		return len(records), nil
	}
	return len(records), down
}

// published is what was published and is not settled yet.
type published struct {
	verdict
	claimed int  // records
	down    bool // the sink
	report  outbox.BatchReport
}

// plain tells whether everything was delivered, or left to the relays of sinks that owe it.
func (p *published) plain() bool {
	return !p.down && len(p.outcomes) == p.claimed &&
		!slices.ContainsFunc(p.outcomes, func(o outbox.Outcome) bool { return o.State != outbox.Delivered })
}

// add takes over what was published after p.
func (p *published) add(next published) {
	p.outcomes = append(p.outcomes, next.outcomes...)
	p.duplicates, p.owed = p.duplicates+next.duplicates, p.owed+next.owed
	p.unsubscribed += next.unsubscribed
	p.claimed += next.claimed
	p.down, p.unavailable = next.down, next.unavailable
	addReport(&p.report, next.report)
}

// publishBatch publishes one batch of a claim. Keys of which something was not delivered are added to held, and their
// later records are left for the next claim.
func (w *worker) publishBatch(
	hardStop context.Context,
	pass *ticket,
	lanes []outbox.Lane,
	until time.Time,
	records []*outbox.Record,
	held outbox.HeldKeys,
) published {
	began := time.Now()
	w.askSubscriptions(hardStop, records)
	batch, owner, defects := w.route(records, held)
	batch, owner, recalled := w.recall.strike(batch, owner)
	pubCtx, call := w.publishing(hardStop, lanes, until)
	fault.Hit(fault.BeforePublish)
	var results []outbox.Result
	if w.cfg.alone() {
		results = w.publishLogged(pubCtx, pass, batch)
	} else if w.cfg.routed() {
		results = w.spread(pubCtx, batch)
	} else if results = w.publish(w.patient(pubCtx), batch); !pass.probe {
		// A probe is small, and finds out whether the broker is there at all.
		w.reduce(pubCtx, batch, results)
	}
	fault.Hit(fault.AfterPublish)
	w.recall.published(batch, results)
	isolate, down := w.cfg.breaker.report(pass, results)
	if w.cfg.alone() {
		w.owe(batch, results, isolate)
	}
	for i, r := range results {
		if r.Err != nil && !isOwed(r.Err) {
			held.Hold(batch[i].Record)
		}
	}
	batch, owner, results = w.late.setAside(call, lanes, batch, owner, results)

	ended := time.Now()
	b := published{verdict: w.judge(records, batch, owner, results, defects, isolate), claimed: len(records), down: down}
	b.report = outbox.BatchReport{
		Table: w.cfg.name(), Claimed: len(records), Duplicates: b.duplicates, Recalled: recalled, Owed: b.owed,
		Unsubscribed: b.unsubscribed,
		Unavailable:  b.unavailable != nil, Publish: ended.Sub(began),
	}
	b.report.Latencies = latencies(b.outcomes, ended)
	return b
}

// latencies is BatchReport.Latencies of some outcomes.
func latencies(outcomes []outbox.Outcome, ended time.Time) (all []time.Duration) {
	for i := range outcomes {
		if o := &outcomes[i]; o.State == outbox.Delivered && len(o.Owed) == 0 &&
			!o.Record.WrittenAt.IsZero() && o.Record.Generation == 0 {
			all = append(all, ended.Sub(o.Record.WrittenAt))
		}
	}
	return all
}

// settleBatch records what became of a batch. lost says that a lane has gone to another relay.
func (w *worker) settleBatch(
	hardStop context.Context, pass *ticket, lanes []outbox.Lane, b published, held outbox.HeldKeys,
) (lost bool, err error) {
	began := time.Now()
	fault.Hit(fault.BeforeSettle)
	if len(b.outcomes) > 0 {
		w.cfg.breaker.rest(pass)
	}
	settled, refused, err := w.settle(hardStop, lanes, b.outcomes)
	b.report.Settled, b.report.Settle = settled, time.Since(began)
	for _, o := range refused {
		held.Hold(o.Record)
	}
	if err == nil && len(b.outcomes) > 0 {
		w.unsettled.judge(len(b.outcomes) == len(refused))
	}
	if b.owed > 0 {
		w.wakeOwed(b.outcomes)
	}
	if settled.Retried+settled.Dead > 0 {
		w.logFailures(b.outcomes, refused)
	}
	w.report(b.report)
	switch {
	case err != nil:
		return false, err
	case b.down:
		return false, fmt.Errorf("publish: %w", b.unavailable)
	case w.unsettled.wholly > 0:
		return false, fmt.Errorf("settle: the database records none of %d outcomes, so only a few events are claimed at a "+
			"time: look for what refuses them: %w", len(refused), w.unsettled.why)
	case len(b.outcomes) > len(refused) && settled.Delivered+settled.Retried+settled.Dead == 0:
		// The next claim brings the same records: without a pause they would be published again as fast as the loop
		// turns.
		return false, fmt.Errorf("settle: none of %d records changed: their lanes went to another relay, "+
			"something else settled them, or this role may not update them", b.claimed)
	}
	return settled.Lost > 0, nil
}

// pause waits for d, for the end of ctx or, if wakeable, for Wake, and tells whether it was woken.
func (w *worker) pause(ctx context.Context, d time.Duration, wakeable bool) (woken bool) {
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
