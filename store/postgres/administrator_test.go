package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// What an administrator sets for a database either does not reach a relay's sessions, or is named
// with what to do.
func TestSettingsOfAnAdministrator(t *testing.T) {
	t.Parallel()
	for setting, c := range map[string]struct{ says, passes string }{
		"standard_conforming_strings = off": {},
		"client_encoding = LATIN1":          {},
		"search_path = ''": {says: `it is in schema public, and the search_path of this session ("") does not ` +
			"lead there: run ALTER ROLE postgres SET search_path = public, or add search_path=public to the URL"},
		"search_path = 'none'":               {says: "it is in schema public"},
		"default_transaction_read_only = on": {says: "the database takes no writes", passes: "yes"},
	} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			url := newDatabase(t, "core")
			pool := newPool(t, url)
			name := one[string](t, pool, "SELECT quote_ident(current_database())")
			change := func(sql string) {
				_, err := pool.Exec(t.Context(), "ALTER DATABASE "+name+sql)
				ok(t, err)
			}
			change(" SET " + setting)
			db, err := postgres.Connect(t.Context(), url, postgres.Config{})
			ok(t, err)
			t.Cleanup(db.Close)
			_, err = db.OpenTable(t.Context(), outbox.OutboxEvents())
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Fatalf("%v, want %q", err, c.says)
			}
			if c.says == "" {
				return
			}
			var schema *outbox.SchemaError
			class, _ := outbox.Classify(err)
			if waits := !errors.As(err, &schema) && class != outbox.ClassPermanent; waits != (c.passes != "") {
				t.Errorf("a relay waits: %t, class %v: %v", c.passes != "", class, err)
			}
			change(" RESET " + strings.Fields(setting)[0])
			if c.passes != "" { // with the same pool: a relay opens its tables again until it can
				_, err = db.OpenTable(t.Context(), outbox.OutboxEvents())
				ok(t, err)
			}
		})
	}
}
