package pgmigrations_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// pairs are the rows of a run's queue in their order: the number that each has, and whether its id
// is that of the event of this number in the log.
func pairs(t *testing.T, conn *pgx.Conn, run string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT concat(o.payload ->> 'n', '=', o.seq, CASE WHEN o.event_id = e.event_id THEN '' ELSE '!' END)
		FROM crawl_outbox o LEFT JOIN crawl_events e ON e.crawl_id = o.crawl_id AND e.seq = o.seq WHERE o.crawl_id = $1 ORDER BY o.id`, run)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// FR-005, FR-006: the two INSERTs of plain SQL are one event, with one id and one number.
func TestTheLogsEventIsTheQueues(t *testing.T) {
	t.Parallel()
	const (
		logs  = "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ('RUN', 'NODE_START', '{\"n\": N}'); "
		queue = "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('RUN', 'NODE_START', '{\"n\": N}'); "
		view  = "INSERT INTO run_outbox (run_id, event_type, payload) VALUES ('RUN', 'NODE_START', '{\"n\": N}'); "
	)
	with := func(sql, n string) string { return strings.ReplaceAll(sql, "N}", n+"}") }
	_, conn := database(t)
	for _, c := range []struct {
		what string
		sql  string
		want []string
	}{
		{"one of each", with(logs+queue, "1"), []string{"1=1"}},
		{"by FR-005's name", with(logs+view, "1"), []string{"1=1"}},
		{"in turns", with(logs+queue, "1") + with(logs+queue, "2"), []string{"1=1", "2=2"}},
		{"first the log, then the queue", with(logs, "1") + with(logs, "2") + with(queue, "1") + with(queue, "2"),
			[]string{"1=1", "2=2"}},
		{"alike", with(logs+logs+queue+queue, "1"), []string{"1=1", "1=2"}},
		{"the queue alone", with(queue, "1"), []string{"1=!"}},
		{"another payload", with(logs, "1") + with(queue, "2"), []string{"2=!"}},
		{"more in the queue than in the log", with(logs+queue+queue, "1"), []string{"1=1", "1=!"}},
		{"behind a savepoint", "SAVEPOINT s; " + with(logs, "1") + "RELEASE s; " + with(queue, "1"), []string{"1=1"}},
		{"the log's is rolled back",
			"SAVEPOINT s; " + with(logs, "1") + "ROLLBACK TO s; " + with(queue, "1"), []string{"1=!"}},
	} {
		run := newRun(t, conn)
		if _, err := conn.Exec(t.Context(), "BEGIN; "+strings.ReplaceAll(c.sql, "RUN", run)+"COMMIT"); err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		if got := pairs(t, conn, run); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
	// What another transaction has logged may have been delivered: a copy of it would be refused.
	run := newRun(t, conn)
	for _, sql := range []string{logs + queue, queue} {
		if _, err := conn.Exec(t.Context(), strings.ReplaceAll(with(sql, "1"), "RUN", run)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), "DELETE FROM crawl_outbox WHERE seq = 1"); err != nil {
			t.Fatal(err)
		}
	}
	if got := pairs(t, conn, run); !slices.Equal(got, []string{"1=!"}) {
		t.Errorf("an event of a transaction before: %v", got)
	}
}

// A role that was granted its rights before the function compared anything writes as before.
func TestQueueOfARoleThatMayNotRead(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	run := newRun(t, conn)
	role := "writer_" + strings.ReplaceAll(run[:8], "-", "")
	for _, sql := range []string{
		"CREATE ROLE " + role, "GRANT SELECT (id, tenant_id) ON crawl_runs TO " + role,
		"GRANT INSERT ON crawl_outbox TO " + role, "GRANT USAGE ON crawl_outbox_id_seq TO " + role,
		"SET ROLE " + role,
		"INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('" + run + `', 'NODE_START', '{"n": 1}')`,
		"RESET ROLE", "DROP OWNED BY " + role, "DROP ROLE " + role,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if got := pairs(t, conn, run); !slices.Equal(got, []string{"1=!"}) {
		t.Errorf("%v", got)
	}
}

// Rows that waited before are paired once, from the newest back, unless a relay serves them.
func TestWaitingRowsGetTheirNumbers(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for _, served := range []bool{false, true} {
		url, conn := database(t)
		run := newRun(t, conn)
		if _, err := conn.Exec(t.Context(), `UPDATE outbox_migrations_crawl SET version = 1;
			ALTER TABLE crawl_outbox DISABLE TRIGGER crawl_outbox_tenant`); err != nil { // as before crawl/002
			t.Fatal(err)
		}
		for _, sql := range []string{
			`INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT 'RUN', 'NODE_START', jsonb_build_object('n', n % 3) FROM generate_series(0, 8) n`,
			// The first three are archived, the next is delivered.
			`INSERT INTO crawl_outbox (crawl_id, event_type, payload, published_at) SELECT 'RUN', 'NODE_START', jsonb_build_object('n', n % 3), CASE n WHEN 3 THEN now() END FROM generate_series(3, 8) n`,
			"INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('RUN', 'OTHER', '{\"n\": 7}')",
		} {
			if _, err := conn.Exec(t.Context(), strings.ReplaceAll(sql, "RUN", run)); err != nil {
				t.Fatal(err)
			}
		}
		want := []string{"0=!", "1=5", "2=6", "0=7", "1=8", "2=9", "7=!"}
		if served {
			if _, err := conn.Exec(t.Context(), `INSERT INTO outbox_relays (table_name, owner, name, expires_at)
				VALUES ('crawl_outbox', gen_random_uuid(), 'r', now() + interval '1 minute')`); err != nil {
				t.Fatal(err)
			}
			want = []string{"0=!", "1=!", "2=!", "0=!", "1=!", "2=!", "7=!"}
		}
		if err := pgmigrations.Up(t.Context(), url, "crawl"); err != nil {
			t.Fatal(err)
		}
		if got := pairs(t, conn, run); !slices.Equal(got, want) {
			t.Errorf("served %t: %v, want %v", served, got, want)
		}
	}
}
