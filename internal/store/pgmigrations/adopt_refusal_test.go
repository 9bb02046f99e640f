package pgmigrations_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// quickRefusals are the cases of TestAdoptRefuses in the tier "test": a column, a key, a row, and
// relations of other kinds.
var quickRefusals = []string{"a type", "no key", "rows and a check", "a view", "not ours"}

// What cannot be adopted is refused before anything changes, with a sentence that says what to do.
func TestAdoptRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ seed, change, want string }{
		"a type": {"ADR-004", "ALTER TABLE outbox_events ALTER COLUMN payload TYPE TEXT",
			"column payload of outbox_events is text, and must be jsonb"},
		"a column": {"ADR-004", "ALTER TABLE outbox_events DROP COLUMN source_bc",
			"has no column source_bc, which must not be NULL"},
		"NULLs": {"ADR-004", "ALTER TABLE outbox_events ALTER COLUMN event_topic DROP NOT NULL",
			"column event_topic of outbox_events may be NULL"},
		"no key": {"ADR-004", "ALTER TABLE outbox_events DROP CONSTRAINT outbox_events_pkey",
			"has no primary key (id)"},
		"rows and a check": {"ADR-004", "UPDATE outbox_events SET status = 'ODD' WHERE payload->>'n' = '1'",
			"1 rows of outbox_events break the constraint outbox_events_status_check"},
		"its own check": {"ADR-004", "ALTER TABLE outbox_events ADD CHECK (status IN ('NEW', 'SENT'))",
			"refuses what Outbox writes there"},
		"a narrow status": {"ADR-004", "ALTER TABLE outbox_events ALTER COLUMN status TYPE VARCHAR(4)",
			"cannot hold what Outbox writes there"},
		"a name": {"ADR-004", "CREATE TABLE outbox_events_undelivered ()",
			"the name outbox_events_undelivered, which an index of outbox_events needs, is taken"},
		"a view": {"ADR-004",
			"ALTER TABLE outbox_events RENAME TO other; CREATE VIEW outbox_events AS SELECT * FROM other",
			"outbox_events is not an ordinary table"},
		"not ours": {"ADR-004", "CREATE TABLE outbox_tokens (token text)",
			"a table outbox_tokens exists that is not Outbox's"},
		"two of a name": {"05-01",
			"DROP INDEX idx_apps_namespace; INSERT INTO apps (id, name, namespace) VALUES (gen_random_uuid(), 'x', 'SHOP')",
			"index apps_namespace_key makes (lower(namespace)) unique"},
		"apps with more": {"05-01",
			"ALTER TABLE apps ADD COLUMN plan TEXT NOT NULL DEFAULT 'x'; ALTER TABLE apps ALTER COLUMN plan DROP DEFAULT",
			"column plan of apps must not be NULL and has no default"},
		"letters with more": {"05-01", "ALTER TABLE job_dlq ALTER COLUMN user_id SET NOT NULL",
			"column user_id of job_dlq must not be NULL and has no default"},
		"jobs only": {"05-01", "ALTER TABLE job_dlq ADD CHECK (error_reason <> 'DeliveryFailed')",
			"refuses what Outbox writes there"},
		"orphans": {"FR-006 and FR-007",
			"ALTER TABLE crawl_outbox DROP CONSTRAINT crawl_outbox_crawl_id_fkey; UPDATE crawl_outbox SET crawl_id = " +
				"gen_random_uuid() WHERE id < 4",
			"3 rows of crawl_outbox break the constraint crawl_outbox_crawl_id_fkey"},
		"both names": {"FR-005", "CREATE TABLE crawl_outbox ()", "both tables run_outbox and crawl_outbox exist"},
		"no parent": {"FR-005", "ALTER TABLE run_outbox DROP CONSTRAINT run_outbox_run_id_fkey",
			"run_outbox.run_id has no foreign key"},
		"a view and rules": {"FR-005", "ALTER TABLE run_events ENABLE ROW LEVEL SECURITY",
			"run_events has row-level security"},
	} {
		t.Run(name, func(t *testing.T) {
			if !slices.Contains(quickRefusals, name) {
				tier.Full(t)
			}
			t.Parallel()
			url, conn := seeds()[c.seed].before(t, 20)
			run(t, conn, c.change)
			want := schemaOf(t, conn)
			err := pgmigrations.Up(t.Context(), url)
			if !errors.Is(err, pgmigrations.ErrRefused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Up: %v\nwant %s", err, c.want)
			}
			plan, err := pgmigrations.Plan(t.Context(), url)
			if err != nil || !strings.Contains(strings.Join(plan.Problems, "\n"), c.want) {
				t.Errorf("Plan: %v, %v", plan.Problems, err)
			}
			if got := schemaOf(t, conn); !reflect.DeepEqual(got, want) {
				t.Errorf("a refusal changed something:\n%s", strings.Join(got, "\n"))
			}
		})
	}
}

