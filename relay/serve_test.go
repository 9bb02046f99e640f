package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// These tests are about the loop's own rules, in fake time. That it delivers from a real database
// to a real broker is tested with those.

// memory is a Store and a Sink as small as they can be: undelivered records in a slice. Fields
// ending in Err and Hook replace what the real ones could do; once the relay runs, a test reads and
// changes them in locked.
type memory struct {
	mu          sync.Mutex // held by everything but claimHook and publishHook, which may sleep
	records     []*outbox.Record
	claims      []time.Duration // when, since the first
	published   []string        // topics
	settles     int
	settled     []outbox.Outcome
	left        int // calls of Leave
	started     time.Time
	claimHook   func(context.Context)
	publishHook func(ctx context.Context, batch []outbox.Delivery) []outbox.Result
	settleErr   func(try int) error
	leaseErr    func() error
	claimErr    func(outbox.ClaimLimit) error // what Claim answers
	refuses     func(*outbox.Record) bool     // what Settle does not take
	lose        bool                          // Settle changes nothing, as if the lanes had gone
	limits      []outbox.ClaimLimit           // of the claims
	due         map[uuid.UUID]time.Time       // when what is to be retried is; nil: at once
	laneTable                                 // see lease_test.go
	receiver                                  // see process_test.go
}

// Claim returns copies, as a database does. Records behind a key that waits are left out.
func (m *memory) Claim(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if hook := m.claimHook; hook != nil {
		m.mu.Unlock()
		hook(ctx)
		m.mu.Lock()
	}
	if m.started.IsZero() {
		m.started = time.Now()
	}
	m.claims = append(m.claims, time.Since(m.started))
	m.limits = append(m.limits, limit)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if m.claimErr != nil {
		if err := m.claimErr(limit); err != nil {
			return nil, err
		}
	}
	asked, blocked := map[int16]bool{}, outbox.HeldKeys{}
	for _, key := range limit.WithoutKeys {
		blocked[key] = uuid.Nil
	}
	for _, l := range lanes {
		asked[l.Number] = true
	}
	waits := func(r *outbox.Record) bool { return len(m.due) > 0 && m.waiting(r) } // of nearly all tests nothing waits
	for _, r := range m.records {
		if waits(r) {
			blocked.Hold(r)
		}
	}
	var claimed []*outbox.Record
	bytes := 0
	for _, r := range m.records {
		if !asked[r.Lane] || waits(r) || blocked.Holds(r) || slices.Contains(limit.WithoutEvents, r.ID) {
			continue
		}
		if bytes += len(r.Payload); len(claimed) == limit.Records || len(claimed) > 0 && bytes > limit.Bytes {
			break
		}
		copied := *r
		claimed = append(claimed, &copied)
	}
	return claimed, ctx.Err()
}

func (m *memory) waiting(r *outbox.Record) bool { return time.Now().Before(m.due[r.ID]) }

