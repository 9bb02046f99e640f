package pgmigrations_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// adoptRows is how many rows a table of before has; OUTBOX_ADOPT_ROWS says otherwise.
func adoptRows(t *testing.T) int {
	t.Helper()
	if text := os.Getenv("OUTBOX_ADOPT_ROWS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return 5000
}

// seed is an application of before: its DDL word for word, rows, and the statements it goes on
// with.
type seed struct {
	ddl    []string      // files of testdata
	parent string        // rows that the others point at
	rows   string        // $1 rows; those up to a fifth are delivered already
	write  []string      // one transaction; $1 the next number
	outbox string        // as the application calls it
	keep   string        // rows that must stay as they are, as text
	every  time.Duration // between its transactions
	layout outbox.Layout
}

const runs = "SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid FROM generate_series(0, 49) i"

func seeds() map[string]seed {
	run := "('00000000-0000-7000-8000-' || lpad(to_hex($1::int % 50), 12, '0'))::uuid"
	of := func(n string) string { return strings.ReplaceAll(run, "$1::int", n) }
	return map[string]seed{
		"ADR-004": {
			ddl: []string{"adr004"},
			rows: `INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_id, aggregate_type, source_bc, payload, status, created_at)
				SELECT gen_random_uuid(), 'order.placed', now(), (n % 50)::text, 'Order', 'shop', jsonb_build_object('n', n),
				       CASE WHEN n <= $1::int / 5 THEN 'SENT' ELSE 'NEW' END, now() - ($1::int - n) * interval '1 second'
				  FROM generate_series(1, $1::int) n ORDER BY random()`,
			write: []string{`INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_id, aggregate_type, source_bc, destination_topics, payload, metadata)
				VALUES (gen_random_uuid(), 'order.placed', now(), ($1::int % 50)::text, 'Order', 'shop', NULL, jsonb_build_object('n', $1::int), '{"user_id": "u"}')`},
			outbox: "outbox_events",
			keep: "SELECT concat_ws('|', id, event_topic, occurred_at, aggregate_id, status, payload, created_at) FROM " +
				"outbox_events WHERE id IN (SELECT id FROM kept) ORDER BY id",
			every:  5 * time.Millisecond,
			layout: outbox.OutboxEvents(),
		},
		"05-01": {
			ddl:    []string{"plan0501"},
			parent: "INSERT INTO apps (id, name, namespace) SELECT gen_random_uuid(), 'Shop', 'shop'",
			rows: `INSERT INTO event_outbox (id, app_id, event_id, event_type, payload, status)
				SELECT ('00000000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, (SELECT id FROM apps WHERE namespace = 'shop'), gen_random_uuid(),
				       'order.placed', jsonb_build_object('n', n), CASE WHEN n <= $1::int / 5 THEN 'published' ELSE 'pending' END
				  FROM generate_series(1, $1::int) n ORDER BY random()`,
			write: []string{`INSERT INTO event_outbox (id, app_id, event_id, event_type, payload, status, published_at)
				VALUES (('00000000-0000-7000-8000-' || lpad(to_hex($1::int), 12, '0'))::uuid, (SELECT id FROM apps WHERE namespace = 'shop'),
				        gen_random_uuid(), 'order.placed', jsonb_build_object('n', $1::int), 'pending', NULL)`},
			outbox: "event_outbox",
			keep: "SELECT concat_ws('|', id, event_id, event_type, status, payload) FROM event_outbox WHERE id IN (SELECT " +
				"id FROM kept) ORDER BY id",
			every:  5 * time.Millisecond,
			layout: outbox.EventOutbox(),
		},
		"FR-006 and FR-007": {
			ddl:    []string{"fr006", "fr007"},
			parent: "INSERT INTO crawl_runs (id, app_package) SELECT u, 'com.example.app' FROM (" + runs + ") r (u)",
			rows: `WITH log AS (INSERT INTO crawl_events (crawl_id, event_type, payload)
					SELECT ` + of("n") + `, 'PROCESSING', jsonb_build_object('n', n) FROM generate_series(1, $1::int) n RETURNING 1)
				INSERT INTO crawl_outbox (crawl_id, event_type, payload, published_at)
				SELECT ` + of("n") + `, 'PROCESSING', jsonb_build_object('n', n), CASE WHEN n <= $1::int / 5 THEN now() END FROM generate_series(1, $1::int) n`,
			write: []string{
				"INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES (" + run +
					", 'PROCESSING', jsonb_build_object('n', $1::int))",
				"INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES (" + run +
					", 'PROCESSING', jsonb_build_object('n', $1::int))",
			},
			outbox: "crawl_outbox",
			keep: "SELECT concat_ws('|', id, crawl_id, event_type, payload, created_at, published_at) FROM crawl_outbox " +
				"WHERE id IN (SELECT id FROM kept) ORDER BY id",
			every:  5 * time.Millisecond,
			layout: outbox.CrawlOutbox(),
		},
		"FR-005": {
			ddl:    []string{"fr005"},
			parent: "INSERT INTO runs (id, app_package) SELECT u, 'com.example.app' FROM (" + runs + ") r (u)",
			rows: `WITH log AS (INSERT INTO run_events (run_id, event_type, payload)
					SELECT ` + of("n") + `, 'PROCESSING', jsonb_build_object('n', n) FROM generate_series(1, $1::int) n RETURNING 1)
				INSERT INTO run_outbox (run_id, event_type, payload, published_at)
				SELECT ` + of("n") + `, 'PROCESSING', jsonb_build_object('n', n), CASE WHEN n <= $1::int / 5 THEN now() END FROM generate_series(1, $1::int) n`,
			write: []string{
				"UPDATE runs SET status = 'RUNNING'::run_status WHERE id = " + run,
				"INSERT INTO run_events (run_id, event_type, payload) VALUES (" + run +
					", 'PROCESSING', jsonb_build_object('n', $1::int))",
				"INSERT INTO run_outbox (run_id, event_type, payload) VALUES (" + run +
					", 'PROCESSING', jsonb_build_object('n', $1::int))",
			},
			outbox: "run_outbox",
			keep: "SELECT concat_ws('|', id, run_id, event_type, payload, created_at, published_at) FROM run_outbox WHERE " +
				"id IN (SELECT id FROM kept) ORDER BY id",
			every:  1, // it is never idle
			layout: outbox.CrawlOutbox(),
		},
	}
}

// before is a database with a seed's tables and rows.
func (s seed) before(t *testing.T, rows int) (string, *pgx.Conn) {
	t.Helper()
	url := testenv.Database(t)
	conn := connect(t, url)
	for _, name := range s.ddl {
		ddl, err := os.ReadFile("testdata/" + name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		run(t, conn, string(ddl))
	}
	if s.parent != "" {
		run(t, conn, s.parent)
	}
	run(t, conn, s.rows, rows)
	return url, conn
}

// application writes as a seed does, until it is stopped.
type application struct {
	cancel  context.CancelFunc
	done    chan struct{}
	written int
	longest time.Duration
	failed  error
}

func (s seed) start(t *testing.T, url string, from int) *application {
	t.Helper()
	conn := connect(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	a := &application{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(a.done)
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for ctx.Err() == nil && a.failed == nil {
			<-tick.C
			began := time.Now()
			a.failed = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				for _, statement := range s.write {
					if _, err := tx.Exec(t.Context(), statement, from+a.written+1); err != nil {
						return fmt.Errorf("%w in %s", err, statement)
					}
				}
				return nil
			})
			if a.failed == nil {
				a.longest = max(a.longest, time.Since(began))
				a.written++
			}
		}
	}()
	t.Cleanup(a.stop)
	return a
}

func (a *application) stop() {
	a.cancel()
	<-a.done
}

// recorder is a sink that remembers what came for each key.
type recorder struct {
	mu   sync.Mutex
	seen map[int]int // n by times
	last map[int64]int
	odd  []string
}

func (r *recorder) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range batch {
		var payload struct{ N int }
		if err := json.Unmarshal(d.Payload, &payload); err != nil {
			r.odd = append(r.odd, err.Error())
		}
		r.seen[payload.N]++
		if d.Keyed {
			if last := r.last[d.OrderKey]; last >= payload.N {
				r.odd = append(r.odd, fmt.Sprintf("%d after %d", payload.N, last))
			}
			r.last[d.OrderKey] = payload.N
		}
	}
	return make([]outbox.Result, len(batch))
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// deliver runs a relay until want events have come.
func deliver(t *testing.T, url string, layout outbox.Layout, want func() int) {
	t.Helper()
	db, err := postgres.Connect(t.Context(), url, postgres.Config{Conns: 4})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sink := &recorder{seen: map[int]int{}, last: map[int64]int{}}
	relay, err := relay.New(db, sink, relay.Config{
		Tables: []relay.Table{{Layout: layout}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = relay.Run(ctx) })
	for deadline := time.Now().Add(4 * tier.Patience()); sink.count() < want(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%d events were delivered, want %d", sink.count(), want())
			break
		}
	}
	stop()
	running.Wait()
	if len(sink.odd) > 0 {
		t.Errorf("out of order: %d, the first %s", len(sink.odd), sink.odd[0])
	}
	for n, times := range sink.seen {
		if times > 1 {
			t.Errorf("%d was delivered %d times", n, times)
			break
		}
	}
}

// functions are those of the schema, as pg_dump has them: with owner, privileges and comment.
const functions = `SELECT concat_ws(' ', 'function', oid::regprocedure, proowner::regrole, proacl, obj_description(oid, 'pg_proc'), pg_get_functiondef(oid))
	FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1`

// schemaOf is the catalog without what a test adds.
func schemaOf(t *testing.T, conn *pgx.Conn) (lines []string) {
	t.Helper()
	for _, line := range append(catalog(t, conn), query[string](t, conn, functions)...) {
		if !strings.Contains(line, "kept") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A seed's tables, its rows and its running application: up adopts them, a relay delivers them,
// down gives them back.
func TestAdoptSeeds(t *testing.T) {
	t.Parallel()
	rows := adoptRows(t)
	for name, s := range seeds() {
		t.Run(name, func(t *testing.T) {
			if name != "ADR-004" && name != "05-01" {
				tier.Full(t)
			}
			t.Parallel()
			url, conn := s.before(t, rows)
			run(t, conn, "CREATE TABLE kept AS SELECT id FROM "+s.outbox)
			want, kept := schemaOf(t, conn), query[string](t, conn, s.keep)
			owned := query[string](t, conn, functions)
			app := s.start(t, url, rows)
			time.Sleep(100 * time.Millisecond)

			began := time.Now()
			up(t, url)
			t.Logf("%d rows adopted in %s", rows, time.Since(began).Round(time.Millisecond))
			if got := versions(t, url); got != everything {
				t.Fatal(got)
			}
			if got := query[string](t, conn, s.keep); !reflect.DeepEqual(got, kept) {
				t.Error("rows are not as they were after up")
			}
			there := query[string](t, conn, functions)
			for _, function := range owned {
				if !slices.Contains(there, function) {
					t.Errorf("up has changed %s: now\n%s", function, strings.Join(there, "\n"))
				}
			}
			if plan, err := pgmigrations.Plan(t.Context(), url); err != nil || !plan.Empty() {
				t.Errorf("another plan: %+v, %v", plan, err)
			}
			time.Sleep(100 * time.Millisecond)
			app.stop()
			during := app.longest
			if app.failed != nil {
				t.Fatalf("the application failed after %d: %v", app.written, app.failed)
			}
			t.Logf("the application wrote %d, and waited %s at most", app.written, during.Round(time.Millisecond))
			s.checkLog(t, conn)
			deliver(t, url, s.layout, func() int { return rows - rows/5 + app.written })

			again := s.start(t, url, rows+app.written)
			for _, set := range []string{"crawl", "events", "core"} {
				if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, set); err != nil {
					t.Fatal(err)
				}
			}
			if got := schemaOf(t, conn); !reflect.DeepEqual(got, want) {
				t.Errorf("given back:\n%s\nwas:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			up(t, url)
			again.stop()
			if again.failed != nil {
				t.Fatalf("the application failed after %d: %v", again.written, again.failed)
			}
			t.Logf("through down and up the application wrote %d, and waited %s at most", again.written,
				again.longest.Round(time.Millisecond))
			if n := one[int](t, conn, "SELECT count(*) FROM "+s.outbox); n != rows+app.written+again.written {
				t.Errorf("%d rows, want %d", n, rows+app.written+again.written)
			}
			s.checkLog(t, conn)
			deliver(t, url, s.layout, func() int { return again.written })
		})
	}
}

// checkLog checks that the events of each run are numbered without a gap, in the order in which
// they were written.
func (s seed) checkLog(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	if one[*string](t, conn, "SELECT to_regclass('crawl_events')::text") == nil || !strings.Contains(s.outbox, "run_") &&
		s.outbox != "crawl_outbox" {
		return
	}
	wrong := one[int](t, conn, `SELECT count(*) FROM (SELECT seq, event_id, row_number() OVER (PARTITION BY crawl_id ORDER BY id) AS n FROM crawl_events) e
		WHERE seq <> n OR event_id IS NULL`)
	if wrong > 0 {
		t.Errorf("%d events have the wrong number", wrong)
	}
}
