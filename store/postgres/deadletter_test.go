package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/letters"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

var operator = deadletter.Operator{Actor: "test@here", Reason: "because"}

// browsed returns a pool with ordinary sessions, as people use, on a migrated database.
func browsed(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), migratedURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// openLetters opens the dead letters of a database as the command does.
func openLetters(t *testing.T, pool *pgxpool.Pool, layouts ...outbox.Layout) deadletter.Store {
	t.Helper()
	if layouts == nil {
		layouts = []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox()}
	}
	d, err := OpenDeadLetters(t.Context(), pool, DeadLettersConfig{Layouts: layouts})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// burying takes all lanes of a table, to let its events die or arrive.
func burying(t *testing.T, pool *pgxpool.Pool, layout outbox.Layout) tabletest.Undertaker {
	t.Helper()
	return tabletest.Database{Open: func(t *testing.T, layout outbox.Layout) outbox.Store {
		t.Helper()
		s, err := openTable(t.Context(), pool, layout)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}}.Bury(t, layout)
}

// Row-level security is forced on job_dlq: without a policy a role would see none, which must not
// read as "there are none".
func TestDeadLettersUnderRowLevelSecurity(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `INSERT INTO apps (name, namespace) VALUES ('Acme', 'acme'), ('Umbrella', 'umbrella')`)
	exec(t, pool, `INSERT INTO event_outbox (app_id, event_id, event_type, payload, status, generation)
		SELECT id, outbox_uuidv7(), namespace || '.happened', '{}', 'failed', 0 FROM apps WHERE namespace <> 'default'`)
	exec(t, pool, `INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, error_reason, attempts, error_history, outbox_table, position)
		SELECT 'event', event_id, app_id, event_type, payload, 'DeliveryFailed', 1, '[]', 'event_outbox', position FROM event_outbox`)
	role := "dlq_tenant_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	exec(t, pool,
		fmt.Sprintf(`CREATE ROLE %[1]s LOGIN; GRANT SELECT, UPDATE ON job_dlq, event_outbox TO %[1]s; GRANT SELECT ON apps TO %[1]s; GRANT SELECT, INSERT ON outbox_audit TO %[1]s`, role))
	t.Cleanup(func() { // before the database goes, which the role's grants are part of
		if _, err := pool.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, role)); err != nil {
			t.Error(err)
		}
	})
	cfg := pool.Config()
	cfg.ConnConfig.User = role
	own, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()

	d := openLetters(t, own)
	if _, _, err := d.List(t.Context(), deadletter.Filter{}); !errors.Is(err, outbox.ErrRowsHidden) {
		t.Errorf("list without a tenant: got %v, want outbox.ErrRowsHidden", err)
	}
	if _, err := deadletter.Replay(t.Context(), d,
		deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}, Operator: operator}); !errors.Is(err,
		outbox.ErrRowsHidden) {
		t.Errorf("replay without a tenant: got %v, want outbox.ErrRowsHidden", err)
	}
	acme := deadletter.Filter{Tenant: "acme"}
	if found, _, err := d.List(t.Context(), acme); err != nil || len(found) != 1 || found[0].Type != "acme.happened" {
		t.Fatalf("tenant acme: got %+v, error %v", found, err)
	}
	sum, err := deadletter.Replay(t.Context(), d,
		deadletter.ReplayOptions{Selection: deadletter.Selection{Filter: acme}, Operator: operator})
	if err != nil || sum.Letters != 1 || sum.Skipped != 0 {
		t.Errorf("replay for a tenant: %+v, error %v", sum, err)
	}
	if got := query[string](t, pool,
		`SELECT string_agg(event_type || ' ' || status, ', ' ORDER BY event_type) FROM event_outbox`); got != "acme.happened pending, umbrella.happened failed" {
		t.Errorf("got %s", got)
	}
}

