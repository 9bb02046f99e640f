package outboxtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
)

func routeTests() []storeTest {
	return []storeTest{
		{name: "an event goes to all sinks of its route, and one that takes everything costs no row", run: routes},
		{name: "a sink that is down or slow delays no other, and gets everything in order", run: holdsBackNoOther},
		{name: "what a sink owes is settled together with what comes after it", run: settlesOwedTogether},
		{name: "a relay that takes over knows what is owed", run: inheritsWhatIsOwed},
		{name: "what one sink refuses is a dead letter of that sink alone", run: buriesForOneSink},
		{name: "what one sink postpones is owed, and no attempt is counted", run: owesWhatIsPostponed},
		{name: "a sink that says that it is slow is not waited for", run: waitsForNoSlowSink},
		{name: "a sink whose server takes copies is waited for longer", run: waitsForACopyingSink},
		{name: "a sink that is paused waits alone", run: holdsOneSink},
		{name: "an event that no route fits is a dead letter", run: buriesWithoutRoute},
		{name: "a route leads to no reserved destination", run: keepsReserved},
		{name: "what a sink has not taken is copied whole", run: copiesWhole},
	}
}

// whole is a database with its tables and nothing to listen to, of a process that may die.
type whole struct {
	tabletest.OneTable
	s    *storeSuite
	t    *testing.T
	dead atomic.Bool
}

func (d *whole) OpenTable(_ context.Context, layout outbox.Layout) (outbox.Store, error) {
	store, ok := d.s.Table(d.t, layout).(outbox.DeliveryStore)
	if !ok {
		return nil, fmt.Errorf("the store of %s keeps no deliveries", layout.Name())
	}
	return &mortal{process: &process{Store: store, dead: &d.dead}, ledger: store}, nil
}

// mortal is a store of such a database.
type mortal struct {
	*process
	ledger outbox.DeliveryStore
}

func (m *mortal) LeaseName() string { return m.ledger.LeaseName() }

func (m *mortal) Owes(ctx context.Context, lanes []int16, sinks []string) (map[int16][]string, error) {
	if m.dead.Load() {
		return nil, errVanished
	}
	return m.ledger.Owes(ctx, lanes, sinks)
}

// to returns routes for all events to some targets.
func to(t *testing.T, targets ...string) []relay.Route {
	t.Helper()
	var r relay.Route
	for _, text := range targets {
		target, err := relay.ParseTarget(text)
		if err != nil {
			t.Fatal(err)
		}
		r.To = append(r.To, target)
	}
	return []relay.Route{r}
}

// startRouted runs a relay of outbox_events with routes, and returns what kills it, or stops it.
func (s *storeSuite) startRouted(
	t *testing.T, rs []relay.Route, sinks map[string]outbox.Sink, cfg relay.Config,
) (end func(kill bool)) {
	t.Helper()
	db := &whole{s: s, t: t}
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.PollMin, cfg.PollMax, cfg.DrainTimeout = time.Millisecond, 20*time.Millisecond, tier.Patience()
	if len(cfg.Tables) == 0 {
		cfg.Tables = []relay.Table{{Layout: s.events}}
	}
	cfg.Tables[0].Routes, cfg.Sinks = rs, sinks
	r, err := relay.New(db, nil, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := r.Run(ctx); err != nil && !db.dead.Load() {
			t.Errorf("the relay ended: %v", err)
		}
	}()
	end = func(kill bool) {
		db.dead.Store(db.dead.Load() || kill)
		cancel()
		<-over
	}
	t.Cleanup(func() { end(false) })
	return end
}

// inOrder checks that a sink got so many events of each key, each once, in the order in which
// numbered wrote them.
func inOrder(t *testing.T, name string, sink *recorder, keys, each int) {
	t.Helper()
	sink.mu.Lock()
	defer sink.mu.Unlock()
	next := map[string]int{}
	for _, m := range sink.received {
		want := fmt.Sprintf("order.%d", next[m.Key])
		if m.Destination != want {
			t.Fatalf("sink %s got %s of key %s, want %s", name, m.Destination, m.Key, want)
		}
		next[m.Key]++
	}
	for k := range keys {
		if key := fmt.Sprintf("k%d", k); next[key] != each {
			t.Errorf("sink %s got %d events of key %s, want %d", name, next[key], key, each)
		}
	}
}

