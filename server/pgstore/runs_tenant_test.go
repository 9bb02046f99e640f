package pgstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/storetest"
)

// The least privileges are enough for all of a gateway's and a worker's work, and row-level
// security stays behind the statements' own filter: without it, another tenant's rows are still not
// to be seen.
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
			if _, err := tx.Exec(t.Context(), speakFor, tenant); err != nil {
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

// Rows by plain SQL, in the words of the seeds, get the tenant of their run; those of before it,
// and where no run has one, are the default's.
func TestPlainSQLRowsGetTheirRunsTenant(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	for _, role := range []string{"postgres", "outbox_run_producer", "outbox_owner"} {
		p := as(t, pool, role)
		run := newRun(t, r).ID
		mine := pgtest.Query[uuid.UUID](t, p, "INSERT INTO crawl_runs (app_package) VALUES ('p') RETURNING id")
		for _, table := range []string{"crawl_events", "crawl_outbox"} {
			for id, want := range map[uuid.UUID]string{run: acme, mine: "default"} {
				exec(t, p, "INSERT INTO "+table+" (crawl_id, event_type, payload) VALUES ($1, 'A', '{}')", id)
				if got := pgtest.Query[string](t, pool, "SELECT tenant_id FROM "+table+" WHERE crawl_id = $1", id); got != want {
					t.Errorf("%s as %s: tenant %q, want %q", table, role, got, want)
				}
			}
		}
	}
}

// Every statement is explained on the real database, as the role that runs it.
func TestPlans(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	super := migrated(t)
	for _, fill := range []string{
		`INSERT INTO crawl_runs (tenant_id, app_package, crawler, idempotency_key, status, created_at)
		SELECT CASE WHEN i % 2 = 0 THEN 'acme' ELSE 'umbrella' END, 'p', CASE WHEN i % 4 < 2 THEN 'demo' ELSE 'external' END, 'k' || i,
		       CASE WHEN i % 50 = 0 THEN 'RUNNING' ELSE 'FAILED' END::crawl_status, now() - i * interval '1 second' FROM generate_series(1, 10000) i`,
		"UPDATE crawl_runs SET lease_owner = gen_random_uuid(), lease_expires_at = 'infinity' WHERE status = 'RUNNING'",
		`INSERT INTO crawl_events (crawl_id, event_type, payload) SELECT id, 'A', '{}' FROM (SELECT id FROM crawl_runs WHERE tenant_id = 'acme' AND status = 'RUNNING' LIMIT 20) r, generate_series(1, 2000)`,
		`INSERT INTO outbox_tokens SELECT translate(lpad(i::text, 12, 'a'), '0189', 'bcde'), '', 'shop', '{read}', sha256(i::text::bytea) FROM generate_series(1, 5000) i`,
		`INSERT INTO outbox_tickets (sha256, token_id, scopes, expires_at) SELECT sha256(id::bytea), id, '{read}', now() + interval '1 minute' FROM outbox_tokens`,
		"ANALYZE crawl_runs, crawl_events, outbox_tokens, outbox_tickets",
	} {
		exec(t, super, fill)
	}
	// Of the run that storetest makes the planner knows no events, and all indexes that begin with
	// its id are as good.
	long := pgtest.Query[uuid.UUID](t, super, "SELECT crawl_id FROM crawl_events LIMIT 1")
	explained := func(pool *pgxpool.Pool) storetest.Explained {
		return storetest.Explained{Database: newDatabase(pool), Explain: func(statement string, args []any) string {
			if !strings.Contains(statement, "FROM") && !strings.Contains(statement, "INSERT") &&
				!strings.Contains(statement, "UPDATE") {
				return ""
			}
			if strings.Contains(statement, "event_id = ANY") {
				args = slices.Clone(args)
				args[slices.IndexFunc(args, func(a any) bool { _, is := a.(uuid.UUID); return is })] = long
			}
			plan := ""
			if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), speakFor, acme); err != nil {
					return err
				}
				rows, err := tx.Query(t.Context(), "EXPLAIN (COSTS OFF) "+statement, args...)
				if err != nil {
					return err
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				plan = strings.Join(lines, "\n")
				return err
			}); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
			return plan
		}}
	}
	plans := storetest.Plans(t, explained(super), explained(as(t, super, "outbox_gateway")),
		explained(as(t, super, "outbox_worker")))
	const bySeq, pkey = "crawl_events_crawl_id_seq_key", "crawl_runs_pkey"
	for name, indexes := range map[string][]string{
		"run_get":              {pkey, bySeq},
		"run_create":           {"_pending", "crawl_runs_waiting"},
		"run_by_key":           {"crawl_runs_idempotency_key"},
		"run_list":             {"crawl_runs_tenant on", "ROW(created_at, id) <"},
		"run_list of a status": {"crawl_runs_cancelled on", "ROW(created_at, id) <"},
		"run_list of an app":   {"crawl_runs_app on", "ROW(created_at, id) <"},
		"run_list of both":     {"crawl_runs_app_cancelled on", "ROW(created_at, id) <"},
		"run_events":           {bySeq}, "run_last_seqs": {bySeq}, "run_lock": {pkey}, "run_last": {bySeq},
		"run_ended": {pkey, bySeq},
		"run_known": {"crawl_events_event_id_key"}, "run_append": {}, "run_send": {bySeq}, "run_change": {pkey},
		"run_change with progress": {pkey}, "run_claim": {"crawl_runs_waiting", "crawl_runs_held"},
		"run_renew": {pkey}, "run_held": {pkey}, "run_release": {pkey},
		"token_create": {}, "token_audit": {}, "token_revoke": {"outbox_tokens_pkey"}, "token_valid": {"outbox_tokens_pkey"},
		"token_valid_all": {"outbox_tokens_pkey"}, "token_ticket": {},
		"token_sweep":  {"outbox_tickets_expires_at", "outbox_tickets_pkey"},
		"token_redeem": {"outbox_tickets_pkey", "outbox_tokens_pkey"},
	} {
		plan, there := plans[name]
		if !there {
			t.Errorf("%s was not asked", name)
		}
		for _, index := range indexes {
			if !strings.Contains(plan, index) {
				t.Errorf("%s is not served by %s:\n%s", name, index, plan)
			}
		}
		if name == "run_claim" { // its tenants are sorted, and the runs are not: each would be locked
			_, plan, _ = strings.Cut(plan, "CTE next")
		}
		if strings.Contains(plan, "Seq Scan on") || strings.Contains(plan, "Sort") && name != "run_append" {
			t.Errorf("%s:\n%s", name, plan)
		}
	}
}

// speakFor names a tenant to row-level security.
const speakFor = "SELECT set_config('app.current_namespace', $1, true)"
