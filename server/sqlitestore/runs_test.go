package sqlitestore

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/storetest"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

const acme = "acme"

// runsFile returns a new file with the tables of runs.
func runsFile(t testing.TB) *sqlite.DB {
	t.Helper()
	db := reopened(t, filepath.Join(t.TempDir(), "outbox.db"))
	if err := migrations.Up(t.Context(), db.Writes(), "core", "crawl"); err != nil {
		t.Fatal(err)
	}
	return db
}

// reopened opens a file once more, as another process does.
func reopened(t testing.TB, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Create(t.Context(), path, 4)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func runsOf(t testing.TB, db *sqlite.DB) *Runs {
	t.Helper()
	r, err := OpenRuns(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// startedRun creates a run and starts it.
func startedRun(t testing.TB, r *Runs) uuid.UUID {
	t.Helper()
	run, _, err := r.CreateRun(t.Context(), acme, crawl.NewRun{AppPackage: "p", MaxSteps: 9, Crawler: "demo"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Change(t.Context(), acme, run.ID,
		crawl.Change{To: crawl.Running,
			Events: []crawl.NewEvent{{Type: crawl.RunStarted, Payload: []byte("{}")}}}); err != nil {
		t.Fatal(err)
	}
	return run.ID
}

func TestOpenRunsNamesTheMigration(t *testing.T) {
	t.Parallel()
	db := reopened(t, filepath.Join(t.TempDir(), "outbox.db"))
	var schema *outbox.SchemaError
	if _, err := OpenRuns(t.Context(), db); !errors.As(err, &schema) ||
		!strings.Contains(err.Error(), "outbox migrate up --set crawl") {
		t.Errorf("runs: got %v", err)
	}
	if _, err := OpenTokens(t.Context(), db); !errors.As(err, &schema) ||
		!strings.Contains(err.Error(), "outbox migrate up --set core") {
		t.Errorf("tokens: got %v", err)
	}
}

// What plain SQL cannot do to a log.
func TestTheFileKeepsTheLog(t *testing.T) {
	t.Parallel()
	db := runsFile(t)
	r := runsOf(t, db)
	open, over := startedRun(t, r), startedRun(t, r)
	if _, err := r.Change(t.Context(), acme, over,
		crawl.Change{To: crawl.Failed,
			Events: []crawl.NewEvent{{Type: crawl.RunFailed, Payload: []byte("{}")}}}); err != nil {
		t.Fatal(err)
	}
	const event = "INSERT INTO crawl_events (crawl_id, event_type, payload, seq) VALUES (?1, ?2, ?3, ?4)"
	for name, c := range map[string]struct {
		sql  string
		args []any
		want string
	}{
		"behind the terminal event": {event, []any{over, "A", "{}", nil}, "crawl_events_after_terminal"},
		"a gap":                     {event, []any{open, "A", "{}", 3}, "crawl_events_seq_gap"},
		"a number again":            {event, []any{open, "A", "{}", 1}, "crawl_events_seq_gap"},
		"of no run":                 {event, []any{uuid.New(), "A", "{}", nil}, "FOREIGN KEY"},
		"no JSON":                   {event, []any{open, "A", "{", nil}, "json_valid"},
		"a long type":               {event, []any{open, strings.Repeat("A", 51), "{}", nil}, "length(event_type)"},
		"no status":                 {"UPDATE crawl_runs SET status = 'DONE' WHERE id = ?1", []any{open}, "status IN"},
		"no id": {"INSERT INTO crawl_runs (id, app_package) VALUES (?1, 'p')",
			[]any{strings.ToUpper(uuid.NewString())}, "id GLOB"},
	} {
		if _, err := db.Writes().ExecContext(t.Context(), c.sql, c.args...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// pathOf returns the name of the file that db has open.
func pathOf(t testing.TB, db *sqlite.DB) (path string) {
	t.Helper()
	const query = "SELECT file FROM pragma_database_list WHERE name = 'main'"
	if err := db.Reads().QueryRowContext(t.Context(), query).Scan(&path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Several processes append to one run and claim runs of one file: each change is whole, numbers
// have no gap, a run is one claimer's.
func TestRunsOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	db := runsFile(t)
	first := runsOf(t, db)
	run := startedRun(t, first)
	for range 10 {
		startedRun(t, first)
	}
	var mu sync.Mutex
	var claimed []uuid.UUID
	var group sync.WaitGroup
	for range 3 {
		r := runsOf(t, reopened(t, pathOf(t, db)))
		group.Go(func() {
			for i := range 30 {
				events := []crawl.NewEvent{{Type: "A", Payload: []byte("1")}, {Type: "B", Payload: []byte("2")}}
				if c, err := r.Change(t.Context(), acme, run, crawl.Change{Events: events}); err != nil || c.Last != c.First+1 {
					t.Errorf("change %d: %+v, %v", i, c, err)
				}
			}
		})
		group.Go(func() {
			for {
				c, err := r.ClaimRun(t.Context(), uuid.New(), []string{"demo"}, time.Hour, nil)
				if errors.Is(err, crawl.ErrNoRun) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				claimed = append(claimed, c.Run.ID)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.SortFunc(claimed, func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) })
	if n := len(claimed); n != 11 || len(slices.Compact(claimed)) != 11 {
		t.Errorf("11 runs were claimed %d times", n)
	}
	var logged, sent, last int
	err := db.Reads().QueryRowContext(t.Context(),
		"SELECT count(*), (SELECT count(*) FROM crawl_outbox WHERE crawl_id = ?1), max(seq) FROM crawl_events WHERE "+
			"crawl_id = ?1", run).Scan(&logged, &sent, &last)
	if err != nil || logged != 181 || sent != 181 || last != 181 {
		t.Errorf("%d events, %d in the outbox, the last is %d, error %v: want 181", logged, sent, last, err)
	}
}

// Every statement is explained on a file with rows.
func TestPlans(t *testing.T) {
	t.Parallel()
	const (
		runKey, tokenKey, ticketKey = "crawl_runs USING INDEX sqlite_autoindex_crawl_runs_1 (id=?)",
			"outbox_tokens USING INDEX sqlite_autoindex_outbox_tokens_1 (id=?)",
			"outbox_tickets USING INDEX sqlite_autoindex_outbox_tickets_1 (sha256=?)"
		bySeq, lastSeq = "e USING INDEX sqlite_autoindex_crawl_events_1 (crawl_id=?",
			"e USING COVERING INDEX sqlite_autoindex_crawl_events_1 (crawl_id=?"
		place = "=? AND (created_at,id)<(?,?))"
	)
	wanted := map[string][]string{
		"run_get":              {runKey, lastSeq},
		"run_by_key":           {"crawl_runs USING INDEX crawl_runs_idempotency_key (tenant_id=? AND idempotency_key=?)"},
		"run_list":             {"crawl_runs USING INDEX crawl_runs_tenant (tenant_id" + place, lastSeq},
		"run_list of a status": {"crawl_runs USING INDEX crawl_runs_status (tenant_id=? AND status" + place},
		"run_list of an app":   {"crawl_runs USING INDEX crawl_runs_app (tenant_id=? AND app_package" + place},
		"run_list of both": {"crawl_runs USING INDEX crawl_runs_app_status (tenant_id=? AND app_package=? AND status" +
			place},
		"run_create": {"w USING COVERING INDEX crawl_runs_status (tenant_id=? AND status=?)",
			"w USING INDEX crawl_runs_waiting (tenant_id=?)"},
		"run_events":    {bySeq + " AND seq>?)"},
		"run_last_seqs": {"r USING COVERING INDEX crawl_runs_ids (id=? AND tenant_id=?)", lastSeq},
		"run_ended":     {"r USING INDEX crawl_runs_ids (id=? AND tenant_id=?)", lastSeq},
		"run_lock":      {runKey},
		"run_last":      {bySeq},
		"run_known":     {"e USING INDEX crawl_events_event_id_key (crawl_id=? AND event_id=?)"},
		"run_append":    {}, "run_send": {bySeq + " AND seq>?)"},
		"run_change": {runKey}, "run_change with progress": {runKey},
		"run_claim": {"r USING INDEX crawl_runs_waiting (tenant_id>?)", "r USING INDEX crawl_runs_waiting (tenant_id=?)",
			"r USING INDEX crawl_runs_held (tenant_id=?)", runKey},
		"run_waits": {"r USING INDEX crawl_runs_waiting", "r USING INDEX crawl_runs_held"},
		"run_cut":   {"r USING INDEX crawl_runs_held"},
		"run_renew": {runKey}, "run_held": {runKey}, "run_release": {runKey},
		"token_create": {}, "token_audit": {}, "token_ticket": {},
		"token_valid": {tokenKey}, "token_valid_all": {tokenKey}, "token_revoke": {tokenKey}, "token_redeem": {ticketKey},
		"token_sweep": {"outbox_tickets USING COVERING INDEX outbox_tickets_expires_at (expires_at<?)",
			"outbox_tickets USING INTEGER PRIMARY KEY (rowid=?)"},
	}
	for _, analyzed := range []bool{false, true} { // plans must be as good without statistics: nobody gathers them
		db := runsFile(t)
		for _, fill := range []string{
			`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
			 INSERT INTO crawl_runs (tenant_id, app_package, crawler, idempotency_key, status, lease_owner, lease_expires_at)
			 SELECT CASE WHEN i % 2 THEN 'acme' ELSE 'umbrella' END, 'p', CASE WHEN i % 4 < 2 THEN 'demo' ELSE 'external' END, i, CASE WHEN i % 50 THEN 'FAILED' ELSE 'RUNNING' END,
			        'somebody', '9' FROM n`,
			`INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT r.id, 'A', '{}' FROM (SELECT id FROM crawl_runs WHERE status IN ('PENDING', 'RUNNING') LIMIT 10) r, (SELECT 1 FROM crawl_runs LIMIT 200)`,
			`INSERT INTO outbox_tokens (id, tenant_id, scopes, sha256) SELECT 'aaaaaaaaaaa' || char(96 + value), 'shop', '["read"]', randomblob(32) FROM json_each('[1,2,3,4,5,6,7,8,9]')`,
			`INSERT INTO outbox_tickets (sha256, token_id, scopes, expires_at) SELECT randomblob(32), id, scopes, created_at FROM outbox_tokens, (SELECT 1 FROM crawl_runs LIMIT 200)`,
		} {
			exec(t, db, fill)
		}
		if analyzed {
			exec(t, db, "ANALYZE")
		}
		of := storetest.Explained{Database: newDatabase(db), Explain: func(statement string, args []any) (plan string) {
			return explained(t, db, statement, args)
		}}
		plans := storetest.Plans(t, of, of, of)
		now := time.Now()
		for _, name := range []string{"run_waits", "run_cut"} {
			statement, args, err := cold.Statement(newDatabase(db), name, waiting{nil, now, now, now})
			if err != nil {
				t.Fatal(err)
			}
			plans[name] = explained(t, db, statement, args)
		}
		for name, want := range wanted {
			plan, there := plans[name]
			if !there {
				t.Errorf("%s was not asked", name)
			}
			for _, w := range want {
				if !strings.Contains(plan, w) {
					t.Errorf("%s, statistics %t: want %s:\n%s", name, analyzed, w, plan)
				}
			}
			for line := range strings.Lines(plan) {
				// json_each is the list of what is asked for; run_claim goes from tenant to tenant,
				// sorts them, and run_create counts a few rows that are named so. What waits, and
				// what is held, is an index of its own. The tickets of a token are looked at if a
				// foreign key is violated.
				harmless := slices.ContainsFunc([]string{"VIRTUAL TABLE", "CONSTANT ROW", "crawl_runs_waiting", "crawl_runs_held"},
					func(text string) bool { return strings.Contains(line, text) })
				scan := strings.Contains(line, "SCAN") && !harmless &&
					(name != "run_claim" || !strings.Contains(line, "SCAN t")) && name != "run_create" && name != "token_create"
				if scan || strings.Contains(line, "TEMP B-TREE") && name != "run_claim" && name != "run_append" {
					t.Errorf("%s, statistics %t:\n%s", name, analyzed, plan)
				}
			}
		}
	}
}

// explained returns the query plan of a statement.
func explained(t *testing.T, db *sqlite.DB, statement string, args []any) (plan string) {
	t.Helper()
	rows, err := db.Reads().QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		plan += detail + "\n"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan
}

// The pace of one run's appends, each change on the disk before it returns.
func BenchmarkChange(b *testing.B) {
	for _, size := range []int{1, 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			r := runsOf(b, runsFile(b))
			run := startedRun(b, r)
			payload := json.RawMessage(`{"text":"` + strings.Repeat("x", 500) + `"}`)
			events := make([]crawl.NewEvent, size)
			for b.Loop() {
				for i := range events {
					events[i] = crawl.NewEvent{Type: crawl.Processing, Payload: payload}
				}
				if _, err := r.Change(b.Context(), acme, run,
					crawl.Change{From: []crawl.Status{crawl.Running}, Events: events}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*size)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// What every gateway asks several times a second for all runs that are watched.
func BenchmarkLastSeqs(b *testing.B) {
	db := runsFile(b)
	r := runsOf(b, db)
	var runs []uuid.UUID
	err := sqlitefile.InTx(b.Context(), db, func(tx *sql.Tx) error {
		for range 100 {
			id := uuid.New()
			runs = append(runs, id)
			if _, err := tx.ExecContext(context.WithoutCancel(b.Context()),
				"INSERT INTO crawl_runs (id, app_package, tenant_id) VALUES (?1, 'p', 'acme')", id); err != nil {
				return err
			}
			if _, err := tx.ExecContext(b.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
				INSERT INTO crawl_events (crawl_id, event_type, payload, seq, tenant_id) SELECT ?1, 'A', json_quote(printf('%.2000c', 'x')), i, 'acme' FROM n`, id); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if last, err := r.LastSeqs(b.Context(), acme, runs); err != nil || len(last) != 100 {
			b.Fatalf("%d, %v", len(last), err)
		}
	}
}