// numbered writes the events from to upto of each key, whose topics are their numbers.
func (s *storeSuite) numbered(t *testing.T, keys, from, upto int) {
	t.Helper()
	for i := from; i < upto; i++ {
		var batch []outbox.Event
		for k := range keys {
			batch = append(batch, keyed(fmt.Sprintf("order.%d", i), fmt.Sprintf("k%d", k)))
		}
		s.commits(t, batch...)
	}
}

// What the tests count.
const (
	owedNow = "SELECT count(*) FROM outbox_deliveries WHERE status = 'pending'"
	letters = "SELECT count(*) FROM job_dlq"
)

// untilCount waits until a query that counts is answered so.
func (s *storeSuite) untilCount(t *testing.T, query string, want int) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(5 * time.Millisecond) {
		got := s.Value(t, query)
		if got == strconv.Itoa(want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s, want %d", query, got, want)
		}
	}
}

func routes(t *testing.T, s *storeSuite) {
	a, b, c := &recorder{}, &recorder{}, &recorder{}
	first := to(t, "a", "b")
	first[0].Topic, first[0].Name = "order.*", "orders"
	rest := to(t, "c:rest-{topic}")
	// Long enough for a busy machine: what is owed would be a row.
	s.startRouted(t, append(first, rest...), map[string]outbox.Sink{"a": a, "b": b, "c": c},
		relay.Config{RouteTimeout: tier.Patience()})
	s.numbered(t, 10, 0, 20)
	s.commits(t, keyed("paid", "k1"))
	own, named := keyed("paid", "k2"), keyed("paid", "k3")
	own.Destinations, named.Destinations = []string{"c:mine", "a:mine"}, []string{"orders"}
	s.commits(t, own, named)
	c.until(t, 2)
	a.until(t, 202)
	b.until(t, 201)
	got := map[string]int{}
	for name, sink := range map[string]*recorder{"a": a, "b": b, "c": c} {
		sink.mu.Lock()
		for _, m := range sink.received {
			if !strings.HasPrefix(m.Destination, "order.") {
				got[name+":"+m.Destination]++
			}
		}
		sink.mu.Unlock()
	}
	want := map[string]int{"c:rest-paid": 1, "c:mine": 1, "a:mine": 1, "a:paid": 1, "b:paid": 1}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("beside the orders, %v arrived, want %v", got, want)
	}
	if n := s.Value(t, "SELECT count(*) FROM outbox_deliveries"); n != "0" {
		t.Errorf("%s rows in outbox_deliveries, want none", n)
	}
}

// stalling is a sink that is down or hangs until it is told otherwise.
type stalling struct {
	recorder
	down, hangs atomic.Bool
	asked       atomic.Int64
}

func (k *stalling) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	k.asked.Add(1)
	if k.hangs.Load() {
		<-ctx.Done()
	}
	if k.hangs.Load() || k.down.Load() {
		results := make([]outbox.Result, len(batch))
		for i := range results {
			results[i].Err = outbox.Unavailable(errors.New("away"))
		}
		return results
	}
	return k.recorder.Publish(ctx, batch)
}

func holdsBackNoOther(t *testing.T, s *storeSuite) {
	const keys = 10
	a, b, c := &recorder{}, &stalling{}, &stalling{}
	b.down.Store(true)
	c.hangs.Store(true)
	s.startRouted(t, to(t, "a", "b", "c"), map[string]outbox.Sink{"a": a, "b": b, "c": c},
		relay.Config{PublishTimeout: time.Second, RecoveryRate: -1})
	s.numbered(t, keys, 0, 30)
	a.until(t, 30*keys)
	for _, away := range []*stalling{b, c} {
		for deadline := time.Now().Add(tier.Patience()); away.asked.Load() == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("a sink that is away was not asked")
			}
		}
		if n := away.count(); n > 0 {
			t.Fatalf("a sink that is away got %d events", n)
		}
	}
	b.down.Store(false)
	s.numbered(t, keys, 30, 60) // while the one comes back
	a.until(t, 60*keys)
	b.until(t, 60*keys)
	c.hangs.Store(false)
	s.numbered(t, keys, 60, 80)
	for _, sink := range []*recorder{a, &b.recorder, &c.recorder} {
		sink.until(t, 80*keys)
	}
	s.untilCount(t, owedNow, 0)
	// Once nothing is owed, nothing more is written for it.
	rows := s.Value(t, "SELECT count(*) FROM outbox_deliveries")
	for total := 80; ; total++ {
		s.numbered(t, keys, total, total+1)
		for _, sink := range []*recorder{a, &b.recorder, &c.recorder} {
			sink.until(t, (total+1)*keys)
		}
		now := s.Value(t, "SELECT count(*) FROM outbox_deliveries")
		if now == rows {
			break // a sink that was slow is left alone for a while first
		}
		time.Sleep(50 * time.Millisecond) // or the while is spent writing
		rows = now
		if total > 10000 {
			t.Fatal("the sinks work, and rows are written for them all the same")
		}
	}
	total := a.count() / keys
	inOrder(t, "a", a, keys, total)
	inOrder(t, "b", &b.recorder, keys, total)
	inOrder(t, "c", &c.recorder, keys, total)
}

