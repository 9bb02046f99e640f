package pgmigrations_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
)

// Through a pooler that lends a session for a transaction, migrations work too, one at a time, and
// leave no lock in a session that others get.
func TestMigrateThroughPooler(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	_, through := testenv.Pooled(t, map[string]string{"default_pool_size": "20"})
	direct := testenv.Database(t)
	pooled := through(direct)
	want := testenv.Database(t)
	up(t, want)
	var all sync.WaitGroup
	for n := range 4 { // at once, and one of them not through the pooler
		all.Go(func() {
			if err := pgmigrations.Up(t.Context(), []string{pooled, pooled, pooled, direct}[n],
				pgmigrations.Sets...); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := versions(t, pooled); got != versions(t, want) {
		t.Errorf("after Up: %s", got)
	}
	if err := pgmigrations.ApplyRoles(t.Context(), pooled); err != nil {
		t.Error(err)
	}
	// A file that fails is named, with its line, and leaves the version as it was.
	conn := connect(t, direct)
	takeBack(t, conn)
	if err := pgmigrations.Down(t.Context(), direct, pgmigrations.All, "events"); err != nil {
		t.Fatal(err)
	}
	run(t, conn, "CREATE TYPE event_outbox AS ENUM ('a')") // a table makes a type of its name
	if err := pgmigrations.Up(t.Context(), pooled); err == nil ||
		!strings.Contains(err.Error(), "apply events/001_event_outbox") || strings.Contains(err.Error(), "CREATE TABLE") {
		t.Errorf("Up over a type: %v", err)
	}
	run(t, conn, "DROP TYPE event_outbox")
	if err := pgmigrations.Up(t.Context(), pooled); err != nil {
		t.Error(err)
	}
	if got := versions(t, pooled); got != versions(t, want) {
		t.Errorf("after repair: %s", got)
	}
	if found := testenv.SessionDifferences(t, direct, pooled, 10); len(found) > 0 {
		t.Errorf("pooled sessions differ from a new one:\n%s", strings.Join(found, "\n"))
	}
	for _, set := range []string{"crawl", "events", "core"} {
		if err := pgmigrations.Down(t.Context(), pooled, pgmigrations.All, set); err != nil {
			t.Error(err)
		}
	}
	if got := versions(t, pooled); got != applied() {
		t.Errorf("after Down: %s", got)
	}
}

// A process that waits for the lock through a pooler has no transaction open between two tries: the
// holder's CREATE INDEX CONCURRENTLY would wait for it, and both for each other.
func TestWaitingThroughPoolerKeepsNoTransaction(t *testing.T) {
	t.Parallel()
	_, through := testenv.Pooled(t, nil)
	direct := testenv.Database(t)
	conn := connect(t, direct)
	run(t, conn, "SELECT pg_advisory_lock(x'6f7574626f78'::bigint)")
	ended := make(chan error, 1)
	go func() { ended <- pgmigrations.Up(t.Context(), through(direct), "core") }()
	const oldest = `SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE 'outbox migrate%' AND state = 'idle in transaction'`
	for began := time.Now(); time.Since(began) < time.Second; time.Sleep(20 * time.Millisecond) {
		if age := one[float64](t, conn, oldest); age > 0.5 {
			t.Fatalf("a transaction of the process that waits is open for %.1f s", age)
		}
	}
	run(t, conn, "SELECT pg_advisory_unlock_all()")
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestMigrateInStatementMode(t *testing.T) {
	t.Parallel()
	_, through := testenv.Pooled(t, map[string]string{"pool_mode": "statement"})
	if err := pgmigrations.Up(t.Context(), through(testenv.Database(t))); !errors.Is(err, postgres.ErrStatementMode) {
		t.Errorf("got %v", err)
	}
}

// Tables are adopted through a pooler too, by several at once.
func TestAdoptThroughPooler(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	_, through := testenv.Pooled(t, map[string]string{"default_pool_size": "20"})
	s := seeds()["FR-006 and FR-007"]
	direct, conn := s.before(t, 500)
	app := s.start(t, direct, 500)
	var all sync.WaitGroup
	for n := range 3 {
		all.Go(func() {
			if err := pgmigrations.Up(t.Context(), []string{through(direct), through(direct), direct}[n]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	app.stop()
	if app.failed != nil {
		t.Error(app.failed)
	}
	s.checkLog(t, conn)
	if found := testenv.SessionDifferences(t, direct, through(direct), 10); len(found) > 0 {
		t.Errorf("pooled sessions differ from a new one:\n%s", strings.Join(found, "\n"))
	}
}
