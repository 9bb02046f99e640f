package pgmigrations_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Rows of an adopted table that a relay has moved into outbox_archive are the application's. The
// plan says that it will; down refuses to drop them, says how to put them back, and then the table
// has all its rows.
func TestDownKeepsArchivedRows(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, archive := range map[string]struct{ table, delivered, places string }{
		"ADR-004":           {"outbox_events", "status = 'SENT'", "id, position"},
		"FR-006 and FR-007": {"crawl_outbox", "published_at IS NOT NULL", "event_id, id"},
		"FR-005":            {"crawl_outbox", "published_at IS NOT NULL", "event_id, id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := seeds()[name]
			url, conn := s.before(t, 50)
			run(t, conn, "CREATE TABLE kept AS SELECT id FROM "+s.outbox)
			want, kept := schemaOf(t, conn), query[string](t, conn, s.keep)
			plan, err := pgmigrations.Plan(t.Context(), url)
			said := "a relay moves rows of " + archive.table + " that were delivered more than 168h ago into outbox_archive"
			if err != nil || !strings.Contains(strings.Join(plan.Notes, "\n"), said) {
				t.Errorf("the plan does not say %q: %q, %v", said, plan.Notes, err)
			}
			up(t, url)
			run(t, conn, "WITH gone AS (DELETE FROM "+archive.table+" WHERE "+archive.delivered+` RETURNING *)
				INSERT INTO outbox_archive (table_name, id, position, row) SELECT '`+archive.table+"', "+archive.places+", to_jsonb(gone) FROM gone")

			for _, set := range []string{"crawl", "events"} {
				if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, set); err != nil {
					t.Fatal(err)
				}
			}
			before := versions(t, url)
			err = pgmigrations.Down(t.Context(), url, pgmigrations.All, "core")
			if err == nil || versions(t, url) != before {
				t.Fatalf("down: %v, and now %s", err, versions(t, url))
			}
			_, back, found := strings.Cut(err.Error(), "\n  10 rows of "+archive.table+": ")
			if !found {
				t.Fatalf("down: %v", err)
			}
			run(t, conn, strings.TrimSuffix(back, " (SQLSTATE 55006)"))
			if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, "core"); err != nil {
				t.Fatal(err)
			}
			if got := query[string](t, conn, s.keep); !reflect.DeepEqual(got, kept) {
				t.Errorf("%d rows are not as the %d were:\n%s", len(got), len(kept), strings.Join(got, "\n"))
			}
			if got := schemaOf(t, conn); !reflect.DeepEqual(got, want) {
				t.Errorf("given back:\n%s\nwas:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

// The archive goes with Outbox's own tables, but not with rows of a mapped one.
func TestDownTakesTheArchiveOfItsOwnTables(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	run(t, conn, `INSERT INTO outbox_archive (table_name, id, position, row)
		SELECT unnest(ARRAY['outbox_events', 'crawl_outbox', 'event_outbox', 'Shop.outbox']), gen_random_uuid(), 1, '{}'`)
	for _, set := range []string{"crawl", "events"} {
		if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, set); err != nil {
			t.Fatal(err)
		}
	}
	err := pgmigrations.Down(t.Context(), url, pgmigrations.All, "core")
	if err == nil || strings.Count(err.Error(), " rows of ") != 2 ||
		!strings.Contains(err.Error(), `1 rows of Shop.outbox: WITH a AS (DELETE FROM outbox_archive WHERE table_name = 'Shop.outbox'`+
			` RETURNING *) INSERT INTO "Shop".outbox SELECT`) {
		t.Errorf("down: %v", err)
	}
	run(t, conn, "DELETE FROM outbox_archive WHERE table_name = 'Shop.outbox'")
	if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, "core"); err != nil {
		t.Error(err)
	}
}
