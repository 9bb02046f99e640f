package postgres

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// The tables' owner, who is no superuser and may not create roles, migrates and serves. The errors
// of the relay contain the statements that it needs, and the error about the roles the page.
func TestOwnerWithoutCreateroleServesItsTables(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	super := connected(t, url)
	name := query[string](t, super, "SELECT current_database()")
	login := "owner_" + name
	exec(t, super, "CREATE ROLE "+login+" LOGIN; ALTER DATABASE "+name+" OWNER TO "+login+"; "+
		"ALTER SCHEMA public OWNER TO "+login)
	own := strings.Replace(url, "postgres://postgres@", "postgres://"+login+"@", 1)
	if err := migrations.Up(t.Context(), own, "core", "events"); err != nil {
		t.Fatal(err)
	}
	pool := connected(t, own)
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox()} {
		_, err := openTable(t.Context(), pool, layout)
		if !errors.Is(err, outbox.ErrRowsHidden) {
			t.Fatalf("%s: got error %v, want ErrRowsHidden", layout.Table, err)
		}
		statements := regexp.MustCompile(`CREATE POLICY [^;]*`).FindAllString(err.Error(), -1)
		if len(statements) == 0 {
			t.Fatalf("%v: want an error with the statements to run", err)
		}
		for _, statement := range statements {
			if layout.Table == "outbox_events" || !strings.Contains(statement, "job_dlq") { // that was the first remedy
				exec(t, pool, statement)
			}
		}
	}
	exec(t, pool, "INSERT INTO event_outbox (app_id, event_id, event_type, payload) "+
		"SELECT id, gen_random_uuid(), 't', '{}' FROM apps")
	writeOrders(t, pool, 1, "a")
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox()} {
		s, owner, lanes := serving(t, pool, layout)
		outcomes := delivered(t, s, lanes)
		for i := range outcomes {
			outcomes[i].State, outcomes[i].Attempts = outbox.Dead, 1
			outcomes[i].Failures = []outbox.Failure{{Error: "boom", Reason: outbox.ReasonDeliveryFailed}}
		}
		if settled, err := s.Settle(t.Context(), owner, lanes, outcomes); err != nil || settled.Dead != 1 {
			t.Errorf("%s: settled %+v, error %v, want one dead letter", layout.Table, settled, err)
		}
	}
	if n := query[int](t, super, "SELECT count(*) FROM job_dlq"); n != 2 {
		t.Errorf("%d dead letters, want 2", n)
	}
	if err := pgmigrations.ApplyRoles(t.Context(), own); err == nil ||
		!strings.Contains(err.Error(), "without-createrole") {
		t.Errorf("migrate roles: got error %v, want one that names the way without these roles", err)
	}
}
