package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// taker takes everything.
type taker struct{}

func (taker) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	return make([]outbox.Result, len(batch))
}

// What a relay does through a pooler in transaction mode leaves nothing in the sessions that an
// application gets from it: while it works, and after.
func TestRelayLeavesPooledSessionsAlone(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const sessions = 10
	_, through := testenv.Pooled(t, map[string]string{"default_pool_size": fmt.Sprint(2 * sessions)})
	direct := newDatabase(t)
	pooled := through(direct)
	if before := testenv.SessionDifferences(t, direct, pooled, sessions); len(before) > 0 {
		t.Fatalf("pooled sessions differ before there is a relay:\n%s", strings.Join(before, "\n"))
	}
	db, err := postgres.Connect(t.Context(), pooled, postgres.Config{Conns: 10})
	ok(t, err)
	t.Cleanup(db.Close)
	relay, err := relay.New(db, taker{}, relay.Config{
		Tables:  []relay.Table{{Layout: outbox.OutboxEvents()}},
		Workers: 3, LeaseTTL: 3 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Retention: outbox.Retention{After: time.Hour, Every: 50 * time.Millisecond},
	})
	ok(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = relay.Run(ctx) })
	defer running.Wait()
	defer stop()

	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "test"})
	ok(t, err)
	app := newPool(t, direct)
	const events = 400
	for n := range events {
		if n%100 == 99 {
			if during := testenv.SessionDifferences(t, direct, pooled, sessions); len(during) > 0 {
				t.Fatalf("pooled sessions differ beside a relay:\n%s", strings.Join(during, "\n"))
			}
		}
		ok(t, w.InTx(t.Context(), app,
			func(pgx.Tx) ([]outbox.Event, error) { return []outbox.Event{event("order.placed")}, nil }, relay.Wake))
	}
	eventually(t, "everything is delivered", func() bool {
		return one[int](t, app, "SELECT count(*) FROM outbox_events WHERE status = 'SENT'") == events
	})
	if n := one[int](t, app, "SELECT count(DISTINCT owner) FROM outbox_lanes"); n != 1 {
		t.Errorf("%d relays hold lanes", n)
	}
	stop()
	running.Wait()
	if after := testenv.SessionDifferences(t, direct, pooled, sessions); len(after) > 0 {
		t.Errorf("pooled sessions differ after a relay:\n%s", strings.Join(after, "\n"))
	}
}

// The settings of a relay's statements are the same, pooled or not, and a lease's commit is
// synchronous.
func TestSettingsGoWithTheTransaction(t *testing.T) {
	t.Parallel()
	_, through := testenv.Pooled(t, nil)
	direct := newDatabase(t)
	if err := newPool(t, through(direct)+"&jit=off").Ping(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "unsupported startup parameter: jit") {
		t.Errorf("a setting as a start-up parameter: %v", err)
	}
	for name, url := range map[string]string{"direct": direct, "pooled": through(direct)} {
		db, err := postgres.Connect(t.Context(), url, postgres.Config{Conns: 2})
		ok(t, err)
		t.Cleanup(db.Close)
		store, err := db.OpenTable(t.Context(), outbox.OutboxEvents())
		ok(t, err)
		// A trigger sees what a settle runs with, and one what a lease does.
		for _, sql := range []string{
			`CREATE TABLE IF NOT EXISTS seen (what text, setting text)`, `TRUNCATE seen`,
			`CREATE OR REPLACE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				INSERT INTO seen SELECT TG_TABLE_NAME, name || '=' || setting FROM pg_settings WHERE name IN ('synchronous_commit', 'enable_seqscan', 'plan_cache_mode', 'work_mem');
				RETURN NEW; END $$`,
			`CREATE OR REPLACE TRIGGER see AFTER UPDATE ON outbox_lanes FOR EACH STATEMENT EXECUTE FUNCTION see()`,
			`CREATE OR REPLACE TRIGGER see AFTER UPDATE ON outbox_events FOR EACH STATEMENT EXECUTE FUNCTION see()`,
		} {
			_, err := newPool(t, direct).Exec(t.Context(), sql)
			ok(t, err)
		}
		owner := uuid.New()
		leased, err := store.Lease(t.Context(), outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute})
		ok(t, err)
		w, err := postgres.NewWriter(outbox.WriterConfig{Source: "test"})
		ok(t, err)
		ok(t, w.InTx(t.Context(), newPool(t, direct),
			func(pgx.Tx) ([]outbox.Event, error) { return []outbox.Event{event("order.placed")}, nil }))
		records, err := store.Claim(t.Context(), leased.Lanes, outbox.ClaimLimit{Records: 10, Bytes: 1 << 20})
		ok(t, err)
		settled, err := store.Settle(t.Context(), owner, leased.Lanes,
			[]outbox.Outcome{{Record: records[0], State: outbox.Delivered}})
		ok(t, err)
		ok(t, store.Leave(t.Context(), owner))
		if settled.Delivered != 1 {
			t.Errorf("%s: settled %+v", name, settled)
		}
		for what, want := range map[string]string{
			"outbox_events": "{enable_seqscan=off,plan_cache_mode=force_generic_plan,synchronous_commit=off,work_mem=65536}",
			// Off: to leave.
			"outbox_lanes": "{enable_seqscan=off,plan_cache_mode=force_generic_plan,synchronous_commit=off," +
				"synchronous_commit=on,work_mem=65536}",
		} {
			got := one[string](t, newPool(t, direct),
				"SELECT array_agg(DISTINCT setting ORDER BY setting)::text FROM seen WHERE what = $1", what)
			if got != want {
				t.Errorf("%s, %s: changed with %s, want %s", name, what, got, want)
			}
		}
		_, err = newPool(t, direct).Exec(t.Context(), "DROP FUNCTION see CASCADE")
		ok(t, err)
	}
}

