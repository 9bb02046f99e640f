package pgmigrations_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// producerOf are the roles that write to the tables of the seeds, and the seeds' own INSERTs with
// all their columns. %s is an application or a run.
var producerOf = []struct {
	layout       outbox.Layout
	role, insert string
}{
	{outbox.OutboxEvents(), "outbox_producer", `INSERT INTO outbox_events (id, event_topic, occurred_at, schema_id, schema_version, aggregate_id,
		aggregate_type, tenant_id, source_bc, destination_topics, payload, metadata, status, retry_count, next_retry_at, error_message, created_at, processed_at)
		VALUES (gen_random_uuid(), 'product.created', now(), NULL, 1, '1', 'Product', 'default', 'catalog', '["a","b"]', '{}', '{"trace_id":"t"}',
		'NEW', 0, NULL, NULL, now(), NULL)`},
	{outbox.EventOutbox(), "outbox_producer", `INSERT INTO event_outbox (id, app_id, event_id, event_type, payload, status, published_at)
		VALUES (gen_random_uuid(), '%s', gen_random_uuid(), 'order.placed', '{}', 'pending', NULL)`},
	{outbox.CrawlOutbox(), "outbox_run_producer", `INSERT INTO crawl_outbox (id, crawl_id, event_type, payload, created_at, published_at)
		VALUES (DEFAULT, '%s', 'RUN_STARTED', '{}', now(), NULL)`},
}

// The seeds' own INSERTs work as the role of producers, with all columns and RETURNING *. A value
// of a column of state that is not the initial one is refused, and the error names the column. A
// producer reads no row but its own. On new tables and on adopted ones.
func TestProducersInsertAsTheSeedsDo(t *testing.T) {
	t.Parallel()
	for _, adopted := range []bool{false, true} {
		t.Run(fmt.Sprintf("adopted=%v", adopted), func(t *testing.T) {
			t.Parallel()
			if adopted {
				tier.Full(t)
			}
			url := testenv.Database(t)
			super := connect(t, url)
			for _, name := range []string{"adr004", "plan0501", "fr006", "fr007"} {
				ddl, err := os.ReadFile("testdata/" + name + ".sql")
				if err != nil {
					t.Fatal(err)
				}
				if adopted {
					run(t, super, string(ddl))
				}
			}
			up(t, url)
			for range 2 { // again as after a later migration
				if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
					t.Fatal(err)
				}
			}
			const app = "INSERT INTO apps (id, name, namespace) VALUES (gen_random_uuid(), $1, $1) RETURNING id::text"
			mine, theirs := one[string](t, super, app, "mine"), one[string](t, super, app, "theirs")
			id := newRun(t, super)
			for _, p := range producerOf {
				of := map[bool]string{true: mine, false: id}[p.layout.App != ""]
				insert := strings.ReplaceAll(strings.Join(strings.Fields(p.insert), " "), "%s", of)
				run(t, super, strings.ReplaceAll(insert, mine, theirs)) // of somebody else
				conn := connect(t, url)
				run(t, conn, "SELECT set_config('app.current_tenant', $1, false)", mine)
				run(t, conn, "SET ROLE "+p.role)
				checkProducer(t, conn, p.layout, insert)
				if p.layout.App != "" && !adopted { // the seed's table in testdata has no row-level security
					refused(t, conn, "42501", strings.ReplaceAll(insert, mine, theirs))
				}
			}
		})
	}
}

func checkProducer(t *testing.T, conn *pgx.Conn, l outbox.Layout, insert string) {
	t.Helper()
	reads := func(most int) {
		t.Helper()
		rows, err := conn.Query(t.Context(), "SELECT * FROM "+l.Table)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for rows.Next() {
			n++
		}
		var undrawn *pgconn.PgError // the session has drawn no position
		if errors.As(rows.Err(), &undrawn) && undrawn.Code == "55000" && most == 0 {
			return
		}
		if n > most || rows.Err() != nil {
			t.Errorf("a producer reads %d rows of %s (%v), want at most %d", n, l.Table, rows.Err(), most)
		}
	}
	reads(0) // the session has inserted nothing
	_, values, _ := strings.Cut(insert, "VALUES ")
	for n, statement := range map[int]string{1: insert, 3: insert + ", " + values + ", " + values} {
		statement = "WITH new AS (" + statement + " RETURNING *) SELECT " + l.Position + "::text FROM new"
		if got := query[string](t, conn, statement); len(got) != n {
			t.Fatalf("INSERT INTO %s RETURNING * returned %v, want %d rows", l.Table, got, n)
		}
	}
	reads(1)
	refused(t, conn, "42501", "UPDATE "+l.Table+" SET "+l.Topic+" = 'x'")
	refused(t, conn, "42501", "DELETE FROM "+l.Table)
	others := map[string]string{l.Status: "'" + l.Delivered + "'", l.Attempts: "1", l.Generation: "1",
		l.NextRetryAt: "now()", l.DeliveredAt: "now()", l.LastError: "'x'", l.ErrorHistory: "'[]'", l.DeliveredTo: "'[]'"}
	if l.Position == "id" {
		others["id"] = "1000000"
	}
	for column, value := range others {
		if column == "" {
			continue
		}
		names, _, _ := strings.Cut(insert, "VALUES (")
		begin := strings.Index(names, "(")
		columns := strings.Split(strings.Trim(strings.TrimSpace(names[begin:]), "()"), ",")
		list := strings.Split(strings.TrimSuffix(strings.TrimPrefix(values, "("), ")"), ", ")
		for i := range columns {
			columns[i] = strings.TrimSpace(columns[i])
		}
		if i := slices.Index(columns, column); i >= 0 {
			list[i] = value
		} else {
			columns, list = append(columns, column), append(list, value)
		}
		forged := names[:begin] + "(" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(list, ", ") + ")"
		if err := refusal(t, conn, "42501", forged); !strings.Contains(err.Message, `"`+column+" must have its initial value") {
			t.Errorf("%s.%s = %s: %v, want an error that names the column", l.Table, column, value, err)
		}
	}
}

// A login that is a producer and something else is not restricted in what it may do otherwise.
func TestProducersWithOtherRolesKeepTheirRights(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url, super := database(t)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	run(t, super, strings.ReplaceAll(producerOf[0].insert, "%s", ""))
	login := "all_" + one[string](t, super, "SELECT current_database()")
	run(t, super, "CREATE ROLE "+login+" IN ROLE outbox_producer, outbox_relay, outbox_operator")
	other := "reader_" + one[string](t, super, "SELECT current_database()")
	run(t, super, "CREATE ROLE "+other+"; GRANT SELECT, INSERT ON outbox_events TO "+other) // a grant of its own
	for _, role := range []string{login, other} {
		conn := connect(t, url)
		run(t, conn, "SET ROLE "+role)
		if n := one[int](t, conn, "SELECT count(*) FROM outbox_events"); n == 0 {
			t.Errorf("%s reads no row", role)
		}
		run(t, conn, verbs["outbox_events"]["FORGE"])
	}
}