func (m *memory) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	m.mu.Lock()
	hook := m.publishHook
	m.mu.Unlock()
	if hook != nil {
		if results := hook(ctx, batch); results != nil {
			return results
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, d := range batch {
		m.published = append(m.published, d.Topic)
	}
	return make([]outbox.Result, len(batch))
}

// Backlog counts what is undelivered.
func (m *memory) Backlog(context.Context, int) (outbox.Backlog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return outbox.Backlog{Count: len(m.records)}, nil
}

// Settle removes delivered and dead records; one to be retried keeps its attempts and comes when it
// is due.
func (m *memory) Settle(
	_ context.Context,
	owner uuid.UUID,
	lanes []outbox.Lane,
	outcomes []outbox.Outcome,
) (outbox.Settled, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settles++
	if m.settleErr != nil {
		if err := m.settleErr(m.settles); err != nil {
			return outbox.Settled{}, err
		}
	}
	if m.lose {
		return outbox.Settled{Lost: len(outcomes)}, nil
	}
	held := map[int16]bool{}
	for _, l := range lanes {
		held[l.Number] = m.holds(owner, l)
	}
	stored, gone := map[uuid.UUID]*outbox.Record{}, map[*outbox.Record]bool{}
	for _, o := range outcomes {
		stored[o.Record.ID] = nil
	}
	for i, found := 0, 0; i < len(m.records) && found < len(stored); i++ { // they are among the first
		if r, settled := stored[m.records[i].ID]; settled && r == nil {
			stored[m.records[i].ID] = m.records[i]
			found++
		}
	}
	var s outbox.Settled
	var refusal outbox.RefusedError
	for _, o := range outcomes {
		r := stored[o.Record.ID]
		switch {
		case r == nil:
			continue // somebody else has settled it
		case m.refuses != nil && m.refuses(r):
			refusal.Outcomes, refusal.Err = append(refusal.Outcomes, o), errors.New("a trigger says no")
			continue
		case !held[r.Lane]:
			s.Lost++
			continue
		}
		if o.State != outbox.Delivered {
			r.Attempts, r.DeliveredTo = o.Attempts, slices.Clone(o.DeliveredTo)
		}
		o.Record = r
		switch o.State {
		case outbox.Delivered:
			s.Delivered++
		case outbox.Dead:
			s.Dead++
		case outbox.Retry:
			s.Retried++
			if m.due != nil {
				m.due[r.ID] = time.Now().Add(o.RetryIn)
			}
			continue
		}
		m.settled = append(m.settled, o)
		gone[r] = true
	}
	m.records = slices.DeleteFunc(m.records, func(r *outbox.Record) bool {
		if len(gone) == 0 || !gone[r] {
			return false
		}
		delete(gone, r)
		return true
	})
	if len(refusal.Outcomes) > 0 {
		return s, &refusal
	}
	return s, nil
}

func (m *memory) add(topics ...string) {
	m.locked(func() {
		for _, topic := range topics {
			m.records = append(
				m.records,
				&outbox.Record{Event: outbox.Event{ID: uuid.New(), Topic: topic}, Position: int64(len(m.records))},
			)
		}
	})
}

func (m *memory) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// pass lets d go by and everything that is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inBubble runs a relay on m in fake time; body ends it by returning.
func inBubble(t *testing.T, m *memory, cfg Config, body func(t *testing.T, r *tableRelay)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, stop := start(t, m, cfg)
		body(t, r)
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if m.left != 1 {
			t.Errorf("left %d times, want once", m.left)
		}
	})
}

// However long the pause between two claims is, what was published is settled when the gathering is
// over.
func TestGatheringEndsInTime(t *testing.T) {
	m := &memory{}
	inBubble(t, m, Config{PollMin: time.Second, PollMax: time.Second}, func(t *testing.T, _ *tableRelay) {
		m.add("a")
		for published := 0; published == 0; m.locked(func() { published = len(m.published) }) {
			pass(time.Millisecond)
		}
		pass(gatherFor)
		m.locked(func() {
			if len(m.settled) != 1 {
				t.Errorf("%d records are settled %s after the publish, want 1", len(m.settled), gatherFor)
			}
		})
	})
}

// relayOf returns what a Relay has for one table, the first of cfg.
func relayOf(store outbox.Store, sink outbox.Sink, cfg Config, shared ...*breaker) (*tableRelay, error) {
	cfg, err := cfg.WithDefaults()
	tables, problems := cfg.served()
	if err := errors.Join(err, problems); err != nil {
		return nil, err
	}
	return newTableRelay(store, sink,
		tableConfig{Config: cfg, table: tables[0], breaker: append(shared, new(breaker))[0]}, direct{})
}

func ready(r *tableRelay) (ok bool, why string) {
	h := r.health(time.Now())
	return h.Ready, h.Reason
}

func start(
	t *testing.T, m *memory, cfg Config, shared ...*breaker,
) (r *tableRelay, stop func() error) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	if cfg.Workers == 0 {
		cfg.Workers = 1 // most of these are the rules of one loop
	}
	r, err := relayOf(m, m, cfg, shared...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.run(ctx) }()
	return r, func() error { cancel(); return <-done }
}