func TestStatementModeIsRefused(t *testing.T) {
	t.Parallel()
	_, through := testenv.Pooled(t, map[string]string{"pool_mode": "statement"})
	url := through(newDatabase(t))
	relays, err := postgres.Connect(t.Context(), url, postgres.Config{Conns: 2})
	ok(t, err)
	t.Cleanup(relays.Close)
	for name, pool := range map[string]interface{ Ping(context.Context) error }{"relay": relays,
		"adapted": newPool(t, url, postgres.Adapt)} {
		if err := pool.Ping(t.Context()); !errors.Is(err, postgres.ErrStatementMode) ||
			!strings.Contains(err.Error(), "pool_mode=transaction") {
			t.Errorf("%s: got error %v", name, err)
		}
	}
}

// Behind a pooler Listen says so once, asks nothing of a session, and goes on when the pooler is
// gone.
func TestListenBehindAPooler(t *testing.T) {
	t.Parallel()
	_, through := testenv.Pooled(t, nil)
	direct := newDatabase(t)
	pooled, err := pgx.ParseConfig(through(direct))
	ok(t, err)
	var away atomic.Bool
	pool := newPool(t, direct, func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, cfg *pgx.ConnConfig) error {
			if !away.Load() {
				cfg.Host, cfg.Port, cfg.Fallbacks = pooled.Host, pooled.Port, nil
			}
			return nil
		}
	})
	var lines atomic.Int64
	var text atomic.Value
	log := slog.New(slog.NewTextHandler(writerFunc(func(b []byte) (int, error) {
		lines.Add(1)
		text.Store(string(b))
		return len(b), nil
	}), nil))
	run(t, func(ctx context.Context) error { return postgres.NewDB(pool).Listen(ctx, log, func(string) {}) })
	eventually(t, "a line", func() bool { return lines.Load() > 0 })
	if s := fmt.Sprint(text.Load()); !strings.Contains(s, "a pooler is between") || !strings.Contains(s, "level=INFO") {
		t.Errorf("it logged %s", s)
	}
	observer := newPool(t, direct)
	if n := one[int](t, observer,
		"SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"); n > 0 {
		t.Errorf("%d sessions listen", n)
	}
	away.Store(true)
	eventually(t, "listening", func() bool { return listening(t, observer) })
}

// A connection that was to be one to PostgreSQL and is one to a pooler is given up, and from then
// on the settings go with the transactions.
func TestPoolerThatComesLater(t *testing.T) {
	t.Parallel()
	_, through := testenv.Pooled(t, nil)
	direct := newDatabase(t)
	behind, err := pgx.ParseConfig(through(direct))
	ok(t, err)
	var came atomic.Bool
	pool := newPool(t, direct, func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, cfg *pgx.ConnConfig) error {
			if came.Load() {
				cfg.Host, cfg.Port, cfg.Fallbacks = behind.Host, behind.Port, nil
			}
			return nil
		}
		postgres.Adapt(c)
	})
	ok(t, pool.Ping(t.Context()))
	came.Store(true)
	pool.Reset()
	if err := pool.Ping(t.Context()); err == nil {
		t.Error("a connection with named statements went to a pooler")
	}
	for range 20 {
		if got := one[int](t, pool, "SELECT $1::int", 7); got != 7 {
			t.Errorf("got %d", got)
		}
	}
	if found := testenv.SessionDifferences(t, direct, through(direct), 1); len(found) > 0 {
		t.Errorf("a pooled session differs:\n%s", strings.Join(found, "\n"))
	}
}