// Plans are those of a session that has no statistics worth the name, as right after an outage:
// what an index serves must be served by it.
func TestDeadLetterPlans(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload, status)
		SELECT 't' || i % 5, now(), 'Order', i % 100, 's', '{}', CASE WHEN i % 4 = 0 THEN 'DEAD' ELSE 'SENT' END FROM generate_series(1, 20000) i`)
	exec(t, pool, `INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, error_reason, attempts, error_history, outbox_table, event_key, position, replayed_at, discarded_at)
		SELECT 'event', e.id, a.id, e.event_topic, '{}', 'DeliveryFailed', 5, '[{"error": "no"}]', 'outbox_events', e.aggregate_id, e.position,
		       CASE WHEN position % 8 = 0 THEN now() - position * interval '1 hour' END, CASE WHEN position % 80 = 4 THEN now() - position * interval '1 hour' END
		  FROM outbox_events e, apps a WHERE e.status = 'DEAD'`)
	exec(t, pool, `INSERT INTO event_outbox (app_id, event_id, event_type, payload, status)
		SELECT id, gen_random_uuid(), 't', '{}', 'failed' FROM apps, generate_series(1, 5000)`)
	exec(t, pool, `ANALYZE outbox_events, event_outbox, job_dlq`)
	d := openLetters(t, pool)
	id := query[uuid.UUID](t, pool, `SELECT id FROM job_dlq LIMIT 1`)
	pending := letters.Query{State: "pending", Limit: 100, IDs: nil, Reason: "r", Age: 1}
	with := func(change func(*letters.Query)) letters.Query {
		q := pending
		change(&q)
		return q
	}
	named := with(func(q *letters.Query) { q.IDs = []uuid.UUID{id} })
	for _, c := range []struct {
		name  string
		q     letters.Query
		index string
	}{
		{"dlq_list", pending, "job_dlq_pkey"},
		{"dlq_list", with(func(q *letters.Query) { q.F.After = id.String() }), "job_dlq_pkey"},
		{"dlq_list", with(func(q *letters.Query) { q.F.Type = "none" }), "idx_job_dlq_pending_type"},
		{"dlq_show", named, "idx_job_dlq_original_job_id"},
		{"dlq_lock", pending, "job_dlq_replay"},
		{"dlq_lock",
			with(func(q *letters.Query) {
				q.After = &replayplace.Place{Table: "outbox_events", Position: 10000, Event: id}
			}),
			"job_dlq_replay"},
		{"dlq_lock", named, "job_dlq_pkey"},
		{"dlq_discard", pending, "job_dlq_replay"},
		{"dlq_purge", with(func(q *letters.Query) { q.State, q.Since, q.Age = "replayed", "replayed_at", 9000*3600e6 }),
			"job_dlq_replayed"},
		{"dlq_purge", with(func(q *letters.Query) { q.State, q.Since, q.Age = "discarded", "discarded_at", 9000*3600e6 }),
			"job_dlq_discarded"},
		{"dlq_purgeable", with(func(q *letters.Query) { q.State, q.Since, q.Age = "replayed", "replayed_at", 19000*3600e6 }),
			"job_dlq_replayed"},
		{"dlq_revive", *d.(*letters.Store).Of("outbox_events", named), "outbox_events_pkey"},
		{"dlq_why", *d.(*letters.Store).Of("outbox_events", named), "outbox_events_pkey"},
		{"dlq_revive", *d.(*letters.Store).Of("event_outbox", named), "event_outbox_event_id_key"},
		{"dlq_insert", *d.(*letters.Store).Of("crawl_outbox", named), "crawl_outbox_pkey"},
		{"dlq_why", *d.(*letters.Store).Of("crawl_outbox", named), "crawl_outbox_pkey"},
		{"dlq_actions", pending, "outbox_audit_pkey"},
	} {
		sql, args, err := cold.Statement(pgcold.DB{}, c.name, &c.q)
		if err != nil {
			t.Fatal(err)
		}
		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			// The tables that are empty here are small; on a small one a scan is cheaper and right.
			if _, err := tx.Exec(t.Context(), "SET LOCAL enable_seqscan = off"); err != nil {
				return err
			}
			rows, err := tx.Query(t.Context(), "EXPLAIN "+sql, args...)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if plan := strings.Join(lines, "\n"); !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan on") {
				t.Errorf("%s is not served by %s:\n%s", c.name, c.index, plan)
			}
			return err
		})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
	}
	// The one that reads all of an outbox table must do it once, not once a key.
	sql, args, err := cold.Statement(pgcold.DB{}, "dlq_order", d.(*letters.Store).Of("outbox_events", pending))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), "EXPLAIN ANALYZE "+sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "Hash Join") }) {
		t.Errorf("a dry run over 20,000 rows, error %v:\n%s", err, strings.Join(lines, "\n"))
	}
}