// FR-005: poll interval 200 ms. An idle relay grows to it from 1.5 ms and a wake-up or work takes
// it back.
func TestRelayPollsSlowerWhileIdle(t *testing.T) {
	m := &memory{}
	inBubble(t, m, Config{}, func(t *testing.T, r *tableRelay) {
		pass(time.Second)
		var got []int64
		m.locked(func() {
			for _, at := range slices.Compact(slices.Clone(m.claims)) { // the lease's own wake-up may come after the first claim
				got = append(got, at.Microseconds())
			}
		})
		want := []int64{0, 1500, 4500, 10500, 22500, 46500, 94500, 190500, 382500, 582500, 782500, 982500}
		if !slices.Equal(got, want) {
			t.Errorf("claimed after %v µs, want %v", got, want)
		}
		m.add("a")
		r.wake()
		synctest.Wait()
		var n int
		m.locked(func() {
			n = len(m.claims)
			if at := m.claims[n-1]; len(m.published) != 1 || at != time.Second {
				t.Errorf("after a wake-up: published %v, last claim at %s, want at once", m.published, at)
			}
		})
		pass(2 * time.Millisecond)
		if len(m.claims) != n+1 {
			t.Errorf("%d claims in 2 ms after work, want one", len(m.claims)-n)
		}
	})
}

// FR-005's 100 events per 200 ms would be 500 a second where 1000 are asked for: a full batch is
// followed by the next at once.
func TestRelayReclaimsFullBatchAtOnce(t *testing.T) {
	m := &memory{}
	m.add("a", "b", "c", "d", "e")
	inBubble(t, m, Config{BatchRecords: 2}, func(t *testing.T, _ *tableRelay) {
		synctest.Wait()
		if want := []string{"a", "b", "c", "d", "e"}; !slices.Equal(m.published, want) || m.claims[len(m.claims)-1] != 0 {
			t.Errorf("published %v in claims at %v, want %v at once", m.published, m.claims, want)
		}
	})
}

// FR-005: finish the current batch on shutdown.
func TestRelayStopFinishesTheBatch(t *testing.T) {
	m := &memory{}
	m.add("a", "b", "c")
	m.publishHook = func(context.Context, []outbox.Delivery) []outbox.Result { time.Sleep(3 * time.Second); return nil }
	m.settleErr = func(try int) error {
		if try == 1 {
			return errors.New("connection reset")
		}
		return nil
	}
	inBubble(t, m, Config{BatchRecords: 2}, func(t *testing.T, _ *tableRelay) { pass(time.Second) })
	if len(m.settled) != 2 || len(m.claims) != 1 {
		t.Errorf("%d records settled by %d claims, want the batch of 2 that was in flight and no other", len(m.settled),
			len(m.claims))
	}
}

func TestRelayStopGivesUpAfterDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{settleErr: func(int) error { return errors.New("database is gone") }}
		m.add("a")
		_, stop := start(t, m, Config{DrainTimeout: 4 * time.Second})
		pass(time.Second)
		asked := time.Now()
		if err := stop(); err == nil {
			t.Error("Run returned nil with a batch that was published and not settled")
		}
		if took := time.Since(asked); took != 4*time.Second {
			t.Errorf("it took %s, want the 4 s of DrainTimeout", took)
		}
	})
}

func TestRelayPublishesNothingAtTheEndOfItsLease(t *testing.T) {
	m := &memory{}
	m.add("a")
	var down bool
	m.leaseErr = func() error {
		if down {
			return errors.New("no answer")
		}
		down = true
		return nil
	}
	m.publishHook = func(context.Context, []outbox.Delivery) []outbox.Result {
		return failAll(make([]outbox.Delivery, 1), outbox.Unavailable(errors.New("down")))
	}
	inBubble(t, m, Config{LeaseTTL: 9 * time.Second, LeaseMargin: time.Second}, func(t *testing.T, r *tableRelay) {
		pass(20 * time.Second)
		m.locked(func() {
			if last := m.claims[len(m.claims)-1]; last >= 8*time.Second || last < 5*time.Second {
				t.Errorf("last claim %s after the lease was taken, want until its margin at 8 s", last)
			}
		})
		if ready, why := ready(r); ready {
			t.Errorf("a relay without a lease is ready (%s)", why)
		}
		m.locked(func() { down, m.publishHook = false, nil })
		pass(3 * time.Second)
		if len(m.published) != 1 {
			t.Errorf("published %v after the lease came back, want one", m.published)
		}
	})
}

