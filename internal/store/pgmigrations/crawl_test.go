package pgmigrations_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// newRun inserts a run as an orchestrator would and returns its id.
func newRun(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	return one[string](t, conn, "INSERT INTO crawl_runs (app_package) VALUES ('com.example.app') RETURNING id::text")
}

// FR-006: "Insert crawl run and query back".
func TestInsertCrawlRunAndQueryBack(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	id := newRun(t, conn)
	got := one[string](t, conn, `SELECT concat_ws('|', status, app_package, coalesce(device_config::text, '-'), max_steps, coalesce(goal, '-'),
		created_at = (SELECT max(created_at) FROM crawl_runs), num_nulls(started_at, completed_at, cancelled_at, error_message)) FROM crawl_runs WHERE id = $1`, id)
	if want := "PENDING|com.example.app|-|100|-|t|4"; got != want {
		t.Errorf("with defaults: %s, want %s", got, want)
	}
	id = one[string](t, conn, `INSERT INTO crawl_runs (status, app_package, device_config, max_steps, goal, error_message)
		VALUES ('FAILED', 'p', '{"os": 14}', 7, 'log in', 'boom') RETURNING id::text`)
	got = one[string](t, conn,
		"SELECT concat_ws('|', status, device_config, max_steps, goal, error_message) FROM crawl_runs WHERE id = $1", id)
	if want := `FAILED|{"os": 14}|7|log in|boom`; got != want {
		t.Errorf("filled: %s, want %s", got, want)
	}
	refused(t, conn, "22P02", "INSERT INTO crawl_runs (app_package, status) VALUES ('p', 'PAUSED')")
}

// FR-006: "Insert 1000 events and verify sequential IDs". In one statement and one by one.
func TestInsert1000EventsAndVerifySequentialIDs(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	_, conn := database(t)
	at, loop := newRun(t, conn), newRun(t, conn)
	run(t, conn,
		`INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT $1, 'PROCESSING', jsonb_build_object('n', n) FROM generate_series(1, 1000) AS n`, at)
	for range 1000 {
		run(t, conn, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'PROCESSING', '{}')", loop)
	}
	for _, id := range []string{at, loop} {
		for _, column := range []string{"id", "seq"} {
			got := query[int64](t, conn, "SELECT "+column+" FROM crawl_events WHERE crawl_id = $1 ORDER BY id", id)
			if len(got) != 1000 {
				t.Fatalf("%d events", len(got))
			}
			for i, value := range got {
				if value != got[0]+int64(i) {
					t.Fatalf("%s of event %d is %d after %d", column, i, value, got[i-1])
				}
			}
			if column == "seq" && got[0] != 1 {
				t.Errorf("seq begins at %d", got[0])
			}
		}
	}
	if wrong := one[int](t, conn,
		"SELECT count(*) FROM crawl_events WHERE crawl_id = $1 AND (payload->>'n')::bigint <> seq", at); wrong != 0 {
		t.Errorf("%d events of the one statement are numbered out of order", wrong)
	}
}

