package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
)

func relayTests() []storeTest {
	return []storeTest{
		{name: "two relays deliver everything once and in order, though one of them vanishes", run: deliversThroughCrash,
			notInLog: noSingle},
		{name: "a relay delivers each kind of table through its layout", run: deliversEveryTable, notInLog: noSingle},
		{name: "a failing event is tried again, then dead, and its key goes on", run: retriesThenBuries,
			notInLog: noSingle},
		{name: "a handler's failures keep their names, and its panics are their own", run: namesFailures, notInLog: noSingle},
		{name: "what a sink postpones waits with its key, and no attempt is counted", run: postpones,
			notInLog: noSingle},
		{name: "a relay that is told to stop hands its lanes over at once", run: handsOverAtStop, notInLog: noSingle},
		{name: "events that come one by one are settled together", run: settlesTogether, notInLog: noSingle},
	}
}

// recorder is a sink that remembers what it got, and refuses copies as the sinks with a window do.
type recorder struct {
	mu       sync.Mutex
	received []Received
	seen     map[string]bool
	fails    func(d outbox.Delivery) error // or nil
}

func (k *recorder) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	results, failed := make([]outbox.Result, len(batch)), map[int64]bool{}
	for i, d := range batch {
		if d.Keyed && failed[d.OrderKey] {
			results[i].Err = outbox.ErrNotAttempted
			continue
		}
		if k.fails != nil {
			if results[i].Err = k.fails(d); results[i].Err != nil {
				failed[d.OrderKey] = d.Keyed
				continue
			}
		}
		id := fmt.Sprint(d.ID, d.Destination, d.Generation)
		if k.seen[id] {
			results[i].Duplicate = true
			continue
		}
		if k.seen == nil {
			k.seen = map[string]bool{}
		}
		k.seen[id] = true
		k.received = append(k.received,
			Received{ID: d.ID.String(), Key: d.AggregateID, Destination: d.Destination, At: time.Now()})
	}
	return results
}

func (k *recorder) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.received)
}

// destinations are those of the messages, in the order in which they came.
func (k *recorder) destinations() (all []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.received {
		all = append(all, m.Destination)
	}
	return all
}

// until waits for n messages.
func (k *recorder) until(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); k.count() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d messages arrived", k.count(), n)
		}
	}
}

// process is one relay's, which may die: then nothing it does reaches the table or the sink any
// more.
type process struct {
	outbox.Store
	outbox.Sink
	dead *atomic.Bool
}

var errVanished = errors.New("the process is dead")

func (p *process) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	if p.dead.Load() {
		results := make([]outbox.Result, len(batch))
		for i := range results {
			results[i].Err = outbox.Unavailable(errVanished)
		}
		return results
	}
	return p.Sink.Publish(ctx, batch)
}

func (p *process) Claim(ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit) ([]*outbox.Record, error) {
	if p.dead.Load() {
		return nil, errVanished
	}
	return p.Store.Claim(ctx, lanes, limit)
}

func (p *process) Settle(
	ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome,
) (outbox.Settled, error) {
	if p.dead.Load() {
		return outbox.Settled{}, errVanished
	}
	return p.Store.Settle(ctx, owner, lanes, outcomes)
}

func (p *process) Lease(ctx context.Context, r outbox.LeaseRequest) (outbox.Leased, error) {
	if p.dead.Load() {
		return outbox.Leased{}, errVanished
	}
	return p.Store.Lease(ctx, r)
}

func (p *process) Release(ctx context.Context, owner uuid.UUID, lanes []outbox.Lane) error {
	if p.dead.Load() {
		return errVanished
	}
	return p.Store.Release(ctx, owner, lanes)
}

func (p *process) Leave(ctx context.Context, owner uuid.UUID) error {
	if p.dead.Load() {
		return errVanished
	}
	return p.Store.Leave(ctx, owner)
}