// The claim itself may outlast the lease, in a swapped-out process for instance.
func TestRelayDropsWhatWasClaimedTooSlowly(t *testing.T) {
	frozen := false
	m := &memory{leaseErr: func() error {
		if frozen {
			return errors.New("no answer")
		}
		return nil
	}}
	m.add("a")
	slow := true
	m.claimHook = func(context.Context) {
		if slow {
			m.locked(func() { frozen = true })
			time.Sleep(9500 * time.Millisecond)
			m.locked(func() { frozen = false })
		}
		slow = false
	}
	var at []time.Duration
	m.publishHook = func(ctx context.Context, _ []outbox.Delivery) []outbox.Result {
		at = append(at, time.Since(m.started))
		if ctx.Err() != nil {
			t.Errorf("publish was called with a context that has ended: %v", ctx.Err())
		}
		return nil
	}
	inBubble(t, m, Config{}, func(t *testing.T, _ *tableRelay) {
		pass(12 * time.Second)
		if len(at) != 1 || len(m.claims) < 2 || at[0] < m.claims[1] {
			t.Errorf("published at %v, claimed at %v: want one publish, of the second claim", at, m.claims)
		}
	})
}

// A claim that takes nearly as long as the lease every time is published all the same while the
// lease is renewed; thrown away, it would be claimed for ever.
func TestRelayWithSlowClaims(t *testing.T) {
	m := &memory{claimHook: func(context.Context) { time.Sleep(9500 * time.Millisecond) }}
	m.add("a")
	inBubble(t, m, Config{}, func(t *testing.T, _ *tableRelay) {
		pass(10 * time.Second)
		if len(m.published) != 1 {
			t.Errorf("published %v after the first claim, want one", m.published)
		}
	})
}

// A row that takes a minute to read is read in the end: the next claim is given more time than the
// one that ran out of it.
func TestRelayGivesASlowClaimMoreTime(t *testing.T) {
	m := &memory{claimHook: func(ctx context.Context) {
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	}}
	m.add("a")
	inBubble(t, m, Config{}, func(t *testing.T, _ *tableRelay) {
		pass(4 * time.Minute) // 10 s, 20 s, 40 s, then one that may take 80 s, and pauses between them
		if len(m.published) != 1 {
			t.Errorf("published %v, claimed at %v: want one", m.published, m.claims)
		}
	})
}

func TestRelaySettlesUntilItSucceeds(t *testing.T) {
	m := &memory{settleErr: func(try int) error {
		if try < 5 {
			return errors.New("connection reset")
		}
		return nil
	}}
	m.add("a")
	inBubble(t, m, Config{}, func(t *testing.T, _ *tableRelay) {
		pass(5 * time.Second)
		if len(m.published) != 1 || len(m.settled) != 1 || m.settles != 5 {
			t.Errorf("published %d times, settled %d records in %d tries, want 1, 1, 5", len(m.published), len(m.settled),
				m.settles)
		}
	})
}

func TestRelaySurvivesAPanicOfItsSink(t *testing.T) {
	m := &memory{publishHook: func(context.Context, []outbox.Delivery) []outbox.Result { panic("nil map") }}
	m.add("a")
	inBubble(t, m, Config{MaxAttempts: 3}, func(t *testing.T, _ *tableRelay) {
		pass(time.Second)
		if len(m.settled) != 1 || m.settled[0].State != outbox.Dead || m.settled[0].Attempts != 3 {
			t.Errorf("settled %+v, want one dead after 3 attempts", m.settled)
		}
	})
}