// Each event is written while the one before it is published to one sink; the other one is down.
func settlesOwedTogether(t *testing.T, s *storeSuite) {
	const events = 40
	all := &chain{s: s, want: make([]string, events)}
	if err := all.next(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := &recorder{fails: func(outbox.Delivery) error { return all.next(t.Context()) }}, &stalling{}
	b.down.Store(true)
	settled := settles{table: s.events.Table}
	end := s.startRouted(t, to(t, "a", "b"), map[string]outbox.Sink{"a": a, "b": b},
		relay.Config{RouteTimeout: tier.Patience(), RecoveryRate: -1, Observer: &settled})
	a.until(t, events)
	s.untilCount(t, owedNow, events)
	b.down.Store(false)
	b.until(t, events)
	s.untilCount(t, owedNow, 0)
	end(false)
	for name, sink := range map[string]*recorder{"a": a, "b": &b.recorder} {
		if got := sink.destinations(); !slices.Equal(got, all.want) {
			t.Errorf("%s got %q, want %q", name, got, all.want)
		}
	}
	if n := settled.times.Load(); n == 0 || n >= events {
		t.Errorf("%d events were settled %d times, want several at once", events, n)
	}
}

func inheritsWhatIsOwed(t *testing.T, s *storeSuite) {
	const keys = 10
	a, b := &recorder{}, &stalling{}
	b.down.Store(true)
	sinks := map[string]outbox.Sink{"a": a, "b": b}
	cfg := relay.Config{LeaseTTL: time.Second, RecoveryRate: -1}
	end := s.startRouted(t, to(t, "a", "b"), sinks, cfg)
	s.numbered(t, keys, 0, 20)
	a.until(t, 20*keys)
	s.untilCount(t, owedNow, 20*keys)
	end(true)
	// The sink works when the successor starts, with events that are newer than what is owed.
	b.down.Store(false)
	s.numbered(t, keys, 20, 25)
	s.startRouted(t, to(t, "a", "b"), sinks, cfg)
	a.until(t, 25*keys)
	b.until(t, 25*keys)
	s.untilCount(t, owedNow, 0)
	inOrder(t, "a", a, keys, 25)
	inOrder(t, "b", &b.recorder, keys, 25)
}

func buriesForOneSink(t *testing.T, s *storeSuite) {
	var mended atomic.Bool
	a := &recorder{}
	b := &recorder{fails: func(d outbox.Delivery) error {
		if d.Topic == "bad" && !mended.Load() {
			return outbox.Permanent(errors.New("too large"))
		}
		return nil
	}}
	s.startRouted(t, to(t, "a", "b"), map[string]outbox.Sink{"a": a, "b": b}, relay.Config{})
	s.commits(t, keyed("before", "k"), keyed("bad", "k"), keyed("after", "k"))
	a.until(t, 3)
	b.until(t, 2)
	s.untilCount(t, letters, 1)
	if got := s.Value(t, "SELECT outbox_table || ' ' || destination || ' ' || type FROM job_dlq"); got !=
		"outbox_deliveries bad bad" {
		t.Errorf("the letter is %q", got)
	}
	if got := s.Value(t, "SELECT error_history FROM job_dlq"); !strings.Contains(got, "b: too large") {
		t.Errorf("the letter's errors are %s, want them to say which sink it was", got)
	}
	if got := s.Value(t, "SELECT queue || ' ' || status FROM outbox_deliveries WHERE event_topic = 'bad'"); got !=
		s.events.Table+"/b dead" {
		t.Errorf("the delivery is %q", got)
	}
	s.wantsSent(t, 3, 3)
	if s.Letters == nil { // a harness of the engine's area alone
		return
	}
	mended.Store(true)
	d := s.Letters(t, s.events, outbox.DeliveriesOf("", ""))
	if n, err := deadletter.Collect(t.Context(), d, "outbox_deliveries", operator); err != nil || n != 0 {
		t.Errorf("collected %d letters, error %v, of a delivery that has one", n, err)
	}
	if sum := replay(t, d, everyLetter); sum.Letters != 1 {
		t.Fatalf("replayed %+v, want the one letter", sum)
	}
	b.until(t, 3)
	s.untilCount(t, owedNow, 0)
	if a.count() != 3 {
		t.Errorf("the other sink got %d events, want its 3 and no replay", a.count())
	}
}

func owesWhatIsPostponed(t *testing.T, s *storeSuite) {
	var asked, rests atomic.Int64
	rests.Store(1)
	a := &recorder{}
	b := &recorder{fails: func(d outbox.Delivery) error {
		if rests.Load() == 0 || d.Topic != "waiting" {
			return nil
		}
		asked.Add(1)
		return outbox.Postponed(errors.New("it rests"), 5*time.Millisecond)
	}}
	s.startRouted(t, to(t, "a", "b"), map[string]outbox.Sink{"a": a, "b": b},
		relay.Config{MaxAttempts: 1, RouteTimeout: tier.Patience()})
	s.commits(t, keyed("waiting", "k"), keyed("behind", "k"), keyed("free", "l"))
	a.until(t, 3)
	b.until(t, 1)
	for before := asked.Load(); asked.Load() < before+10; {
		s.untilCount(t, letters, 0)
	}
	s.untilCount(t, "SELECT count(*) FROM outbox_deliveries WHERE event_topic = 'waiting' AND attempts = 0 "+
		"AND next_retry_at IS NOT NULL", 1)
	if got := b.destinations(); got[0] != "free" {
		t.Errorf("%q were delivered, want the event of another key alone", got)
	}
	rests.Store(0)
	b.until(t, 3)
	s.untilCount(t, owedNow, 0)
	s.untilCount(t, letters, 0)
	if a.count() != 3 {
		t.Errorf("the other sink got %d events, want 3", a.count())
	}
}

// slowly is a sink that wants a minute for a batch.
type slowly struct{ recorder }

func (*slowly) Abilities() outbox.Abilities {
	return outbox.Abilities{Timeout: func() time.Duration { return time.Minute }}
}

func waitsForNoSlowSink(t *testing.T, s *storeSuite) {
	const keys = 5
	a, b := &recorder{}, &slowly{}
	s.startRouted(t, to(t, "a", "b"), map[string]outbox.Sink{"a": a, "b": b}, relay.Config{})
	s.numbered(t, keys, 0, 4)
	a.until(t, 4*keys)
	b.until(t, 4*keys)
	s.untilCount(t, owedNow, 0)
	inOrder(t, "b", &b.recorder, keys, 4)
	if s.mode == outbox.SettleMark { // else they are gone
		s.untilCount(t, "SELECT count(*) FROM outbox_deliveries WHERE sink = 'b' AND attempts = 0", 4*keys)
	}
}

// copying is a sink whose server takes what it has already, and that answers late.
type copying struct {
	recorder
	late  time.Duration
	given atomic.Int32 // deliveries, however often
}

func (*copying) Abilities() outbox.Abilities { return outbox.Abilities{TakesCopies: true} }

// Publish implements outbox.Sink. What it is given has arrived, whether or not it is waited for.
func (c *copying) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	c.given.Add(int32(len(batch)))
	results := c.recorder.Publish(context.WithoutCancel(ctx), batch)
	select {
	case <-ctx.Done():
		for i := range results {
			results[i].Err = ctx.Err()
		}
	case <-time.After(c.late):
	}
	return results
}

