package postgres_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// slowToRead runs a test with a table and with the log, which take rows of which the one with the
// topic poison cannot be read: that takes half a second to find out about, and a notice. insert is
// the statement that inserts one of a topic.
func slowToRead(t *testing.T, test func(t *testing.T, l *logged, layout outbox.Layout, insert string)) {
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.OutboxLog()} {
		t.Run(layout.Table, func(t *testing.T) {
			t.Parallel()
			l := newLog(t)
			test(t, l, layout, unreadable(t, l, layout))
		})
	}
}

func unreadable(t *testing.T, l *logged, layout outbox.Layout) (insert string) {
	t.Helper()
	_, err := l.pool.Exec(t.Context(), `
		CREATE TYPE slow AS (n int);
		CREATE FUNCTION as_text(slow) RETURNS text STRICT LANGUAGE plpgsql AS $$
		BEGIN
			RAISE NOTICE 'read';
			PERFORM pg_sleep(0.5);
			RAISE program_limit_exceeded USING MESSAGE = 'far too long';
		END $$;
		CREATE CAST (slow AS text) WITH FUNCTION as_text(slow);
		DROP TRIGGER `+layout.Table+`_refuse ON `+layout.Table+`;
		ALTER TABLE `+layout.Table+` ALTER schema_id TYPE slow USING NULL;
		DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET enable_sort = off', current_database()); END $$`)
	ok(t, err)
	l.pool.Reset() // so that its sessions sort nothing either, as with more rows than these
	return `INSERT INTO ` + layout.Table + ` (event_topic, occurred_at, source_bc, payload, schema_id)
		SELECT $1::text, now(), 'test', '{}', CASE WHEN $1 = 'poison' THEN ROW(1)::slow END`
}

// A row that cannot be read, and takes longer to find out about than a claim has, is read once more
// by the next one, and not twice.
func TestUnreadableRowAfterAClaimRanOutOfTime(t *testing.T) {
	t.Parallel()
	slowToRead(t, func(t *testing.T, l *logged, layout outbox.Layout, insert string) {
		var reads atomic.Int64
		config := l.pool.Config()
		config.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { reads.Add(1) }
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		ok(t, err)
		defer pool.Close()
		s, err := postgres.NewDB(pool).OpenTable(t.Context(), layout)
		ok(t, err)
		leased, err := s.Lease(t.Context(), outbox.LeaseRequest{Owner: uuid.New(), Name: "test", TTL: time.Minute})
		ok(t, err)
		limit := outbox.ClaimLimit{Records: 10, Bytes: 1 << 20}
		_, err = s.Claim(t.Context(), leased.Lanes, limit) // whatever else a first one asks
		ok(t, err)
		_, err = pool.Exec(t.Context(), insert, "poison")
		ok(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
		defer cancel()
		if _, err := s.Claim(ctx, leased.Lanes, limit); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("error %v, want that it ran out of time", err)
		}
		reads.Store(0)
		records, err := s.Claim(t.Context(), leased.Lanes, limit)
		if n := reads.Load(); err != nil || len(records) != 1 || records[0].Defect == "" || n != 1 {
			t.Errorf("%d records after %d reads, error %v; want the defect after one", len(records), n, err)
		}
	})
}

// What is committed in front of a row that cannot be read, while the relay finds out about that, is
// not taken for it: it is delivered, and the dead letter is the other's.
func TestLateRowIsNotTakenForTheUnreadableOne(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	slowToRead(t, func(t *testing.T, l *logged, layout outbox.Layout, insert string) {
		late, err := l.pool.Begin(t.Context())
		ok(t, err)
		defer func() { _ = late.Rollback(t.Context()) }()
		_, err = late.Exec(t.Context(), insert, "late")
		ok(t, err)
		_, err = l.pool.Exec(t.Context(), insert, "poison")
		ok(t, err)
		l.relay(func(c *relay.Config) { c.Tables, c.Workers = []relay.Table{{Layout: layout}}, 1 })
		eventually(t, "the unreadable row is being read", func() bool {
			return one[bool](t, l.pool, `SELECT EXISTS (SELECT FROM pg_stat_activity
				WHERE datname = current_database() AND wait_event = 'PgSleep')`)
		})
		ok(t, late.Commit(t.Context()))
		eventually(t, "the late event is delivered and the other a dead letter", func() bool {
			return len(l.arrived()) == 1 && one[int](t, l.pool, "SELECT count(*) FROM job_dlq") == 1
		})
		if letter := one[string](t, l.pool, "SELECT type FROM job_dlq"); letter != "poison" ||
			l.got[0].Topic != "late" {
			t.Errorf("%s was delivered, and the dead letter is of %s", l.got[0].Topic, letter)
		}
	})
}
