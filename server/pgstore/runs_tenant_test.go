package pgstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/server/crawl"
)

// The least privileges are enough for all of a gateway's and a worker's work, and row-level security stays behind the
// statements' own filter: without it, another tenant's rows are still not to be seen.
func TestRunsUnderRowLevelSecurity(t *testing.T) {
	t.Parallel()
	super := migrated(t)
	gateway, worker := as(t, super, "outbox_gateway"), as(t, super, "outbox_worker")
	r, err := OpenRuns(t.Context(), gateway)
	if err != nil {
		t.Fatal(err)
	}
	run := started(t, r)
	events := of("A", "B")
	changing(t, r, run.ID, crawl.Change{Events: events})
	changing(t, r, run.ID, crawl.Change{Events: append(of("C"), events...)})
	if got, err := r.ListEvents(t.Context(), acme, run.ID, 0, 10); err != nil || len(got) != 4 {
		t.Errorf("events: %v, error %v", got, err)
	}
	keyed := crawl.NewRun{AppPackage: "p", MaxSteps: 1, Crawler: "demo", IdempotencyKey: "k"}
	for want := range 2 {
		if _, created, err := r.CreateRun(t.Context(), acme, keyed, 0); err != nil || created != (want == 0) {
			t.Errorf("created %t, error %v", created, err)
		}
	}
	if runs, _, err := r.ListRuns(t.Context(), acme, crawl.RunFilter{}); err != nil || len(runs) != 2 {
		t.Errorf("list: %v, error %v", runs, err)
	}
	if seqs, err := r.LastSeqs(t.Context(), acme, []uuid.UUID{run.ID}); err != nil || seqs[run.ID] != 4 {
		t.Errorf("last numbers: %v, error %v", seqs, err)
	}
	changing(t, r, run.ID, crawl.Change{From: []crawl.Status{crawl.Running}, To: crawl.Completed,
		Events: of(crawl.RunCompleted)})

	w, err := OpenRuns(t.Context(), worker)
	if err != nil {
		t.Fatal(err)
	}
	c := claim(t, w, time.Minute)
	changing(t, w, c.Run.ID, crawl.Change{From: []crawl.Status{crawl.Running}, Events: of("A"), Hold: &c.Hold,
		Progress: crawl.Progress{Node: "n", State: json.RawMessage(`1`)}})
	if _, held, err := w.RenewRun(t.Context(), c.Run.ID, c.Hold, time.Minute); err != nil || !held {
		t.Errorf("renew: held %t, error %v", held, err)
	}
	if err := w.ReleaseRun(t.Context(), c.Run.ID, c.Hold); err != nil {
		t.Error(err)
	}

	// Now without the filter.
	asTenant := func(tenant string, do func(pgx.Tx) error) error {
		return pgx.BeginFunc(t.Context(), gateway, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), r.sql.tenant, tenant); err != nil {
				return err
			}
			return do(tx)
		})
	}
	for tenant, want := range map[string]string{acme: "2 7", "umbrella": "0 0", "": "0 0"} {
		var got string
		err := asTenant(tenant, func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(),
				"SELECT concat_ws(' ', (SELECT count(*) FROM crawl_runs), (SELECT count(*) FROM crawl_events))").Scan(&got)
		})
		if err != nil || got != want {
			t.Errorf("tenant %q sees %s, error %v, want %s", tenant, got, err, want)
		}
	}
	forged := map[string]string{ // as umbrella; acme's run is c.Run, which goes on
		"a run":    "INSERT INTO crawl_runs (tenant_id, app_package) VALUES ('acme', $1::text)",
		"an event": "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'A', '{}')",
		"the next event": "INSERT INTO crawl_events (crawl_id, event_type, payload, seq, tenant_id) VALUES ($1, 'A', " +
			"'{}', 3, 'umbrella')",
		"an event to send": "INSERT INTO crawl_outbox (crawl_id, event_type, payload, seq, tenant_id) VALUES ($1, 'A', " +
			"'{}', 3, 'umbrella')",
		"one by plain SQL": "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ($1, 'A', '{}')",
		"one of the tenant": "INSERT INTO crawl_outbox (crawl_id, event_type, payload, seq, tenant_id) VALUES ($1, 'A', " +
			"'{}', 3, 'acme')",
	}
	for what, sql := range forged {
		err := asTenant("umbrella", func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), sql, c.Run.ID)
			return err
		})
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "42501" {
			t.Errorf("another tenant writes %s: got %v, want 42501", what, err)
		}
	}
	if err := asTenant("umbrella", func(tx pgx.Tx) error {
		tag, err := tx.Exec(t.Context(), "UPDATE crawl_runs SET status = 'CANCELLED'")
		if err == nil && tag.RowsAffected() != 0 {
			err = fmt.Errorf("%d runs changed", tag.RowsAffected())
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// Rows by plain SQL, in the words of the seeds, get the tenant of their run; those of before it, and where no run has
// one, are the default's.
func TestPlainSQLRowsGetTheirRunsTenant(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	for _, role := range []string{"postgres", "outbox_run_producer", "outbox_owner"} {
		p := as(t, pool, role)
		run := newRun(t, r).ID
		mine := query[uuid.UUID](t, p, "INSERT INTO crawl_runs (app_package) VALUES ('p') RETURNING id")
		for _, table := range []string{"crawl_events", "crawl_outbox"} {
			for id, want := range map[uuid.UUID]string{run: acme, mine: "default"} {
				exec(t, p, "INSERT INTO "+table+" (crawl_id, event_type, payload) VALUES ($1, 'A', '{}')", id)
				if got := query[string](t, pool, "SELECT tenant_id FROM "+table+" WHERE crawl_id = $1", id); got != want {
					t.Errorf("%s as %s: tenant %q, want %q", table, role, got, want)
				}
			}
		}
	}
}

// Every statement is explained on the real database, as the role that runs it.
func TestRunPlans(t *testing.T) {
	t.Parallel()
	super := migrated(t)
	exec(t, super, `INSERT INTO crawl_runs (tenant_id, app_package, crawler, idempotency_key, status, created_at)
		SELECT CASE WHEN i % 2 = 0 THEN 'acme' ELSE 'umbrella' END, 'p', CASE WHEN i % 4 < 2 THEN 'demo' ELSE 'external' END, 'k' || i,
		       CASE WHEN i % 50 = 0 THEN 'RUNNING' ELSE 'FAILED' END::crawl_status, now() - i * interval '1 second' FROM generate_series(1, 10000) i`)
	exec(t, super,
		`INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT id, 'A', '{}' FROM (SELECT id FROM crawl_runs WHERE tenant_id = 'acme' LIMIT 20) r, generate_series(1, 2000)`)
	exec(t, super, "ANALYZE crawl_runs, crawl_events")
	run := query[uuid.UUID](t, super, "SELECT crawl_id FROM crawl_events LIMIT 1")
	const tenant = acme
	ids := query[[]uuid.UUID](t, super,
		"SELECT array_agg(event_id) FROM (SELECT event_id FROM crawl_events WHERE crawl_id = $1 LIMIT 5) e", run)
	runs := query[[]uuid.UUID](t, super, "SELECT array_agg(DISTINCT crawl_id) FROM crawl_events")
	types, payloads := []string{"A", "A", "A", "A", "A"}, []string{"1", "1", "1", "1", "1"}

	gateway, worker := as(t, super, "outbox_gateway"), as(t, super, "outbox_worker")
	r, err := OpenRuns(t.Context(), gateway)
	if err != nil {
		t.Fatal(err)
	}
	const bySeq, pkey = "crawl_events_crawl_id_seq_key", "crawl_runs_pkey"
	type statement struct {
		name, sql string
		indexes   []string
		args      []any
	}
	explained := func(pool *pgxpool.Pool, statements ...statement) {
		t.Helper()
		for _, s := range statements {
			var plan []string
			err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), r.sql.tenant, tenant); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), "EXPLAIN (COSTS OFF) "+s.sql, s.args...)
				if err != nil {
					return err
				}
				plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
				return err
			})
			if err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			text := strings.Join(plan, "\n")
			for _, index := range s.indexes {
				if !strings.Contains(text, index) {
					t.Errorf("%s is not served by %s:\n%s", s.name, index, text)
				}
			}
			if s.name == "run_claim" { // its tenants are sorted, and the runs are not: each would be locked
				_, text, _ = strings.Cut(text, "CTE next")
			}
			if strings.Contains(text, "Seq Scan on crawl_") || strings.Contains(text, "Sort") && s.name != "run_append" {
				t.Errorf("%s:\n%s", s.name, text)
			}
		}
	}
	explained(gateway,
		statement{"run_get", r.sql.get, []string{pkey, bySeq}, []any{tenant, run}},
		statement{"run_create", r.sql.create, []string{"_pending", "crawl_runs_waiting"},
			[]any{tenant, "p", nil, 1, "", "demo", "k", 1000}},
		statement{"run_by_key", r.sql.byKey, []string{"crawl_runs_idempotency_key"},
			[]any{tenant, "k8", "p", nil, 1, "", "demo"}},
		statement{"run_list", r.sql.list[filtered{}], []string{"crawl_runs_tenant on", "ROW(created_at, id) <"},
			[]any{tenant, "", "", time.Now(), run, 50, crawl.PageBytes}},
		statement{"run_list of a status", r.sql.list[filtered{Status: crawl.Cancelled}],
			[]string{"crawl_runs_cancelled on", "ROW(created_at, id) <"},
			[]any{tenant, "CANCELLED", "", time.Now(), run, 50, crawl.PageBytes}},
		statement{"run_list of an app", r.sql.list[filtered{App: true}],
			[]string{"crawl_runs_app on", "ROW(created_at, id) <"},
			[]any{tenant, "", "nosuch", time.Now(), run, 50, crawl.PageBytes}},
		statement{"run_list of both", r.sql.list[filtered{crawl.Cancelled, true}],
			[]string{"crawl_runs_app_cancelled on", "ROW(created_at, id) <"},
			[]any{tenant, "CANCELLED", "p", time.Now(), run, 50, crawl.PageBytes}},
		statement{"run_events", r.sql.events, []string{bySeq}, []any{tenant, run, int64(10), 500, crawl.PageBytes}},
		statement{"run_last_seqs", r.sql.lastSeqs, []string{bySeq}, []any{tenant, uuids(runs)}},
		statement{"run_lock", r.sql.lock, []string{pkey}, []any{tenant, run}},
		statement{"run_last", r.sql.last, []string{bySeq}, []any{tenant, run}},
		statement{"run_known", r.sql.known, []string{"crawl_events_event_id_key"}, []any{tenant, run, ids}},
		statement{"run_differ", r.sql.differ, []string{"crawl_events_event_id_key"},
			[]any{tenant, run, ids, types, payloads}},
		statement{"run_append", r.sql.append, nil, []any{run, ids, types, payloads}},
		statement{"run_change", r.sql.change, []string{pkey}, []any{tenant, run, "FAILED", "x"}},
	)
	owner := uuid.New()
	explained(worker,
		statement{"run_change with progress", r.sql.saveProgress, []string{pkey}, []any{tenant, run, "", "", "n", nil, 1}},
		statement{"run_claim", r.sql.claim, []string{"crawl_runs_waiting", "crawl_runs_held"},
			[]any{owner, []string{"demo"}, int64(1e6), tenant}},
		statement{"run_renew", r.sql.renew, []string{pkey}, []any{run, owner, int64(1), int64(1e6)}},
		statement{"run_held", r.sql.held, []string{pkey}, []any{run, owner, int64(1)}},
		statement{"run_release", r.sql.release, []string{pkey}, []any{run, owner, int64(1)}},
	)
}

// The pace that a replay may have: pages of 500 over one connection. Printed, not asserted.
func TestListEventsPace(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := newRun(t, r).ID
	exec(t, pool,
		`INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT $1, 'ACTION_EXECUTED', jsonb_build_object('n', i, 'text', repeat('x', 300)) FROM generate_series(1, 10000) i`, run)
	begun, n := time.Now(), 0
	for after := int64(0); ; {
		page, err := r.ListEvents(context.WithoutCancel(t.Context()), acme, run, after, 500)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		n, after = n+len(page), page[len(page)-1].Seq
	}
	t.Logf("%d events, %.0f/s", n, float64(n)/time.Since(begun).Seconds())
	if n != 10000 {
		t.Errorf("got %d events", n)
	}
}