func waitsForACopyingSink(t *testing.T, s *storeSuite) {
	const keys, timeout = 5, 200 * time.Millisecond
	a, b := &recorder{}, &copying{late: timeout + timeout/4}
	s.startRouted(t, to(t, "a", "b"), map[string]outbox.Sink{"a": a, "b": b}, relay.Config{RouteTimeout: timeout})
	s.numbered(t, keys, 0, 4)
	a.until(t, 4*keys)
	b.until(t, 4*keys)
	time.Sleep(5 * timeout) // by then it is owed what was not waited for
	s.untilCount(t, owedNow, 0)
	if n := b.given.Load(); n != 4*keys {
		t.Errorf("the sink was given %d deliveries, want each of %d once", n, 4*keys)
	}
	inOrder(t, "b", &b.recorder, keys, 4)
}

func holdsOneSink(t *testing.T, s *storeSuite) {
	const keys = 5
	a, b := &recorder{}, &recorder{}
	s.Exec(t, "INSERT INTO outbox_pauses (table_name, topic, destination, reason, actor) VALUES (?1, '', '', 'r', 'me')",
		outbox.DeliveriesOf(s.events.Table, "b").Name())
	s.startRouted(t, to(t, "a", "b"), map[string]outbox.Sink{"a": a, "b": b},
		relay.Config{RouteTimeout: tier.Patience(), LeaseTTL: time.Second})
	s.numbered(t, keys, 0, 5)
	a.until(t, 5*keys)
	s.untilCount(t, owedNow, 5*keys)
	if b.count() > 0 {
		t.Fatalf("the paused sink got %d events", b.count())
	}
	s.Exec(t, "DELETE FROM outbox_pauses")
	s.numbered(t, keys, 5, 10)
	b.until(t, 10*keys)
	a.until(t, 10*keys)
	inOrder(t, "a", a, keys, 10)
	inOrder(t, "b", b, keys, 10)
}

