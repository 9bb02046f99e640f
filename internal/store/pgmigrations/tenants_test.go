package pgmigrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// tenants adds two applications beside 'default' and returns their ids.
func tenants(t *testing.T, conn *pgx.Conn) (a, b string) {
	t.Helper()
	const insert = "INSERT INTO apps (name, namespace) VALUES ($1, $1) RETURNING id::text"
	return one[string](t, conn, insert, "a"), one[string](t, conn, insert, "b")
}

const (
	insertBusEvent = "INSERT INTO event_outbox (app_id, event_id, event_type, payload) VALUES ($1, gen_random_uuid(), " +
		"'order.placed', '{}')"
	insertDead = `INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, error_reason, attempts, error_history)
		VALUES ('event', gen_random_uuid(), $1, 'order.placed', '{}', 'DeliveryFailed', 3, '[]')`
)

// Seed 002, line 62: row-level security. Forced, so that it holds for the owner too, whom
// applications often connect as.
func TestRowLevelSecurityKeepsTenantsApart(t *testing.T) {
	t.Parallel()
	url, super := database(t)
	a, b := tenants(t, super)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	run(t, conn, "SET ROLE outbox_owner")

	for table, insert := range map[string]string{"event_outbox": insertBusEvent, "job_dlq": insertDead} {
		count := "SELECT count(*) FROM " + table
		asTenant := func(tenant string, do func(tx pgx.Tx)) {
			t.Helper()
			err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
				run(t, tx, "SELECT set_config('app.current_tenant', $1, true)", tenant) // SET LOCAL
				do(tx)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		asTenant(a, func(tx pgx.Tx) {
			run(t, tx, insert, a)
			refused(t, tx, "42501", insert, b) // forged: WITH CHECK
		})
		asTenant(b, func(tx pgx.Tx) {
			run(t, tx, insert, b)
			run(t, tx, insert, b)
			refused(t, tx, "42501", "UPDATE "+table+" SET app_id = $1", a)
			if n := one[int](t, tx, count); n != 2 {
				t.Errorf("%s: tenant b sees %d rows, want its 2", table, n)
			}
			if tag, err := tx.Exec(t.Context(), "DELETE FROM "+table+" WHERE app_id = $1", a); err != nil ||
				tag.RowsAffected() != 0 {
				t.Errorf("%s: tenant b deletes of a: %v, %v", table, tag, err)
			}
		})
		// The same connection after SET LOCAL, as a pool hands it on: the setting is now '' and not
		// NULL.
		if n := one[int](t, conn, count); n != 0 {
			t.Errorf("%s: without a tenant %d rows are seen", table, n)
		}
		refused(t, conn, "42501", insert, a)
		asTenant("", func(tx pgx.Tx) {
			if n := one[int](t, tx, count); n != 0 {
				t.Errorf("%s: with an empty tenant %d rows are seen", table, n)
			}
		})
		// And a connection on which nobody ever set it: NULL.
		fresh := connect(t, url)
		run(t, fresh, "SET ROLE outbox_owner")
		if n := one[int](t, fresh, count); n != 0 {
			t.Errorf("%s: on a fresh connection %d rows are seen", table, n)
		}
		refused(t, fresh, "42501", insert, a)
		if n := one[int](t, super, count); n != 3 {
			t.Errorf("%s: %d rows in all, want 3", table, n)
		}
	}
}

// Seed 002, line 62: the purge function. Whoever calls it, it must do the same: under FORCE a bare
// DELETE by the owner would delete nothing and say nothing.
func TestPurge(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url, super := database(t)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	plain := "plain_" + one[string](t, super, "SELECT current_database()") // roles belong to the server
	run(t, super, "CREATE ROLE "+plain)
	run(t, super, "GRANT SELECT, DELETE ON event_outbox, job_dlq TO "+plain+"; GRANT SELECT ON apps TO "+plain+
		"; GRANT EXECUTE ON FUNCTION purge_event_outbox(int), purge_job_dlq(int) TO "+plain)

	a, b := tenants(t, super)
	for _, role := range []string{"postgres", "outbox_owner", "outbox_relay", plain} {
		run(t, super, "TRUNCATE event_outbox, job_dlq")
		for _, app := range []string{a, b} {
			// Ages in days; the last of each is one that must never go, however old.
			for _, age := range []int{0, 6, 8, 29, 31} {
				run(t, super, `INSERT INTO event_outbox (app_id, event_id, event_type, payload, status, published_at)
					VALUES ($1, gen_random_uuid(), 't', '{}', 'published', now() - make_interval(days => $2))`, app, age)
				run(t, super, `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history, replayed_at)
					VALUES (gen_random_uuid(), $1, 't', '{}', 'Panic', 1, '[]', now() - make_interval(days => $2))`, app, age)
			}
			for _, status := range []string{"pending", "failed"} {
				run(t, super, `INSERT INTO event_outbox (app_id, event_id, event_type, payload, status, published_at)
					VALUES ($1, gen_random_uuid(), 't', '{}', $2, now() - interval '1 year')`, app, status)
			}
			run(t, super, `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history, discarded_at)
				VALUES (gen_random_uuid(), $1, 't', '{}', 'Panic', 1, '[]', now() - interval '1 year')`, app)
		}
		conn := connect(t, url)
		run(t, conn, "SET ROLE "+role)
		// The caller's own tenant is back afterwards, in its transaction and after it.
		tx, err := conn.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		run(t, tx, "SELECT set_config('app.current_tenant', $1, true)", a) // b is the last that purge visits
		for _, purge := range []struct {
			call string
			want int
		}{
			{"purge_event_outbox()", 6}, {"purge_event_outbox()", 0}, {"purge_event_outbox(5)", 2},
			{"purge_job_dlq()", 2}, {"purge_job_dlq(7)", 4},
		} {
			if got := one[int](t, tx, "SELECT "+purge.call); got != purge.want {
				t.Errorf("%s: %s deleted %d rows, want %d", role, purge.call, got, purge.want)
			}
		}
		for _, call := range []string{"purge_event_outbox(-1)", "purge_job_dlq(-1)", "purge_event_outbox(NULL)"} {
			if e := refusal(t, tx, "22023", "SELECT "+call); !strings.Contains(e.Message, "p_older_than_days") {
				t.Errorf("%s: %s: %v", role, call, e)
			}
		}
		if got := one[string](t, tx, "SELECT current_setting('app.current_tenant')"); got != a {
			t.Errorf("%s: the tenant is %q afterwards, want %q", role, got, a)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := one[string](t, super,
			`SELECT concat_ws(' ', (SELECT string_agg(status, ',' ORDER BY status) FROM event_outbox), (SELECT count(*) FROM job_dlq))`)
		if want := "failed,failed,pending,pending,published,published 6"; left != want {
			t.Errorf("%s: left are %s, want %s", role, left, want)
		}
	}

	// A role without the privilege is refused, not served with a silent 0.
	conn := connect(t, url)
	run(t, conn, "SET ROLE outbox_reader")
	for _, call := range []string{"purge_event_outbox()", "purge_job_dlq()"} {
		refused(t, conn, "42501", "SELECT "+call)
	}
}

func TestMigrationsThemselvesRunUnderForce(t *testing.T) {
	t.Parallel()
	url, super := database(t)
	if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	// A deployer who is no superuser takes a set down and up again.
	deployer := "deployer_" + one[string](t, super, "SELECT current_database()")
	run(t, super, fmt.Sprintf("CREATE ROLE %[1]s LOGIN IN ROLE outbox_owner; ALTER ROLE %[1]s SET role = outbox_owner",
		deployer))
	own := strings.Replace(url, "postgres://postgres@", "postgres://"+deployer+"@", 1)
	if err := pgmigrations.Down(t.Context(), own, pgmigrations.All, "events"); err != nil {
		t.Fatal(err)
	}
	up(t, own)
	if owner := one[string](t, super,
		"SELECT tableowner::text FROM pg_tables WHERE tablename = 'event_outbox'"); owner != "outbox_owner" {
		t.Errorf("event_outbox belongs to %s", owner)
	}
}
