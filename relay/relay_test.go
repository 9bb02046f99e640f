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

	"github.com/outboxrelay/outbox"
)

// These tests are about the Relay that joins tables, sinks and retention, in fake time. What one
// table's loops do is in serve_test.go.

// memoryDB is a Database of memories. A table that it does not have is missing.
type memoryDB struct {
	mu       sync.Mutex
	tables   map[string]*memory
	down     error // of OpenTable
	opened   int
	retained map[string]outbox.Retention // of Retain, "letters" of RetainLetters
	wake     func(string)
}

func (d *memoryDB) OpenTable(_ context.Context, layout outbox.Layout) (outbox.Store, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened++
	if d.down != nil {
		return nil, d.down
	}
	if m, ok := d.tables[layout.Table]; ok {
		return m, nil
	}
	return nil, &outbox.SchemaError{Table: layout.Table, Remedy: "make it"}
}

func (d *memoryDB) Watch([]outbox.Store) (func(context.Context, []bool) ([]outbox.Watched, error), error) {
	return nil, nil
}

func (d *memoryDB) Debtors(context.Context) ([]outbox.Debtor, error) { return nil, nil }

func (d *memoryDB) Listen(ctx context.Context, _ *slog.Logger, wake func(string)) error {
	d.mu.Lock()
	d.wake = wake
	d.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (d *memoryDB) Retain(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
	return d.retain(ctx, layout.Table, r)
}

func (d *memoryDB) RetainLetters(ctx context.Context, r outbox.Retention) error {
	return d.retain(ctx, "letters", r)
}

func (d *memoryDB) retain(ctx context.Context, name string, r outbox.Retention) error {
	d.mu.Lock()
	if d.retained == nil {
		d.retained = map[string]outbox.Retention{}
	}
	d.retained[name] = r
	d.mu.Unlock()
	<-ctx.Done()
	return nil
}

// pinged is a sink that can be asked.
type pinged struct {
	*memory
	err error // guarded by memory.mu
}

func (p *pinged) Abilities() outbox.Abilities { return outbox.Abilities{Ping: p.ping} }

func (p *pinged) ping(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// runRelay runs a relay in a bubble while body runs.
func runRelay(t *testing.T, db *memoryDB, sink outbox.Sink, cfg Config, body func(r *Relay)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.Logger = slog.New(slog.DiscardHandler)
		r, err := New(db, sink, cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		synctest.Wait()
		body(r)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A relay that cannot renew its leases says that it holds no lanes as soon as another one may have
// them.
func TestLapsedLanesAreNotHeld(t *testing.T) {
	m := &memory{}
	db := &memoryDB{tables: map[string]*memory{"outbox_events": m}}
	runRelay(t, db, &memory{}, Config{LeaseTTL: 9 * time.Second}, func(r *Relay) {
		held := func() int { return r.Health().Tables["outbox_events"].Lanes }
		pass(5 * time.Second)
		m.locked(func() { m.leaseErr = func() error { return errors.New("gone") } })
		pass(time.Second)
		if held() != outbox.LaneCount {
			t.Errorf("%d lanes are held while the lease runs, want %d", held(), outbox.LaneCount)
		}
		pass(9 * time.Second)
		if held() != 0 {
			t.Errorf("%d lanes are held after the lease", held())
		}
		m.locked(func() { m.leaseErr = nil })
		pass(9 * time.Second)
		if held() != outbox.LaneCount {
			t.Errorf("%d lanes are held again, want %d", held(), outbox.LaneCount)
		}
	})
}

// A relay that stops is not ready, so that nobody counts on it, and cannot be run again.
func TestRelayIsRunOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, sink := &memory{}, &memory{}
		r, err := New(&memoryDB{tables: map[string]*memory{"outbox_events": m}}, sink,
			Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		pass(5 * time.Second)
		if h := r.Health(); !h.Ready {
			t.Fatalf("health is %+v", h)
		}
		sink.publishHook = func(context.Context, []outbox.Delivery) []outbox.Result {
			cancel()
			time.Sleep(time.Second)
			if h := r.Health(); h.Ready || h.Reason != "stopping" {
				t.Errorf("while it finishes a batch, health is %+v", h)
			}
			return nil
		}
		m.add("a")
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if h := r.Health(); h.Ready || h.Reason != "stopped" {
			t.Errorf("afterwards health is %+v", h)
		}
		if err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "New") {
			t.Errorf("run again: %v", err)
		}
	})
}

func TestRelayServesTablesWithTheirSinks(t *testing.T) {
	orders, bills := &memory{}, &memory{}
	db := &memoryDB{tables: map[string]*memory{"outbox_events": orders, "bills": bills}}
	orders.add("order.placed")
	bills.add("bill.sent")
	first, second := &pinged{memory: &memory{}}, &pinged{memory: &memory{}}
	layout := outbox.OutboxEvents()
	layout.Table = "bills"
	cfg := Config{
		Sinks:     map[string]outbox.Sink{"second": second},
		Tables:    append(Tables(), Table{Layout: layout, Sink: "second", Retention: outbox.Retention{After: -1}}),
		Retention: outbox.Retention{After: time.Hour, Archive: "none"},
	}
	runRelay(t, db, first, cfg, func(r *Relay) {
		pass(5 * time.Second)
		if !slices.Equal(first.published, []string{"order.placed"}) ||
			!slices.Equal(second.published, []string{"bill.sent"}) {
			t.Errorf("the sinks got %v and %v", first.published, second.published)
		}
		h := r.Health()
		if !h.Ready || len(h.Tables) != 2 || h.Tables["bills"].Sink != "second" || h.Tables["bills"].Backlog == nil ||
			len(h.Sinks) != 2 {
			t.Errorf("health is %+v", h)
		}
		first.locked(func() { first.err = errors.New("gone") })
		pass(5 * time.Second)
		if h := r.Health(); h.Ready || h.Reason != "sink default: gone" || !h.Sinks["second"].Ready {
			t.Errorf("health is %+v", h)
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		if got := db.retained["outbox_events"]; got.After != time.Hour || got.Archive != "none" || got.Batch != 1000 ||
			got.Logger == nil {
			t.Errorf("outbox_events is kept for %+v", got)
		}
		if got := db.retained["letters"]; got.After != 30*24*time.Hour || got.Archive != "none" {
			t.Errorf("letters are kept for %+v", got)
		}
		if _, kept := db.retained["bills"]; kept || len(db.retained) != 2 {
			t.Errorf("old rows leave %v", db.retained)
		}
	})
}

func TestWakeIsForOneTableOrAll(t *testing.T) {
	a, b := &memory{}, &memory{}
	db := &memoryDB{tables: map[string]*memory{"outbox_events": a, "event_outbox": b}}
	runRelay(t, db, &memory{}, Config{}, func(r *Relay) {
		pass(time.Second + 7*time.Millisecond) // both are idle, between two polls
		claims := func() (int, int) {
			a.mu.Lock()
			defer a.mu.Unlock()
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(a.claims), len(b.claims)
		}
		a0, b0 := claims()
		r.Wake("outbox_events")
		synctest.Wait()
		a1, b1 := claims()
		if a1 == a0 || b1 != b0 {
			t.Errorf("%d and %d claims by a wake-up of the first table", a1-a0, b1-b0)
		}
		db.wake("")
		synctest.Wait()
		if a2, b2 := claims(); a2 == a1 || b2 == b1 {
			t.Errorf("%d and %d claims by a wake-up of all", a2-a1, b2-b1)
		}
	})
}

func TestRelayWaitsForItsDatabase(t *testing.T) {
	m := &memory{}
	m.add("a")
	db := &memoryDB{tables: map[string]*memory{"outbox_events": m}, down: errors.New("connection refused")}
	runRelay(t, db, m, Config{}, func(r *Relay) {
		r.Wake("") // it must not matter
		pass(time.Minute)
		if h := r.Health(); h.Ready || !strings.Contains(h.Reason, "waiting for the database: connection refused") {
			t.Errorf("health is %+v", h)
		}
		db.mu.Lock()
		if db.opened < 10 || db.opened > 20 {
			t.Errorf("asked %d times in a minute", db.opened)
		}
		db.down = nil
		db.mu.Unlock()
		pass(10 * time.Second)
		if h := r.Health(); !h.Ready || len(m.published) != 1 {
			t.Errorf("published %v, health is %+v", m.published, h)
		}
	})
}

func TestRelayDoesNotWaitForWhatDoesNotCome(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		db   *memoryDB
		cfg  Config
		want error
	}{
		"no table":      {&memoryDB{}, Config{}, ErrNoTable},
		"hidden":        {&memoryDB{down: outbox.ErrRowsHidden}, Config{}, outbox.ErrRowsHidden},
		"not allowed":   {&memoryDB{down: outbox.ErrNotAllowed}, Config{}, outbox.ErrNotAllowed},
		"wrong":         {&memoryDB{down: outbox.Permanent(errDead)}, Config{}, errDead},
		"table missing": {&memoryDB{}, Config{Tables: []Table{{Layout: outbox.OutboxEvents()}}}, nil},
	} {
		c.cfg.Logger = slog.New(slog.DiscardHandler)
		r, err := New(c.db, &memory{}, c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		err = r.Run(t.Context())
		var schema *outbox.SchemaError
		if c.want != nil && !errors.Is(err, c.want) || c.want == nil && !errors.As(err, &schema) {
			t.Errorf("%s: Run says %v", what, err)
		}
	}
}

func TestTablesAreChecked(t *testing.T) {
	t.Parallel()
	_, err := New(nil, nil, Config{Tables: []Table{
		{Layout: outbox.OutboxEvents(), Sink: "kafka", MaxAttempts: -1, Backoff: Backoff{Factor: 0.1}},
		{Layout: outbox.OutboxEvents(), Retention: outbox.Retention{Batch: -1}, Policies: []RetryPolicy{{}}},
		{Layout: outbox.Layout{Table: "x"}},
	}})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`outbox_events: there is no sink "kafka"`, "MaxAttempts is -1",
		"outbox_events: Backoff.Factor",
		"outbox_events is there twice", "outbox_events: Retention.Batch", "outbox_events: Policies[0].Destination",
		`table "x"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not among the problems:\n%v", want, err)
		}
	}
}