func buriesWithoutRoute(t *testing.T, s *storeSuite) {
	a := &recorder{}
	only := to(t, "a")
	only[0].Topic = "order.*"
	s.startRouted(t, only, map[string]outbox.Sink{"a": a}, relay.Config{})
	lost := keyed("order.1", "k")
	lost.Destinations = []string{"nowhere"}
	s.commits(t, keyed("paid", "k"), lost, keyed("order.2", "k"))
	a.until(t, 1)
	s.untilCount(t, letters, 2)
	for topic, want := range map[string]string{"paid": "no route fits", "order.1": "nor the name of a route"} {
		got := s.Value(t, "SELECT error_reason || ' ' || CAST(error_history AS TEXT) FROM job_dlq WHERE type = ?1", topic)
		if !strings.HasPrefix(got, "HandlerMissing ") || !strings.Contains(got, want) {
			t.Errorf("the letter of %s says %q, want %q", topic, got, want)
		}
	}
}

func keepsReserved(t *testing.T, s *storeSuite) {
	a := &recorder{}
	s.startRouted(t, to(t, "a"), map[string]outbox.Sink{"a": a}, relay.Config{
		Tables: []relay.Table{{Layout: s.events,
			Reserved: func(destination string) bool { return strings.HasPrefix(destination, "run:") }}},
	})
	forged, own := keyed("order.1", "k"), keyed("run:1", "k")
	forged.Destinations = []string{"a:run:1"}
	s.commits(t, forged, own, keyed("order.2", "k"))
	a.until(t, 1)
	s.untilCount(t, letters, 2)
	if a.count() != 1 || a.received[0].Destination != "order.2" {
		t.Errorf("%+v arrived, want order.2 alone", a.received)
	}
}

// copiesWhole compares what arrives by way of outbox_deliveries with what arrives at once.
func copiesWhole(t *testing.T, s *storeSuite) {
	messages := make(chan string, 100)
	direct, owed := &recorder{}, &stalling{}
	tell := func(d outbox.Delivery) error {
		messages <- fmt.Sprintf("%s %d %d %v %s", d.Destination, d.Origin, d.Lane, d.Keyed, outbox.CloudEvent(nil, &d))
		return nil
	}
	direct.fails, owed.fails = tell, tell
	s.startRouted(t, to(t, "direct", "owed"), map[string]outbox.Sink{"direct": direct, "owed": owed}, relay.Config{})
	full := keyed("order.placed", "k")
	full.AggregateType, full.TenantID, full.SchemaID, full.SchemaVersion = "Order", "default", "order-v7", 7
	full.Payload = []byte(`{"a": 1e2, "b":  "ü"}`)
	full.Metadata = map[string]any{"traceparent": "00-0af7-b7ad-01", "user_id": "u1"}
	bare := keyed("bare", "")
	bare.AggregateID, bare.AggregateType = "", ""
	for _, e := range []outbox.Event{full, bare} {
		owed.down.Store(true)
		s.commits(t, e)
		first := <-messages
		s.untilCount(t, owedNow, 1)
		owed.down.Store(false)
		if second := <-messages; second != first {
			t.Errorf("what was owed arrives as\n%s\nwant\n%s", second, first)
		}
		s.untilCount(t, owedNow, 0)
	}
}
