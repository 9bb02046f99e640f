// Package grouptest is what a group must pass on any database and table.
//
// Guaranteed: each test has a database of its own, and says what it found.
//
// Not guaranteed: that processes die; that is internal/test/integration's.
package grouptest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/relay"
)

// Harness is a database of a test's own, with a table effects (key TEXT, n INTEGER).
type Harness struct {
	outboxtest.StoreHarness
	DB     outbox.Database
	Tx     inbox.Transactions[*sql.Tx]
	Layout outbox.Layout
	// TakeTurns says that transactions that write follow one another, so that a handler that hangs
	// holds up all.
	TakeTurns bool
	// Foreign are errors of other databases of its kind.
	Foreign map[string]error
}

// Suite runs all tests, each on a database of its own.
func Suite(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for name, run := range map[string]func(*testing.T, Harness){
		"each event once, in the order of its key": inOrder, "a failing key holds up no other": aKeyAlone,
		"a hanging handler holds up no other key": hanging, "reasons of dead letters": reasons,
		"a replayed letter is handled": replayed, "copies have no effect": copies,
		"batches, and what fails in them": batches, "types that are not the group's": only,
		"events without a key": sequence, "processes share and succeed": processes,
		"a second reader is refused": secondReader, "what an event causes": caused,
		"handlers that never return": hung, "a stop with a handler that never returns": hungAtTheEnd,
		"pools that are too small": poolSize, "failures are logged": failuresTold, "errors of other systems": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t))
		})
	}
}

// order is the payload of events.
type order struct {
	N int `json:"n"`
}

// write commits events of a type, one for each number, of a key.
func (h Harness) write(t *testing.T, eventType, key string, numbers ...int) {
	t.Helper()
	var events []outbox.Event
	for _, n := range numbers {
		e, err := outbox.NewEvent(eventType, order{n})
		if err != nil {
			t.Fatal(err)
		}
		e.AggregateType, e.AggregateID = "Order", key
		events = append(events, e)
	}
	h.commit(t, events...)
}

func (h Harness) commit(t *testing.T, events ...outbox.Event) {
	t.Helper()
	cfg := outbox.WriterConfig{Source: "shop", Table: h.Layout.Table}
	if err := h.Write(t.Context(), cfg, true, events); err != nil {
		t.Fatal(err)
	}
}

// quick is a configuration that tries again soon.
func (h Harness) quick(name string) group.Config {
	return group.Config{Name: name, Table: h.Layout, MaxAttempts: 3,
		Backoff: relay.Backoff{Base: 20 * time.Millisecond, Cap: 50 * time.Millisecond},
		Relay:   relay.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), PollMax: 20 * time.Millisecond}}
}

func (h Harness) group(t *testing.T, cfg group.Config) *group.Group[*sql.Tx] {
	t.Helper()
	g, err := group.New(h.DB, h.Tx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// run runs a group until the test ends, or stop is called.
func run(t *testing.T, g *group.Group[*sql.Tx]) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// record is the effect of a message.
func record(ctx context.Context, tx *sql.Tx, m group.Message[order]) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects (key, n) VALUES ('%s', %d)", m.AggregateID, m.Data.N))
	return err
}

// until waits for a condition, and fails the test if it does not come true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (h Harness) count(t *testing.T, what string) int {
	t.Helper()
	n := 0
	_, _ = fmt.Sscan(h.Value(t, "SELECT count(*) FROM "+what), &n)
	return n
}

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func inOrder(t *testing.T, h Harness) {
	var mu sync.Mutex
	seen := map[string][]int{}
	g := h.group(t, h.quick("billing"))
	group.Handle(g, "order.placed", func(ctx context.Context, tx *sql.Tx, m group.Message[order]) error {
		mu.Lock()
		seen[m.AggregateID] = append(seen[m.AggregateID], m.Data.N)
		mu.Unlock()
		return record(ctx, tx, m)
	})
	for _, key := range []string{"a", "b", "c"} {
		h.write(t, "order.placed", key, upTo(50)...)
	}
	run(t, g)
	until(t, "150 effects", func() bool { return h.count(t, "effects") == 150 })
	mu.Lock()
	defer mu.Unlock()
	for key, numbers := range seen {
		if !slices.Equal(numbers, upTo(50)) {
			t.Errorf("key %s was handled as %v", key, numbers)
		}
	}
	until(t, "the group to be ready", func() bool { return g.Health().Ready })
}