func TestRelayCountsNoAttemptsWhileTheBrokerIsDown(t *testing.T) {
	m := &memory{}
	m.add("a")
	tries := 0
	m.publishHook = func(_ context.Context, batch []outbox.Delivery) []outbox.Result {
		m.locked(func() { tries++ })
		return failAll(batch, outbox.Unavailable(errors.New("connection refused")))
	}
	inBubble(t, m, Config{MaxAttempts: 2}, func(t *testing.T, r *tableRelay) {
		pass(time.Minute)
		m.locked(func() {
			if tries < 25 || tries > 40 { // every 2 s once it has backed off
				t.Errorf("%d tries in a minute", tries)
			}
		})
		if ready, why := ready(r); ready {
			t.Errorf("a relay whose broker is down is ready (%s)", why)
		}
		m.locked(func() { m.publishHook = nil })
		pass(3 * time.Second)
		if len(m.settled) != 1 || m.settled[0].State != outbox.Delivered || m.settled[0].Record.Attempts != 0 {
			t.Errorf("settled %+v, want it delivered without an attempt burnt", m.settled)
		}
		if ready, why := ready(r); !ready {
			t.Errorf("not ready after recovery: %s", why)
		}
	})
}

func TestRelayTakesAWrongAnswerForUnknown(t *testing.T) {
	m := &memory{publishHook: func(context.Context, []outbox.Delivery) []outbox.Result { return make([]outbox.Result, 7) }}
	m.add("a", "b")
	inBubble(t, m, Config{}, func(t *testing.T, _ *tableRelay) {
		pass(time.Second)
		if len(m.settled) != 0 || m.records[0].Attempts != 0 {
			t.Errorf("settled %+v after 7 results for 2 deliveries", m.settled)
		}
	})
}

// Records that come back however often they are settled (the lanes went elsewhere, a policy hides
// the update) must neither make the loop spin nor look like progress.
func TestRelayBacksOffFromWhatItCannotSettle(t *testing.T) {
	m := &memory{lose: true}
	m.add("a", "b")
	inBubble(t, m, Config{BatchRecords: 2}, func(t *testing.T, r *tableRelay) {
		pass(20 * time.Second)
		m.locked(func() {
			if n := len(m.published); n == 0 || n > 2*20 {
				t.Errorf("published %d times in 20 s, want a few", n)
			}
		})
		if ok, why := ready(r); ok ||
			!strings.Contains(why, "none of 2 records") {
			t.Errorf("ready %t, %q", ok, why)
		}
		m.locked(func() { m.lose = false })
		pass(3 * time.Second)
		if ok, why := ready(r); !ok {
			t.Error(why)
		}
	})
}

// A claim brings several batches. What failed in one holds back its key in the next ones, and only
// that.
func TestRelayHoldsAKeyOverTheBatchesOfAClaim(t *testing.T) {
	m := &memory{}
	m.add("a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4")
	for _, r := range m.records {
		r.Keyed, r.OrderKey = true, int64(r.Topic[0])
	}
	failed := false
	var published []string
	m.publishHook = func(_ context.Context, batch []outbox.Delivery) []outbox.Result {
		results := make([]outbox.Result, len(batch))
		for i, d := range batch {
			published = append(published, d.Topic)
			if d.Topic == "a2" && !failed {
				failed = true
				results[i].Err = errors.New("refused")
			}
		}
		return results
	}
	inBubble(t, m, Config{BatchRecords: 2, Backoff: Backoff{Base: time.Second, Jitter: -1}},
		func(t *testing.T, _ *tableRelay) {
			synctest.Wait()
			if want := []string{"a1", "b1", "a2", "b2", "b3", "b4", "a2", "a3", "a4"}; !slices.Equal(published, want) ||
				len(m.claims) < 2 {
				t.Errorf("published %v, want %v: nothing of a after a2 failed, until the next claim", published, want)
			}
		})
}
