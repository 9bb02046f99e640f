package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// leaseKeeper holds the lanes of one relay: it renews them in the background, takes more when there
// are more to take, and hands some over when a relay joins. What it believes to hold ends on the
// local clocks, counted from before the request was sent. So it can only end earlier than the
// database's expiry, however slow the reply was.
//
//	           free or lapsed, within our share         more than our share, or leaving
//	nobody's ─────────────────────────────────► ours ─────────────────────────────────► surplus
//	   ▲  ▲                                      │ ▲                                       │
//	   │  └── its time is over: the database ────┘ │ a third of its time is gone: renewed  │
//	   │      was away, or this process slept      └────────────────────────────────       │
//	   └──────────────────────────── no worker uses it: released ──────────────────────────┘
type leaseKeeper struct {
	store   outbox.Store
	cfg     leaseConfig
	seen    *atomic.Pointer[glance]
	changed func() // is called when there is something else to do than before: other lanes, another pause
	// disturbed: there is something to check at once. A worker has put lanes back that are to be
	// handed over, the relay is to stop, or a look has found other leases.
	disturbed chan struct{}
	origin    atomic.Uint64 // Leased.Origin

	mu       sync.Mutex
	leaving  bool // told to stop: what no worker is using is handed over
	stopped  time.Time
	lanes    []outbox.Lane // in the order of their numbers
	share    int           // how many of them to keep; the rest, those with the highest numbers, are handed over
	until    time.Time
	using    [][]outbox.Lane // by worker: what it is publishing or settling now
	late     [][]outbox.Lane // by worker: of what answers are still to come
	begun    []time.Time     // by worker: when its turn began; zero: it has none
	oldest   []time.Time     // by worker: when the oldest turn began that has answers still to come; zero: none
	pauses   pauses
	obeys    outbox.Paused  // LeaseRequest.Paused
	feeds    []*leaseKeeper // of tables whose workers publish directly to the sink whose pending deliveries these are
	renewed  time.Time
	known    string    // Watched.Leases from before renewed
	cautious time.Time // until when no lapsed lane is taken, because the database was away
	returned bool      // the last check was the first after an outage
	health   string    // LeaseRequest.Health
	told     string    // that of the last request that succeeded
	lastErr  error
}

// over tells whether a time has come by either of this machine's clocks. The monotonic one, which
// nobody sets, stands still while the machine sleeps. The wall clock does not, and set forward it
// ends a lease too soon, which the next renewal mends.
func over(until time.Time) bool {
	now := time.Now()
	return !now.Before(until) || !now.Round(0).Before(until.Round(0))
}

// leaseConfig is what a keeper needs to know of its relay's Config.
type leaseConfig struct {
	owner           uuid.UUID
	table, instance string
	serves          string // LeaseRequest.Serves
	ttl, margin     time.Duration
	timeout         time.Duration // of a mark
	drain           time.Duration // for what is in flight once told to stop
	workers         int
	logger          *slog.Logger
}

func newLeaseKeeper(store outbox.Store, cfg leaseConfig, seen *atomic.Pointer[glance], changed func()) *leaseKeeper {
	return &leaseKeeper{
		store: store, cfg: cfg, seen: seen, changed: changed, disturbed: make(chan struct{}, 1),
		using: make([][]outbox.Lane, cfg.workers), late: make([][]outbox.Lane, cfg.workers),
		begun: make([]time.Time, cfg.workers), oldest: make([]time.Time, cfg.workers),
	}
}

// checksPerLease is how often in a lease's time its keeper asks the database. Asking writes nothing
// unless something is due: renewals are, once a third of the time is gone.
const (
	checksPerLease = 6
	maxCheck       = 500 * time.Millisecond // so that a relay that leaves is succeeded within a second
)