func aKeyAlone(t *testing.T, h Harness) {
	cfg := h.quick("billing")
	cfg.MaxAttempts = 1000
	g := h.group(t, cfg)
	var cured atomic.Bool
	var tries atomic.Int32
	group.Handle(g, "order.placed", func(ctx context.Context, tx *sql.Tx, m group.Message[order]) error {
		if m.AggregateID == "bad" && m.Data.N == 1 && !cured.Load() {
			if err := record(ctx, tx, m); err != nil {
				return err
			}
			tries.Add(1)
			return errors.New("the card was refused")
		}
		return record(ctx, tx, m)
	})
	h.write(t, "order.placed", "bad", upTo(5)...)
	h.write(t, "order.placed", "good", upTo(50)...)
	run(t, g)
	until(t, "the other key's effects", func() bool { return h.count(t, "effects WHERE key = 'good'") == 50 })
	until(t, "three tries", func() bool { return tries.Load() >= 3 })
	if n := h.count(t, "effects WHERE key = 'bad'"); n != 1 {
		t.Errorf("%d effects of the key that fails, want the one before the failure", n)
	}
	cured.Store(true)
	until(t, "the rest of the key", func() bool { return h.count(t, "effects WHERE key = 'bad'") == 5 })
	if n := h.count(t, "job_dlq"); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

func hanging(t *testing.T, h Harness) {
	if h.TakeTurns {
		return // the database has one writer at a time
	}
	g := h.group(t, h.quick("billing"))
	release := make(chan struct{})
	group.Handle(g, "order.placed", func(ctx context.Context, tx *sql.Tx, m group.Message[order]) error {
		return record(ctx, tx, m)
	})
	group.Handle(g, "order.slow", func(ctx context.Context, _ *sql.Tx, m group.Message[order]) error {
		<-release
		return nil
	})
	h.write(t, "order.slow", "slow", 0)
	h.write(t, "order.placed", "slow", 1)
	stop := run(t, g)
	for n := range 20 { // one after another: each is claimed beside the one that hangs
		h.write(t, "order.placed", "quick", n)
		until(t, "the other key", func() bool { return h.count(t, "effects WHERE key = 'quick'") == n+1 })
	}
	if n := h.count(t, "effects WHERE key = 'slow'"); n != 0 {
		t.Errorf("%d effects behind the handler that hangs", n)
	}
	close(release)
	until(t, "the key of the slow handler", func() bool { return h.count(t, "effects WHERE key = 'slow'") == 1 })
	stop()
}

func reasons(t *testing.T, h Harness) {
	cfg := h.quick("billing")
	cfg.Types = map[string]group.TypeConfig{"order.slow": {Timeout: 50 * time.Millisecond}}
	g := h.group(t, cfg)
	fails := func(context.Context, *sql.Tx, group.Message[order]) error { return errors.New("no stock") }
	group.Handle(g, "order.placed", fails)
	group.Handle(g, "order.panics", func(context.Context, *sql.Tx, group.Message[order]) error { panic("nil map") })
	group.Handle(g, "order.gone", func(context.Context, *sql.Tx, group.Message[order]) error {
		runtime.Goexit() // as FailNow of a test does
		return nil
	})
	group.Handle(g, "order.slow", func(ctx context.Context, _ *sql.Tx, _ group.Message[order]) error {
		<-ctx.Done()
		return ctx.Err()
	})
	group.Handle(g, "order.hopeless", func(context.Context, *sql.Tx, group.Message[order]) error {
		return outbox.Permanent(errors.New("the customer is gone"))
	})
	group.Handle(g, "order.text", func(context.Context, *sql.Tx, group.Message[string]) error { return nil })
	want := map[string]string{"order.placed": "DeliveryFailed", "order.panics": "DeliveryFailed",
		"order.gone": "DeliveryFailed", "order.slow": "HandlerTimeout", "order.hopeless": "DeliveryFailed",
		"order.text": "DeserializationFailed", "order.unknown": "HandlerMissing"}
	for eventType := range want {
		h.write(t, eventType, eventType, 1)
	}
	run(t, g)
	until(t, "all letters", func() bool { return h.count(t, "job_dlq") == len(want) })
	for eventType, reason := range want {
		if got := h.Value(t, "SELECT error_reason FROM job_dlq WHERE type = '"+eventType+"'"); got != reason {
			t.Errorf("%s: reason %q, want %s", eventType, got, reason)
		}
	}
	if got := h.Value(t, "SELECT attempts FROM job_dlq WHERE type = 'order.placed'"); got != "3" {
		t.Errorf("%s attempts, want 3", got)
	}
}

func replayed(t *testing.T, h Harness) {
	g := h.group(t, h.quick("billing"))
	var cured atomic.Bool
	group.Handle(g, "order.placed", func(ctx context.Context, tx *sql.Tx, m group.Message[order]) error {
		if !cured.Load() {
			return errors.New("no stock")
		}
		return record(ctx, tx, m)
	})
	h.write(t, "order.placed", "a", 1)
	run(t, g)
	until(t, "a letter", func() bool { return h.count(t, "job_dlq") == 1 })
	cured.Store(true)
	var layouts []outbox.Layout // what a log's groups owe is in a table that every store of letters knows
	if h.Layout.KeepsState() {
		layouts = append(layouts, h.Layout)
	}
	done, err := deadletter.Replay(t.Context(), h.Letters(t, layouts...), deadletter.ReplayOptions{
		Selection: deadletter.Selection{All: true},
		Operator:  deadletter.Operator{Actor: "somebody", Reason: "there is stock again"},
	})
	if err != nil || done.Letters != 1 {
		t.Fatalf("replayed %+v, error %v", done, err)
	}
	until(t, "the effect", func() bool { return h.count(t, "effects") == 1 })
}

// remember has the effect of an event that a process died after, before its outcome was recorded.
func (h Harness) remember(t *testing.T, consumer string, events ...outbox.Event) {
	t.Helper()
	in, err := h.Tx.Inbox(inbox.Config{Consumer: consumer})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Tx.Do(t.Context(), func(tx *sql.Tx) error {
		for _, e := range events {
			id := inbox.ID{Event: e.ID.String(), Tenant: "default"}
			if _, err := in.Once(t.Context(), tx, id, func() error { return nil }); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func copies(t *testing.T, h Harness) {
	var events []outbox.Event
	for n := range 2 {
		e, err := outbox.NewEvent("order.placed", order{n})
		if err != nil {
			t.Fatal(err)
		}
		e.AggregateType, e.AggregateID = "Order", fmt.Sprint(n)
		events = append(events, e)
	}
	h.remember(t, "billing", events[0])
	g := h.group(t, h.quick("billing"))
	group.Handle(g, "order.placed", record)
	h.commit(t, events...)
	stop := run(t, g)
	until(t, "the other event", func() bool { return h.count(t, "effects WHERE key = '1'") == 1 })
	until(t, "nothing to be left", func() bool { return settled(g) })
	stop()
	if n := h.count(t, "effects"); n != 1 {
		t.Errorf("%d effects, want 1", n)
	}
	// A group that was told to makes a letter of a copy.
	again, err := outbox.NewEvent("order.placed", order{3})
	if err != nil {
		t.Fatal(err)
	}
	h.remember(t, "billing", again)
	cfg := h.quick("billing")
	cfg.DuplicatesDie = true
	strict := h.group(t, cfg)
	group.Handle(strict, "order.placed", record)
	h.commit(t, again)
	run(t, strict)
	until(t, "a letter", func() bool { return h.count(t, "job_dlq WHERE error_reason = 'DuplicateEvent'") == 1 })
}

// settled tells whether a group has nothing left to handle.
func settled(g *group.Group[*sql.Tx]) bool {
	tables := g.Health().Tables
	for _, table := range tables {
		if table.Backlog == nil || table.Backlog.Count > 0 {
			return false
		}
	}
	return len(tables) > 0
}

func batches(t *testing.T, h Harness) {
	g := h.group(t, h.quick("pricing"))
	var calls, most atomic.Int32
	group.HandleBatch(g, "price.changed", func(ctx context.Context, tx *sql.Tx, ms []group.Message[order]) error {
		calls.Add(1)
		most.Store(max(most.Load(), int32(len(ms))))
		failed := group.Failures{}
		for i, m := range ms {
			if m.AggregateID == "bad" {
				failed[i] = errors.New("no such price")
			} else if err := record(ctx, tx, m); err != nil {
				return err
			}
		}
		return failed
	})
	for n := range 40 {
		h.write(t, "price.changed", fmt.Sprint("key ", n), 1)
	}
	h.write(t, "price.changed", "bad", 1)
	text, err := outbox.NewEvent("price.changed", "no price")
	if err != nil {
		t.Fatal(err)
	}
	h.commit(t, text)
	run(t, g)
	until(t, "all effects", func() bool { return h.count(t, "effects") == 40 })
	for _, reason := range []string{"DeliveryFailed", "DeserializationFailed"} {
		until(t, "a letter", func() bool { return h.count(t, "job_dlq WHERE error_reason = '"+reason+"'") == 1 })
	}
	if most.Load() < 2 {
		t.Errorf("%d calls of at most %d messages: nothing came together", calls.Load(), most.Load())
	}
}

func only(t *testing.T, h Harness) {
	cfg := h.quick("billing")
	cfg.Only = []string{"order.*"}
	g := h.group(t, cfg)
	group.Handle(g, "*", record)
	h.write(t, "price.changed", "a", 1)
	h.write(t, "order.placed", "a", 2)
	h.write(t, "order.paid", "a", 3)
	run(t, g)
	until(t, "the group's own", func() bool { return h.count(t, "effects") == 2 })
	if n := h.count(t, "effects WHERE n = 1"); n != 0 {
		t.Error("a type that is not the group's was handled")
	}
}

func processes(t *testing.T, h Harness) {
	var stops []func()
	for range 3 {
		g := h.group(t, h.quick("billing"))
		group.Handle(g, "order.placed", record)
		stops = append(stops, run(t, g))
	}
	keys := strings.Fields("a b c d e f g h")
	for n := range 60 {
		for _, key := range keys {
			h.write(t, "order.placed", key, n)
		}
		if n%20 == 10 {
			stops[n/20]() // each in its turn, the last one too
		}
	}
	last := h.group(t, h.quick("billing"))
	group.Handle(last, "order.placed", record)
	run(t, last)
	until(t, "all effects", func() bool { return h.count(t, "effects") >= 60*len(keys) })
	if n, distinct := h.count(t, "effects"), h.count(t, "(SELECT DISTINCT key, n FROM effects) AS d"); n != distinct {
		t.Errorf("%d effects of %d events", n, distinct)
	}
}

// sequence has two processes of eight workers each handle the events of two applications, which
// have no key: each application's in order, the first failing once; or, if the layout has no scope
// for them, in parallel.
func sequence(t *testing.T, h Harness) {
	h.Layout = outbox.EventOutbox()
	const events = 60
	h.Exec(t, "INSERT INTO apps (id, name, namespace) VALUES ('11111111-1111-7111-8111-111111111111', 'A', 'a')")
	h.Exec(t, "INSERT INTO apps (id, name, namespace) VALUES ('22222222-2222-7222-8222-222222222222', 'B', 'b')")
	offer := func(number int) {
		app := []string{"11111111-1111-7111-8111-111111111111", "22222222-2222-7222-8222-222222222222"}[number%2]
		h.Exec(t, `INSERT INTO event_outbox (app_id, event_id, event_type, payload) VALUES (?1, ?2, 'happened', ?3)`,
			app, uuid.NewString(), fmt.Sprintf(`{"n": %d}`, number))
	}
	for n := range events {
		offer(n)
	}
	var mu sync.Mutex
	handled := map[string][]int{}
	var stops []func()
	for range 2 {
		cfg := h.quick("billing")
		cfg.Workers = 8
		g := h.group(t, cfg)
		group.Handle(g, "happened", func(_ context.Context, _ *sql.Tx, m group.Message[order]) error {
			time.Sleep(time.Duration(m.Data.N*7%5) * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			handled[m.TenantID] = append(handled[m.TenantID], m.Data.N)
			if m.Attempt == 1 && m.Data.N < 2 {
				return errors.New("fails once")
			}
			return nil
		})
		stops = append(stops, run(t, g))
	}
	done := func() bool { return h.count(t, "event_outbox WHERE status <> 'published'") == 0 }
	until(t, "the events", done)
	for tenant, numbers := range handled {
		if len(numbers) != events/2+1 || numbers[0] != numbers[1] || !slices.IsSorted(numbers) {
			t.Errorf("the events of %s were handled in the order %v", tenant, numbers)
		}
	}
	for _, stop := range stops {
		stop()
	}
	if h.TakeTurns {
		return
	}
	h.Layout.KeylessScope = ""
	g := h.group(t, h.quick("billing"))
	meet := make(chan struct{})
	group.Handle(g, "happened", func(ctx context.Context, _ *sql.Tx, _ group.Message[order]) error {
		select {
		case meet <- struct{}{}:
			return nil
		case <-meet:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	offer(0)
	offer(2)
	run(t, g)
	until(t, "two events at a time", done)
}

func caused(t *testing.T, h Harness) {
	g := h.group(t, h.quick("billing"))
	got := make(chan outbox.Event, 1)
	group.Handle(g, "order.placed", func(_ context.Context, _ *sql.Tx, m group.Message[order]) error {
		if m.Attempt == 1 {
			return errors.New("once more")
		}
		got <- m.Causes(outbox.Event{Topic: "invoice.written", Metadata: map[string]any{"user_id": "7"}})
		return nil
	})
	e, err := outbox.NewEvent("order.placed", order{1})
	if err != nil {
		t.Fatal(err)
	}
	e.AggregateType, e.AggregateID = "Order", "a"
	request := uuid.NewString()
	e.Metadata = map[string]any{group.CorrelationID: request}
	h.commit(t, e)
	run(t, g)
	m := (<-got).Metadata
	if m[group.CausationID] != e.ID.String() || m[group.CorrelationID] != request || m["user_id"] != "7" {
		t.Errorf("metadata %v", m)
	}
}

// Log is what only groups of a log can.
func Log(t *testing.T, h Harness) {
	t.Helper()
	count := func(name string) *group.Group[*sql.Tx] {
		cfg := h.quick(name)
		switch name {
		case "earliest":
			cfg.From = group.Earliest
		case "latest":
			cfg.From = group.Latest
		case "at":
			micros := int64(0)
			_, _ = fmt.Sscan(h.Value(t, "SELECT (extract(epoch FROM created_at) * 1000000)::bigint FROM outbox_log "+
				"WHERE (payload->>'n')::int = 2"), &micros)
			cfg.From = group.At(time.UnixMicro(micros))
		}
		g := h.group(t, cfg)
		group.Handle(g, "order.placed", func(ctx context.Context, tx *sql.Tx, m group.Message[order]) error {
			if name == "failing" {
				return outbox.Permanent(errors.New("never"))
			}
			_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO effects (key, n) VALUES ('%s', %d)", name, m.Data.N))
			return err
		})
		return g
	}
	for n := range 4 {
		h.write(t, "order.placed", "a", n)
	}
	for _, name := range []string{"earliest", "latest", "at", "failing"} {
		g := count(name)
		run(t, g)
		until(t, "the group "+name, func() bool { return settled(g) })
	}
	h.write(t, "order.placed", "a", 4)
	for name, want := range map[string]int{"earliest": 5, "latest": 1, "at": 3} {
		until(t, name, func() bool { return h.count(t, "effects WHERE key = '"+name+"'") == want })
	}
	until(t, "letters of the failing group", func() bool { return h.count(t, "job_dlq") == 5 })
	if n := h.count(t, "effects"); n != 9 {
		t.Errorf("%d effects, want 9", n)
	}
}
