package pgmigrations_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A purge function that is there before is kept, whatever its parameters, by up, roles and down,
// with its table or without; and each is in the plan.
func TestAdoptKeepsFunctions(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const body = " RETURNS INT LANGUAGE sql AS 'SELECT 1'"
	for name, c := range map[string]struct {
		seed, change string
		planned      []string
		made         string // the function of the other table, which Outbox makes
	}{
		"as planned": {"05-01", "", []string{"leave function purge_event_outbox(integer) as it is",
			"leave function purge_job_dlq(bigint,integer) as it is"}, ""},
		"one of two": {"05-01", "DROP FUNCTION purge_event_outbox",
			[]string{"leave function purge_job_dlq(bigint,integer) as it is"}, "purge_event_outbox(integer)"},
		"without the table": {"ADR-004", "CREATE FUNCTION purge_job_dlq(days INT DEFAULT 3)" + body,
			[]string{"function purge_job_dlq(integer) exists, and stays"}, "purge_event_outbox(integer)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, conn := seeds()[c.seed].before(t, 20)
			run(t, conn, c.change)
			want := schemaOf(t, conn)
			plan, err := pgmigrations.Plan(t.Context(), url)
			if err != nil {
				t.Fatal(err)
			}
			said := strings.Join(plan.Notes, "\n")
			for _, table := range plan.Tables {
				said += "\n" + strings.Join(table.Steps, "\n")
			}
			for _, sentence := range c.planned {
				if !strings.Contains(said, sentence) {
					t.Errorf("the plan does not say %q:\n%s", sentence, said)
				}
			}
			kept := query[string](t, conn, functions)
			up(t, url)
			if err := pgmigrations.ApplyRoles(t.Context(), url); err != nil {
				t.Fatal(err)
			}
			now := strings.Join(query[string](t, conn, functions), "\n")
			for _, function := range kept {
				if !strings.Contains(now, function) {
					t.Errorf("%s is not as it was:\n%s", function, now)
				}
			}
			if c.made != "" && !strings.Contains(now, "function "+c.made+" outbox_owner") {
				t.Errorf("no %s of outbox_owner:\n%s", c.made, now)
			}
			takeBack(t, conn)
			for _, set := range []string{"crawl", "events", "core"} {
				if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, set); err != nil {
					t.Fatal(err)
				}
			}
			if got := schemaOf(t, conn); !reflect.DeepEqual(got, want) {
				t.Errorf("given back:\n%s\nwas:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}