// take gives a worker its part of the lanes until it puts them back, and says until when they may
// be used for publishing. ok is false if there are none or the margin before the end has begun. A
// lane always falls to the same worker.
func (k *leaseKeeper) take(worker int) (lanes []outbox.Lane, until time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, l := range k.lanes {
		if i >= k.share && !slices.ContainsFunc(k.late[worker], isOf(l)) {
			continue // about to be handed over; one that waits for an answer is served until then
		}
		if k.pauses.Table {
			break // as one that stands by
		}
		if workerOf(l.Number, k.cfg.workers) == worker {
			lanes = append(lanes, l)
		}
	}
	until = k.until.Add(-k.cfg.margin)
	ok = len(lanes) > 0 && !over(until)
	if ok {
		k.using[worker], k.begun[worker] = lanes, time.Now()
	}
	return lanes, until, ok
}

// extended returns until when the lanes that take gave may be used by now: they may have been
// renewed meanwhile.
func (k *leaseKeeper) extended(lanes []outbox.Lane, until time.Time) time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range lanes {
		if !slices.ContainsFunc(k.lanes, isOf(l)) {
			return until
		}
	}
	if renewed := k.until.Add(-k.cfg.margin); renewed.After(until) {
		return renewed
	}
	return until
}

// renewedAfter tells whether a lease check that began after a time has succeeded.
func (k *leaseKeeper) renewedAfter(t time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.renewed.After(t)
}

// put ends what take began.
func (k *leaseKeeper) put(worker int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.using[worker], k.begun[worker] = nil, time.Time{}
	if len(k.lanes) > k.share || !samePauses(k.obeys, k.pauses.Paused) {
		signal(k.disturbed)
	}
}

// linger notes the lanes of which a worker has something under way: they are not handed over.
// oldest is when the first turn of that began.
func (k *leaseKeeper) linger(worker int, lanes []outbox.Lane, oldest time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(lanes) < len(k.late[worker]) && len(k.lanes) > k.share {
		signal(k.disturbed)
	}
	k.late[worker], k.oldest[worker] = lanes, oldest
}

// endedBefore tells whether every turn that began before a time has ended, and all its answers have
// come.
func (k *leaseKeeper) endedBefore(at time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(slices.Concat(k.begun, k.oldest), func(began time.Time) bool {
		return !began.IsZero() && !began.After(at)
	})
}

// obey takes over the pauses of the last lease check once nothing is in flight that began before
// them.
func (k *leaseKeeper) obey() {
	now := k.paused()
	for _, of := range append(k.feeds, k) {
		if !of.endedBefore(now.since) {
			return
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.obeys = now.Paused
}

// still returns those of some lanes that are held.
func (k *leaseKeeper) still(lanes []outbox.Lane) (held []outbox.Lane) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, l := range lanes {
		if slices.ContainsFunc(k.lanes, isOf(l)) && !slices.ContainsFunc(held, isOf(l)) {
			held = append(held, l)
		}
	}
	return held
}

// mark makes what is known of suspect lanes outlive this process.
func (k *leaseKeeper) mark(ctx context.Context, lanes ...outbox.Lane) error {
	ctx, cancel := context.WithTimeout(ctx, k.cfg.timeout)
	defer cancel()
	if err := k.store.Mark(ctx, k.cfg.owner, lanes); err != nil {
		return fmt.Errorf("mark lanes: %w", err)
	}
	return nil
}

// run keeps the lease until ctx ends. After a failure it asks again soon. Two failures a third of
// the lease apart, as when sessions are being terminated, would be the end of the lease although
// the database is well. A check under way is finished, unless hardStop ends too. A server that has
// got a statement may carry it out after it was broken off, and take lanes that were given up
// meanwhile. If the table has another reader, run ends at once with an *outbox.ReaderError.
func (k *leaseKeeper) run(ctx, hardStop context.Context) error {
	for {
		pause := min(k.cfg.ttl/checksPerLease, maxCheck)
		if !k.undisturbed() {
			if err := k.check(hardStop); refused(err) {
				k.drop()
				return err
			} else if err != nil {
				pause = k.cfg.ttl / 30
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.disturbed:
		case <-time.After(pause):
		}
	}
}

// refused tells whether the table has another reader than this relay.
func refused(err error) bool {
	_, ok := errors.AsType[*outbox.ReaderError](err)
	return ok
}

// drop forgets the lanes, so that no worker begins another turn.
func (k *leaseKeeper) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lanes, k.share = nil, 0
}

// undisturbed tells that a check would find and change nothing: a look since the last one found the
// same leases, and no renewal is due.
func (k *leaseKeeper) undisturbed() bool {
	g := k.seen.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	return g.fresh() && g.Leases == k.known && k.lastErr == nil && k.told == k.health && !k.leaving &&
		samePauses(k.obeys, k.pauses.Paused) &&
		len(k.lanes) == k.share &&
		time.Until(k.until) > k.cfg.ttl*2/3 && !over(k.until)
}

// check renews and takes, and hands over what another relay should have.
func (k *leaseKeeper) check(ctx context.Context) error {
	if err := k.renew(ctx); err != nil {
		return err
	}
	surplus := k.surplus()
	if len(surplus) == 0 {
		return nil
	}
	reqCtx, cancel := context.WithTimeout(ctx, k.cfg.ttl/3)
	defer cancel()
	if err := k.store.Release(reqCtx, k.cfg.owner, surplus); err != nil {
		return k.failed(ctx, fmt.Errorf("hand over %d lanes: %w", len(surplus), err))
	}
	if err := k.renew(ctx); err != nil {
		return err
	}
	k.keep(surplus)
	return nil
}

// keep goes on serving lanes that should have gone and are still held, because somebody has their
// rows locked, until the next check.
func (k *leaseKeeper) keep(surplus []outbox.Lane) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if slices.ContainsFunc(surplus, func(l outbox.Lane) bool {
		return slices.ContainsFunc(k.lanes, isOf(l))
	}) {
		k.share = len(k.lanes)
	}
}