// An application may have a table of any name of ours. Whatever the name, up refuses before it
// changes anything and names the way out.
func TestNamesOfOthersHaveAWayOut(t *testing.T) {
	t.Parallel()
	_, made := database(t)
	tables := query[string](t, made, `SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
		AND relname !~ '^outbox_migrations_' ORDER BY 1`)
	if len(tables) < 20 {
		t.Fatalf("only %d tables", len(tables))
	}
	url := testenv.Database(t)
	conn := connect(t, url)
	for _, table := range tables {
		run(t, conn, "CREATE TABLE "+table+" (shop int)")
	}
	err := pgmigrations.Up(t.Context(), url, pgmigrations.Sets...)
	if !errors.Is(err, pgmigrations.ErrRefused) || !strings.Contains(err.Error(), "a schema of its own") {
		t.Fatalf("got error %v, want one that names a schema of its own", err)
	}
	for _, table := range tables {
		if !strings.Contains(err.Error(), " "+table+" ") {
			t.Errorf("the error does not name %s: %v", table, err)
		}
	}
}

// Who may not see or change all of a table is told whom to be.
func TestAdoptNeedsRights(t *testing.T) {
	t.Parallel()
	url, conn := seeds()["05-01"].before(t, 20)
	name := one[string](t, conn, "SELECT current_database()")
	run(t, conn, "CREATE ROLE app_"+name+" LOGIN; CREATE ROLE other_"+name+" LOGIN; GRANT CREATE ON DATABASE "+name+
		" TO app_"+name+", other_"+name)
	run(t, conn, "GRANT CREATE ON SCHEMA public TO app_"+name+", other_"+name)
	for _, table := range []string{"apps", "job_dlq", "event_outbox"} {
		run(t, conn, "ALTER TABLE "+table+" OWNER TO app_"+name)
	}
	as := func(role string) string {
		return strings.Replace(url, "postgres://postgres@", "postgres://"+role+"@", 1)
	}
	if err := pgmigrations.Up(t.Context(), as("other_"+name)); !errors.Is(err, pgmigrations.ErrRefused) ||
		!strings.Contains(err.Error(), "belongs to app_"+name) {
		t.Errorf("another role: %v", err)
	}
	run(t, conn, "ALTER TABLE job_dlq FORCE ROW LEVEL SECURITY")
	if err := pgmigrations.Up(t.Context(), as("app_"+name)); !errors.Is(err, pgmigrations.ErrRefused) ||
		!strings.Contains(err.Error(), "BYPASSRLS") {
		t.Errorf("an owner who sees no rows: %v", err)
	}
	run(t, conn, "ALTER TABLE job_dlq NO FORCE ROW LEVEL SECURITY")
	up(t, as("app_"+name))
	// Row-level security is as it was, and there is no policy more.
	const rules = "SELECT concat_ws(' ', relname, relrowsecurity, relforcerowsecurity, (SELECT count(*) FROM pg_policy " +
		"WHERE polrelid = c.oid)) FROM pg_class c WHERE relname IN ('job_dlq', 'event_outbox') ORDER BY 1"
	if got := query[string](t, conn, rules); !reflect.DeepEqual(got, []string{"event_outbox f f 0", "job_dlq t f 1"}) {
		t.Errorf("row-level security: %v", got)
	}
}

// A step that fails leaves a database that the application goes on with; up goes on from there, and
// down gives back.
func TestAdoptGoesOnAfterAFailure(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, c := range map[string]struct{ seed, table string }{
		"events": {"ADR-004", "outbox_events"}, "the log": {"FR-006 and FR-007", "crawl_events"},
		"renamed": {"FR-005", "run_outbox"},
	} {
		for _, undo := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", up again", true: ", down"}[undo], func(t *testing.T) {
				t.Parallel()
				s := seeds()[c.seed]
				url, conn := s.before(t, 500)
				want := schemaOf(t, conn)
				// A row that is locked: everything goes on until its table is to be changed.
				tx, err := connect(t, url).Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				run(t, tx, "SELECT 1 FROM "+c.table+" LIMIT 1 FOR UPDATE")
				cancel, result := waitingUp(t, url)
				for one[int](t, conn, waiting) > 0 {
					time.Sleep(time.Millisecond) // until it has given up once, and is to try again
				}
				cancel()
				if err := <-result; err == nil || !strings.Contains(err.Error(), "run `outbox migrate up` again") {
					t.Errorf("Up against a lock: %v", err)
				}
				if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					for _, statement := range s.write {
						if _, err := tx.Exec(t.Context(), statement, 501); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					t.Errorf("the application: %v", err)
				}
				if err := tx.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !undo {
					up(t, url)
					s.checkLog(t, conn)
				}
				for _, set := range []string{"crawl", "events", "core"} {
					if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, set); err != nil {
						t.Fatal(err)
					}
				}
				if got := schemaOf(t, conn); !reflect.DeepEqual(got, want) {
					t.Errorf("given back:\n%s\nwas:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				if n := one[int](t, conn, "SELECT count(*) FROM "+s.outbox); n != 501 {
					t.Errorf("%d rows", n)
				}
			})
		}
	}
}
