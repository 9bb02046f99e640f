package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
)

// heard is what a listener was told.
type heard struct {
	mu     sync.Mutex
	tables []string
}

func (h *heard) wake(table string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tables = append(h.tables, table)
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.tables)
}

// run starts f and, when t ends, stops it and waits.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

const backends = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle' AND datname = " +
	"current_database()"

func listening(t *testing.T, pool *pgxpool.Pool) bool { return one[int](t, pool, backends) == 1 }

func TestNotifierWakesListener(t *testing.T) {
	pool := newPool(t, testenv.Database(t))
	var h heard
	var log strings.Builder // only the listener writes, and it has ended before this is read
	t.Cleanup(func() {
		if log.Len() > 0 {
			t.Errorf("a listener without trouble logged: %s", log.String())
		}
	})
	run(t, func(ctx context.Context) error {
		return postgres.NewDB(pool).Listen(ctx, slog.New(slog.NewTextHandler(&log, nil)), h.wake)
	})
	n, err := postgres.NewNotifier(pool, 50*time.Millisecond)
	ok(t, err)
	n.Wake("outbox_events") // before Run: kept, and only once
	n.Wake("outbox_events")
	eventually(t, "listening", func() bool { return listening(t, pool) })
	run(t, n.Run)
	eventually(t, "first notification", func() bool { return h.count() == 1 })

	// Debounced: as many as there are intervals, not as many as there are calls; and the last call
	// is not lost.
	start := time.Now()
	for time.Since(start) < 300*time.Millisecond {
		n.Wake("outbox_events")
	}
	time.Sleep(100 * time.Millisecond)
	if got := h.count() - 1; got < 2 || got > 8 {
		t.Errorf("%d notifications in 300 ms at intervals of 50 ms", got)
	}
	for _, table := range h.tables {
		if table != "outbox_events" {
			t.Errorf("woken for %q", table)
		}
	}
}

func TestListenReconnects(t *testing.T) {
	pool := newPool(t, testenv.Database(t))
	var h heard
	run(t, func(ctx context.Context) error {
		return postgres.NewDB(pool).Listen(ctx, slog.New(slog.DiscardHandler), h.wake)
	})
	n, err := postgres.NewNotifier(pool, time.Millisecond)
	ok(t, err)
	run(t, n.Run)
	for range 2 {
		eventually(t, "listening", func() bool { return listening(t, pool) })
		before := h.count()
		eventually(t, "a notification", func() bool { n.Wake("t"); return h.count() > before })
		if killed := one[int](t, pool,
			strings.Replace(backends, "count(*)", "count(pg_terminate_backend(pid))", 1)); killed != 1 {
			t.Fatalf("%d connections ended, want the listener's", killed)
		}
	}
	eventually(t, "listening again", func() bool { return listening(t, pool) })
}

// A transaction pooler accepts LISTEN and forgets it. Listen notices, says so once, and goes on
// trying.
func TestListenNoticesAPooler(t *testing.T) {
	tier.Full(t)
	t.Parallel() // it takes the 5 s that Listen gives a notification
	// A stand-in for one: notifications are sent in another database than the one listened to.
	url, other := testenv.Database(t), testenv.Database(t)
	var connections atomic.Int64
	pool := newPool(t, url, func(c *pgxpool.Config) {
		elsewhere, err := pgx.ParseConfig(other)
		ok(t, err)
		c.BeforeConnect = func(_ context.Context, cfg *pgx.ConnConfig) error {
			if connections.Add(1) > 1 {
				cfg.Database = elsewhere.Database
			}
			return nil
		}
	})
	var lines atomic.Int64
	var text atomic.Value
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		text.Store(string(b))
		lines.Add(1)
		return len(b), nil
	}), nil))
	run(t, func(ctx context.Context) error { return postgres.NewDB(pool).Listen(ctx, log, func(string) {}) })
	eventually(t, "a complaint", func() bool { return lines.Load() > 0 })
	if s := fmt.Sprint(text.Load()); !strings.Contains(s, "transaction pooler") || !strings.Contains(s, "level=WARN") {
		t.Errorf("it logged %s", s)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// A role or a database can end idle sessions. The listener's session is idle most of the time.
func TestListenOutlastsIdleSessionTimeout(t *testing.T) {
	t.Parallel()
	database := testenv.Database(t)
	before := newPool(t, database) // its sessions keep no timeout
	_, err := before.Exec(t.Context(), `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET idle_session_timeout = 300', current_database()); END $$`)
	ok(t, err)
	pool := newPool(t, database)
	var log strings.Builder // only the listener writes, and it has ended before this is read
	t.Cleanup(func() {
		if log.Len() > 0 {
			t.Errorf("the listener logged: %s", log.String())
		}
	})
	var h heard
	run(t, func(ctx context.Context) error {
		return postgres.NewDB(pool).Listen(ctx, slog.New(slog.NewTextHandler(&log, nil)), h.wake)
	})
	eventually(t, "listening", func() bool { return listening(t, before) })
	time.Sleep(600 * time.Millisecond)
	if !listening(t, before) {
		t.Error("the listener's session has ended")
	}
}