// surplus takes the lanes that another relay should have, and no worker is using, out of what is
// held.
//
// A lane is handed over between two turns, never in one: the next holder would publish again what
// is in flight.
func (k *leaseKeeper) surplus() (surplus []outbox.Lane) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.lanes) <= k.share {
		return nil
	}
	busy := map[int16]bool{}
	for _, lanes := range slices.Concat(k.using, k.late) {
		for _, l := range lanes {
			busy[l.Number] = true
		}
	}
	keep := slices.Clone(k.lanes[:k.share])
	for _, l := range k.lanes[k.share:] {
		if busy[l.Number] {
			keep = append(keep, l)
		} else {
			surplus = append(surplus, l)
		}
	}
	k.lanes = keep
	return surplus
}

func (k *leaseKeeper) renew(ctx context.Context) error {
	asked := time.Now()
	known := ""
	if g := k.seen.Load(); g != nil {
		known = g.Leases
	}
	reqCtx, cancel := context.WithTimeout(ctx, k.cfg.ttl/3)
	defer cancel()
	k.obey()
	k.mu.Lock()
	request := outbox.LeaseRequest{
		Owner:   k.cfg.owner,
		Name:    k.cfg.instance,
		TTL:     k.cfg.ttl,
		Leaving: k.leaving,
		Health:  k.health,
		Serves:  k.cfg.serves,
		Paused:  k.obeys,
	}
	// Once an outage: on a machine so slow that every check comes too late, nobody would ever take
	// over.
	away := k.lastErr != nil && !k.renewed.IsZero() && asked.Sub(k.renewed) > k.cfg.ttl && !k.returned
	request.Returning = away || asked.Before(k.cautious)
	k.mu.Unlock()
	leased, err := k.store.Lease(reqCtx, request)
	if err != nil {
		return k.failed(ctx, err)
	}
	k.origin.Store(leased.Origin)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.returned = away
	if away { // the others find it back within their next check, and what they do not come for lapses again
		k.cautious = asked.Add(k.cfg.ttl)
	}
	k.lastErr, k.renewed, k.known, k.told = nil, asked, known, request.Health
	if k.pauses.change(leased.Paused) {
		k.pauses.log(k.cfg.logger, k.cfg.table)
		k.changed()
		signal(k.disturbed) // to report it
	}
	before := len(k.lanes)
	k.lanes, k.share, k.until = leased.Lanes, leased.Share, asked.Add(leased.Remaining)
	if len(k.lanes) != before {
		k.cfg.logger.Info("lanes held", "table", k.cfg.table, "lanes", len(k.lanes), "before", before, "share", k.share)
		k.changed()
	}
	return nil
}