// start runs a relay of one table and returns what stops it and waits for it. It is stopped when t
// ends, if not before.
func start(t *testing.T, store outbox.Store, sink outbox.Sink, cfg relay.Config) (stop func()) {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.PollMin, cfg.PollMax, cfg.DrainTimeout = time.Millisecond, 20*time.Millisecond, 5*time.Second
	if len(cfg.Tables) == 0 {
		cfg.Tables = []relay.Table{{Layout: outbox.OutboxEvents()}}
	}
	r, err := relay.New(tabletest.OneTable{Store: store}, sink, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // one that was killed says so
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func deliversThroughCrash(t *testing.T, s *storeSuite) {
	const keys, each = 50, 40
	sink := &recorder{}
	var h History
	for i := range each {
		var batch []outbox.Event
		for k := range keys {
			e := keyed("order.placed", fmt.Sprintf("order-%d", k))
			e.ID = tabletest.NewID(t)
			batch = append(batch, e)
			outcome := Acknowledged
			if i%10 == 9 {
				outcome = RolledBack
			}
			h.Written = append(h.Written, Written{ID: e.ID.String(), Key: e.AggregateID, Order: int64(i), Outcome: outcome})
		}
		if err := s.Write(t.Context(), outbox.WriterConfig{}, i%10 != 9, batch); err != nil {
			t.Fatal(err)
		}
	}
	cfg := relay.Config{LeaseTTL: time.Second, BatchRecords: 60, Workers: 2}
	victim := &process{Store: s.Table(t, outbox.OutboxEvents()), Sink: sink, dead: new(atomic.Bool)}
	stop := start(t, victim, victim, cfg)
	start(t, s.Table(t, outbox.OutboxEvents()), sink, cfg)
	sink.until(t, 500)
	victim.dead.Store(true)
	stop()
	sink.until(t, keys*each*9/10)
	time.Sleep(100 * time.Millisecond) // for what should not come
	sink.mu.Lock()
	defer sink.mu.Unlock()
	h.Received = sink.received
	if err := Check(h).Err(); err != nil {
		t.Error(err)
	}
}

func deliversEveryTable(t *testing.T, s *storeSuite) {
	s.rows.MakeRun(t)
	mapped := s.Mapped(t)
	to, err := outbox.ParseTemplate("to.{topic}")
	if err != nil {
		t.Fatal(err)
	}
	s.Exec(t, `INSERT INTO legacy (uid, kind, body, customer) VALUES (?1, 'paid', '{}', '7')`, tabletest.NewID(t).String())
	for table, layout := range map[string]outbox.Layout{"outbox_events": outbox.OutboxEvents(),
		"event_outbox": outbox.EventOutbox(), "crawl_outbox": outbox.CrawlOutbox(), "legacy": mapped} {
		if table != "legacy" {
			s.rows.Place(t, table, "paid", "7")
		}
		sink := &recorder{}
		stop := start(t, s.Table(t, layout), sink, relay.Config{
			Tables: []relay.Table{{Layout: layout, Destination: to}},
		})
		sink.until(t, 1)
		stop()
		if got := sink.received[0].Destination; got != "to.paid" {
			t.Errorf("%s: delivered to %s", table, got)
		}
		if b, err := s.Table(t, layout).Backlog(t.Context(), 10); err != nil || b.Count != 0 {
			t.Errorf("%s: backlog %+v, error %v", table, b, err)
		}
	}
}

func retriesThenBuries(t *testing.T, s *storeSuite) {
	tries := map[string]int{}
	sink := &recorder{fails: func(d outbox.Delivery) error {
		tries[d.Topic]++
		if d.Topic == "bad" || d.Topic == "shaky" && tries[d.Topic] < 3 {
			return errors.New("not now")
		}
		return nil
	}}
	s.commits(t, keyed("before", "a"), keyed("bad", "a"), keyed("after", "a"), keyed("shaky", "b"), keyed("last", "b"))
	stop := start(t, s.Table(t, outbox.OutboxEvents()), sink,
		relay.Config{MaxAttempts: 3, Backoff: relay.Backoff{Base: time.Millisecond, Factor: 1, Cap: time.Millisecond}})
	sink.until(t, 4)
	stop()
	if tries["bad"] != 3 || tries["shaky"] != 3 || tries["after"] != 1 || tries["last"] != 1 {
		t.Errorf("tries %v", tries)
	}
	wantHistory(t, s.Value(t, "SELECT error_history FROM job_dlq WHERE type = 'bad'"), "not now", "not now", "not now")
	s.wantsSent(t, 4, 5)
}

// Of six events the handler panics at one and runs out of time at another, in the middle of its
// batch. Each failure is one call, and no other event is handed over again.
func namesFailures(t *testing.T, s *storeSuite) {
	var mu sync.Mutex
	calls := map[string]int{}
	sink := outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		mu.Lock()
		calls[d.Topic]++
		mu.Unlock()
		switch d.Topic {
		case "panics":
			panic("no customer")
		case "late":
			return fmt.Errorf("ask the bank: %w", context.DeadlineExceeded)
		case "unheard":
			err := outbox.Because(outbox.ReasonHandlerMissing, errors.New("no handler"))
			return fmt.Errorf("handle: %w", outbox.Permanent(err))
		case "invalid":
			return outbox.Because("Validation", errors.New("no total"))
		}
		return nil
	})
	want := map[string]int{"first": 1, "panics": 3, "late": 3, "unheard": 1, "invalid": 3, "last": 1}
	for _, topic := range []string{"first", "panics", "late", "unheard", "invalid", "last"} {
		s.commits(t, keyed(topic, topic))
	}
	stop := start(t, s.Table(t, outbox.OutboxEvents()), sink, relay.Config{Workers: 1, MaxAttempts: 3,
		Backoff: relay.Backoff{Base: time.Millisecond, Factor: 1, Cap: time.Millisecond}})
	s.untilCount(t, letters, 4)
	s.untilCount(t, "SELECT count(*) FROM outbox_events WHERE status IN ('NEW', 'FAILED')", 0)
	stop()
	if fmt.Sprint(calls) != fmt.Sprint(want) {
		t.Errorf("calls %v, want %v", calls, want)
	}
	for topic, failure := range map[string]struct{ reason, text string }{
		"panics":  {"DeliveryFailed", "panic: no customer"},
		"late":    {"HandlerTimeout", "HandlerTimeout: ask the bank: context deadline exceeded"},
		"unheard": {"HandlerMissing", "handle: HandlerMissing: no handler"},
		"invalid": {"DeliveryFailed", "Validation: no total"},
	} {
		if got := s.Value(t, "SELECT error_reason FROM job_dlq WHERE type = ?1", topic); got != failure.reason {
			t.Errorf("%s: the letter's reason is %s, want %s", topic, got, failure.reason)
		}
		history := slices.Repeat([]string{failure.text}, want[topic])
		wantHistory(t, s.Value(t, "SELECT error_history FROM job_dlq WHERE type = ?1", topic), history...)
	}
}