// The number is drawn under the run's lock: writers of one run neither collide nor leave gaps, also
// where some roll back; and the foreign keys' own locks on the run do not deadlock with it.
func TestConcurrentWritersOfOneRunLeaveNoGap(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	id := newRun(t, conn)
	var group sync.WaitGroup
	for writer := range 8 {
		own := connect(t, url)
		group.Go(func() {
			for i := range 50 {
				err := pgx.BeginFunc(t.Context(), own, func(tx pgx.Tx) error {
					const outbox = "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 'E', '{}')"
					const log = "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'E', '{}')"
					for _, sql := range []string{outbox, log} { // the outbox first: its foreign key then holds KEY SHARE
						if _, err := tx.Exec(t.Context(), sql, id); err != nil {
							return err
						}
					}
					if i%5 == writer%5 {
						return errRollback
					}
					return nil
				})
				if err != nil && !errors.Is(err, errRollback) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if got, want := query[int64](t, conn, "SELECT seq FROM crawl_events WHERE crawl_id = $1 ORDER BY seq", id),
		8*40; len(got) != want || got[0] != 1 || got[want-1] != int64(want) {
		t.Errorf("%d events, numbered %d to %d, want 1 to %d without a gap", len(got), got[0], got[len(got)-1], want)
	}
}

var errRollback = errors.New("rolled back on purpose")

// FR-006: "Foreign key constraint prevents orphaned events".
func TestForeignKeyConstraintPreventsOrphanedEvents(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	for table, constraint := range map[string]string{"crawl_events": "crawl_events_crawl_id_fkey",
		"crawl_outbox": "crawl_outbox_crawl_id_fkey"} {
		e := refusal(t, conn, "23503",
			"INSERT INTO "+table+" (crawl_id, event_type, payload) VALUES (gen_random_uuid(), 'E', '{}')")
		if e.ConstraintName != constraint {
			t.Errorf("refused by %s", e.ConstraintName)
		}
	}
	refused(t, conn, "23503",
		"INSERT INTO crawl_events (crawl_id, event_type, payload, seq) VALUES (gen_random_uuid(), 'E', '{}', 5)")
	refused(t, conn, "23502", "INSERT INTO crawl_events (event_type, payload) VALUES ('E', '{}')")

	id := newRun(t, conn) // and ON DELETE CASCADE
	run(t, conn, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'E', '{}')", id)
	run(t, conn, "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 'E', '{}')", id)
	run(t, conn, "DELETE FROM crawl_runs")
	if left := one[int](t, conn,
		"SELECT (SELECT count(*) FROM crawl_events) + (SELECT count(*) FROM crawl_outbox)"); left != 0 {
		t.Errorf("%d rows outlived their run", left)
	}
}

// docs/seeds.md#fr-006: exactly one terminal event a run, the last; enforced by the database.
func TestNothingAfterTheTerminalEvent(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	const insert = "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, $2, '{}')"
	terminal := []string{"RUN_COMPLETED", "RUN_FAILED", "RUN_CANCELLED"}
	for _, last := range terminal {
		id := newRun(t, conn)
		run(t, conn, insert, id, "RUN_STARTED")
		run(t, conn, insert, id, last)
		for _, next := range append(terminal, "PROCESSING") {
			e := refusal(t, conn, "23514", insert, id, next)
			if e.ConstraintName != "crawl_events_after_terminal" || !strings.Contains(e.Message, "ended with "+last) {
				t.Errorf("%s after %s: %v (%s)", next, last, e, e.ConstraintName)
			}
		}
	}
	// Also within one statement.
	id := newRun(t, conn)
	refused(t, conn, "23514",
		`INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'RUN_FAILED', '{}'), ($1, 'PROCESSING', '{}')`,
		id)
}

func TestAGivenSeqMustBeTheNext(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	id := newRun(t, conn)
	const insert = "INSERT INTO crawl_events (crawl_id, event_type, payload, seq) VALUES ($1, 'E', '{}', $2)"
	run(t, conn, insert, id, 1)
	run(t, conn, insert, id, 2)
	for _, seq := range []int{-1, 0, 1, 2, 4} {
		e := refusal(t, conn, "23514", insert, id, seq)
		if e.ConstraintName != "crawl_events_seq_gap" || !strings.Contains(e.Message, "the next one is 3") {
			t.Errorf("seq %d: %v (%s)", seq, e, e.ConstraintName)
		}
	}
	run(t, conn, insert, id, nil)
	if got := one[int64](t, conn, "SELECT max(seq) FROM crawl_events"); got != 3 {
		t.Errorf("the next one is %d", got)
	}
}

// In REPEATABLE READ the trigger may read a stale number; the unique constraint is what then keeps
// the log whole.
func TestAStaleSnapshotCannotForkTheLog(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	id := newRun(t, conn)
	stale := connect(t, url)
	tx, err := stale.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	_ = one[int](t, tx, "SELECT count(*) FROM crawl_events") // the snapshot
	run(t, conn, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'RUN_COMPLETED', '{}')", id)
	_, err = tx.Exec(t.Context(), "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'E', '{}')", id)
	var refusal *pgconn.PgError
	if !errors.As(err, &refusal) || refusal.Code != "23505" {
		t.Errorf("got %v, want a unique violation", err)
	}
}

// FR-007: "Insert event and query unpublished events".
func TestInsertEventAndQueryUnpublishedEvents(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	id := newRun(t, conn)
	for _, payload := range []string{`{"n": 1}`, `{"n": 2}`, `{"n": 3}`} {
		run(t, conn, "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 'NODE_START', $2)", id, payload)
	}
	run(t, conn, "UPDATE crawl_outbox SET published_at = NOW() WHERE payload = '{\"n\": 2}'")
	got := query[string](t, conn, "SELECT payload->>'n' FROM crawl_outbox WHERE published_at IS NULL ORDER BY id")
	if want := []string{"1", "3"}; !slices.Equal(got, want) {
		t.Errorf("unpublished: %v, want %v", got, want)
	}
}

// FR-007: "Update published_at after processing". And FR-005, on its own
// name of the table: both statements word for word, but that PostgreSQL writes ? as $1.
func TestUpdatePublishedAtAfterProcessing(t *testing.T) {
	t.Parallel()
	_, conn := database(t)
	id := newRun(t, conn)
	run(t, conn,
		"INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT $1, 'PROCESSING', jsonb_build_object('n', n) FROM "+
			"generate_series(1, 250) AS n", id)

	var published []float64
	for batch := 0; ; batch++ {
		rows, err := conn.Query(t.Context(), "SELECT * FROM run_outbox WHERE published_at IS NULL ORDER BY id ASC LIMIT 100")
		if err != nil {
			t.Fatal(err)
		}
		events, err := pgx.CollectRows(rows, pgx.RowToMap)
		if err != nil {
			t.Fatal(err)
		}
		if len(events) == 0 {
			break
		}
		for _, event := range events {
			if runID := event["run_id"].([16]byte); event["event_type"] != "PROCESSING" ||
				one[string](t, conn, "SELECT $1::uuid::text", runID) != id {
				t.Fatalf("got %v", event)
			}
			published = append(published, event["payload"].(map[string]any)["n"].(float64))
			run(t, conn, "UPDATE run_outbox SET published_at = NOW() WHERE id = $1", event["id"])
		}
	}
	if len(published) != 250 || !slices.IsSorted(published) {
		t.Errorf("published %d events, want 250 in order", len(published))
	}
	if left := one[int](t, conn,
		"SELECT count(*) FROM crawl_outbox WHERE published_at IS NULL OR published_at > now()"); left != 0 {
		t.Errorf("%d rows are not marked", left)
	}
}

// plan is EXPLAIN's answer, as far as the tests look at it.
type plan struct {
	NodeType string  `json:"Node Type"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Hit      int     `json:"Shared Hit Blocks"`
	Read     int     `json:"Shared Read Blocks"`
	Plans    []plan  `json:"Plans"`
}

func (p plan) buffers() int { return p.Hit + p.Read }

// nodes lists the plan's nodes from the top, as "Index Scan using i".
func (p plan) nodes() string {
	s := p.NodeType
	if p.Index != "" {
		s += " using " + p.Index
	}
	for _, child := range p.Plans {
		s += " < " + child.nodes()
	}
	return s
}

// explain runs the query and returns its plan and its time in ms; the time is for printing.
func explain(t *testing.T, conn *pgx.Conn, sql string, args ...any) (plan, float64) {
	t.Helper()
	var answer []struct {
		Plan plan
		Time float64 `json:"Execution Time"`
	}
	if err := json.Unmarshal([]byte(one[string](t, conn, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, args...)),
		&answer); err != nil {
		t.Fatal(err)
	}
	return answer[0].Plan, answer[0].Time
}

// FR-006: "Performance test: Query 10K events by crawl_id < 100ms". The plan is asserted, not the
// clock, which on a shared machine says little: the test prints it.
func TestQuery10KEventsByCrawlID(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	_, conn := database(t)
	id := newRun(t, conn)
	for range 10 { // among others, side by side on the pages
		run(t, conn,
			"INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT $1, 'PROCESSING', '{\"step\": 1}' FROM "+
				"generate_series(1, 1000)", id)
		run(t, conn,
			"INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT $1, 'PROCESSING', '{\"step\": 1}' FROM "+
				"generate_series(1, 4000)", newRun(t, conn))
	}
	run(t, conn, "ANALYZE crawl_events")
	// Whether the planner sorts (10,000 rows: a bitmap scan and a sort) or walks the index in order
	// is its choice; reading the table is not.
	for _, sql := range []string{
		"SELECT * FROM crawl_events WHERE crawl_id = $1 ORDER BY id",
		"SELECT * FROM crawl_events WHERE crawl_id = $1 ORDER BY seq",
	} {
		p, ms := explain(t, conn, sql, id)
		t.Logf("%s: %.0f rows, %d buffers, %.1f ms: %s", sql, p.Rows, p.buffers(), ms, p.nodes())
		byRun := strings.Contains(p.nodes(), "idx_crawl_events_crawl_id") ||
			strings.Contains(p.nodes(), "crawl_events_crawl_id_seq_key")
		if p.Rows != 10000 || !byRun || strings.Contains(p.nodes(), "Seq Scan") || p.buffers() > 500 {
			t.Errorf("%s: %.0f rows, %d buffers: %s", sql, p.Rows, p.buffers(), p.nodes())
		}
	}
	// From where a stream left off, only what is missing is read.
	p, _ := explain(t, conn, "SELECT * FROM crawl_events WHERE crawl_id = $1 AND seq > 9900 ORDER BY seq LIMIT 100", id)
	if p.Rows != 100 || !strings.Contains(p.nodes(), "crawl_events_crawl_id_seq_key") || p.buffers() > 20 {
		t.Errorf("the last 100: %.0f rows, %d buffers: %s", p.Rows, p.buffers(), p.nodes())
	}
}

// FR-007: "Performance test: Poll query on 100K rows < 50ms"; also right after that backlog has
// been drained, before any vacuum, where the seed's own index took 79-235 ms.
func TestPollQueryOn100KRows(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	_, conn := database(t)
	id := newRun(t, conn)
	run(t, conn, "ALTER TABLE crawl_outbox SET (autovacuum_enabled = off)")
	run(t, conn,
		"INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT $1, 'PROCESSING', '{\"step\": 1}' FROM "+
			"generate_series(1, 100000)", id)

	const poll = "SELECT * FROM run_outbox WHERE published_at IS NULL ORDER BY id ASC LIMIT 100"
	check := func(when string, rows float64, atMost int) {
		t.Helper()
		p, ms := explain(t, conn, poll)
		t.Logf("%s: %.0f rows, %d buffers, %.1f ms: %s", when, p.Rows, p.buffers(), ms, p.nodes())
		if p.Rows != rows || p.nodes() != "Limit < Index Scan using crawl_outbox_undelivered" || p.buffers() > atMost {
			t.Errorf("%s: %.0f rows (want %.0f), %d buffers (at most %d): %s", when, p.Rows, rows, p.buffers(), atMost,
				p.nodes())
		}
	}
	pages := func(relation string) int {
		return one[int](t, conn, "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::int", relation)
	}
	check("full", 100, 20)
	for range 100 {
		run(t, conn,
			"UPDATE run_outbox SET published_at = NOW() WHERE id IN (SELECT id FROM run_outbox WHERE published_at IS NULL "+
				"ORDER BY id ASC LIMIT 1000)")
	}
	// The first poll walks over the dead entries and marks them; from then on only the index's
	// pages remain to be passed.
	check("drained, first poll", 0, pages("crawl_outbox")+pages("crawl_outbox_undelivered"))
	// (Not while any snapshot in the database is older, such as one of an autovacuum of the
	// catalog: hence some patience.)
	remaining := pages("crawl_outbox_undelivered") + 20
	for range 50 {
		if p, _ := explain(t, conn, poll); p.buffers() <= remaining {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	check("drained, next poll", 0, remaining)
	run(t, conn,
		"INSERT INTO crawl_outbox (crawl_id, event_type, payload) SELECT $1, 'PROCESSING', '{}' FROM "+
			"generate_series(1, 1000)", id)
	check("drained and one batch in", 100, remaining+20)
}