// tell has the database say what hinders the relay. Nothing is written unless it is something else
// than before.
func (k *leaseKeeper) tell(health string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if health != k.health && k.lastErr == nil && !k.renewed.IsZero() { // else the lease itself is the trouble, and shows
		k.health = health
		signal(k.disturbed)
	}
}

// failed notes an error. Of errors in a row the first is logged.
func (k *leaseKeeper) failed(ctx context.Context, err error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ctx.Err() == nil && k.lastErr == nil && !refused(err) {
		left := max(time.Until(k.until), 0).Round(time.Millisecond)
		k.cfg.logger.Warn("cannot renew lease", "table", k.cfg.table, "error", err, "valid_for", left.String())
	}
	k.lastErr = err
	return err
}

// stop has lanes handed over as they come free. A publish that hangs may take as long as
// DrainTimeout, and its neighbours' lanes would have nobody.
func (k *leaseKeeper) stop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.leaving, k.stopped = true, time.Now()
	signal(k.disturbed)
}

// leave gives the lanes back so that a successor starts at once. ctx is the one of Run, which has
// ended.
func (k *leaseKeeper) leave(ctx context.Context) error {
	k.drop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.cfg.ttl/3)
	defer cancel()
	if err := k.store.Leave(ctx, k.cfg.owner); err != nil {
		return fmt.Errorf("release lanes (they lapse by themselves within %s): %w", k.cfg.ttl, err)
	}
	return nil
}

// isOf tells whether a lease is that of a lane, since the same take-over.
func isOf(l outbox.Lane) func(held outbox.Lane) bool {
	return func(held outbox.Lane) bool { return l.Number == held.Number && l.Epoch == held.Epoch }
}

// paused returns what is paused now.
func (k *leaseKeeper) paused() pauses {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pauses
}

// holdCheck is how often a publish looks whether its lanes are still held.
const holdCheck = 500 * time.Millisecond

// hold returns a context that ends at the deadline, or when the lease of the call's lanes was not
// renewed. A publish may outlast the lease that it began with: one that ended there would never get
// an event through that takes longer than what its claim has left of it (25 MB, on a busy machine).
// If the relay is to stop, the context of a sink with a Timeout ends early enough for the settle.
func (k *leaseKeeper) hold(ctx context.Context, c *call, until, deadline time.Time) context.Context {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	var look *time.Timer
	look = time.AfterFunc(time.Hour, func() { // not before look is set
		if until = k.extended(*c.lanes.Load(), until); over(until) || c.slow && k.drained() {
			cancel()
		}
		if ctx.Err() == nil {
			look.Reset(min(time.Until(until), holdCheck))
		}
	})
	look.Reset(min(time.Until(until), holdCheck))
	c.end = func() { cancel(); look.Stop() }
	return ctx
}

// drained tells whether the part of the time to stop is over that publishing has.
func (k *leaseKeeper) drained() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.leaving && time.Since(k.stopped) > k.cfg.drain*2/3
}

// glance is the last look at a table.
type glance struct {
	outbox.Watched
	asked time.Time // when the look began: what was committed before is seen
}

// freshFor is how long after a look what it found is relied on. Looks that fail are followed by
// none, and whoever relied on them asks by himself again.
const freshFor = time.Second

func (g *glance) fresh() bool { return g != nil && time.Since(g.asked) < freshFor }

// call is a call of a sink and what it has left under way. Its context ends when lanes are held no
// more.
type call struct {
	slow  bool      // of a sink whose Timeout is longer than others'
	began time.Time // the turn's beginning
	end   context.CancelFunc
	lanes atomic.Pointer[[]outbox.Lane]
}

// workerOf is which of so many workers serves a lane.
func workerOf(lane int16, workers int) int { return int(lane) % workers }

// signal leaves a message in a channel of one, if there is none yet. It never blocks.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