func postpones(t *testing.T, s *storeSuite) {
	var asked, rests atomic.Int64
	rests.Store(1)
	sink := &recorder{fails: func(d outbox.Delivery) error {
		if d.Destination != "resting" || rests.Load() == 0 {
			return nil
		}
		asked.Add(1)
		return outbox.Postponed(errors.New("it rests"), 5*time.Millisecond)
	}}
	waiting, both := keyed("waiting", "a"), keyed("both", "c")
	waiting.Destinations, both.Destinations = []string{"resting"}, []string{"other", "resting"}
	s.commits(t, waiting, keyed("behind", "a"), both, keyed("free", "b"))
	start(t, s.Table(t, outbox.OutboxEvents()), sink, relay.Config{MaxAttempts: 1})
	sink.until(t, 2)
	for before := asked.Load(); asked.Load() < before+10; {
		s.untilCount(t, letters, 0) // with one attempt, the first that counts is the last
	}
	s.untilCount(t, "SELECT count(*) FROM outbox_events WHERE event_topic IN ('waiting', 'both') AND retry_count = 0 "+
		"AND next_retry_at IS NOT NULL AND error_message IS NULL", 2)
	if got := sink.destinations(); slices.Contains(got, "resting") || slices.Contains(got, "behind") {
		t.Errorf("%q were delivered while an endpoint rested", got)
	}
	rests.Store(0)
	s.untilCount(t, "SELECT count(*) FROM outbox_events WHERE status <> 'SENT' OR retry_count > 0", 0)
	s.untilCount(t, letters, 0)
	if sink.count() != 5 {
		t.Errorf("%d messages arrived, want 5: each once", sink.count())
	}
}

func handsOverAtStop(t *testing.T, s *storeSuite) {
	sink := &recorder{}
	cfg := relay.Config{LeaseTTL: time.Minute}
	stop := start(t, s.Table(t, outbox.OutboxEvents()), sink, cfg)
	s.commits(t, keyed("one", "a"))
	sink.until(t, 1)
	stop()
	start(t, s.Table(t, outbox.OutboxEvents()), sink, cfg)
	s.commits(t, keyed("two", "a"))
	sink.until(t, 2) // long before the minute is over
}

// settles counts what a relay has settled, and how often it did.
type settles struct {
	outbox.Observer         // of what else a relay does: nothing calls it
	table            string // "": of all
	times, delivered atomic.Int64
}

func (c *settles) ObserveBatch(b outbox.BatchReport) {
	if b.Settled.Delivered > 0 && (c.table == "" || c.table == b.Table) {
		c.times.Add(1)
		c.delivered.Add(int64(b.Settled.Delivered))
	}
}

// chain is events of a key that are written one at a time.
type chain struct {
	s       *storeSuite
	want    []string // their topics
	written int
}

// next writes the next event, if there is one.
func (c *chain) next(ctx context.Context) error {
	if c.written == len(c.want) {
		return nil
	}
	c.want[c.written] = fmt.Sprintf("chained-%02d", c.written)
	c.written++
	return c.s.Write(ctx, outbox.WriterConfig{}, true, []outbox.Event{keyed(c.want[c.written-1], "a")})
}

// Each event is written while the one before it is published, and one of them fails at first.
func settlesTogether(t *testing.T, s *storeSuite) {
	const events, fails = 40, 20
	all := &chain{s: s, want: make([]string, events)}
	if err := all.next(t.Context()); err != nil {
		t.Fatal(err)
	}
	failed := false
	sink := &recorder{fails: func(outbox.Delivery) error {
		if all.written == fails && !failed {
			failed = true
			return errors.New("not yet")
		}
		if err := all.next(t.Context()); err != nil {
			t.Error(err)
		}
		return nil
	}}
	var settled settles
	stop := start(t, s.Table(t, outbox.OutboxEvents()), sink, relay.Config{
		Observer: &settled, Backoff: relay.Backoff{Base: time.Millisecond, Factor: 1, Cap: time.Millisecond},
	})
	sink.until(t, events)
	stop()
	if got := sink.destinations(); !slices.Equal(got, all.want) {
		t.Errorf("delivered %q, want %q", got, all.want)
	}
	s.wantsSent(t, events, events)
	if n := settled.delivered.Load(); n != events {
		t.Errorf("%d records were settled, want %d", n, events)
	}
	if n := settled.times.Load(); n >= events {
		t.Errorf("%d events were settled %d times, want several at once", events, n)
	}
	if !failed {
		t.Error("no event has failed")
	}
}
