package sqliteoperate

import "testing"

// What concerns one endpoint is served by the primary key. What concerns them all reads the table once and sorts
// nothing. Plans are those of a file that nobody has analysed: SQLite's do not depend on the number of rows.
func TestEndpointPlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	const served = "SEARCH outbox_endpoints USING INDEX sqlite_autoindex_outbox_endpoints_1 (name=?)"
	for statement, want := range map[string]string{
		"endpoint_change":  served,
		"endpoint_disable": served,
		"endpoint_remove":  served,
		"endpoint_list":    "SCAN outbox_endpoints USING INDEX sqlite_autoindex_outbox_endpoints_1",
		"endpoint_version": "SCAN outbox_endpoints",
	} {
		sql, err := plain(statement)
		if err != nil {
			t.Fatal(err)
		}
		if plan := planOf(t, db, sql); plan != want {
			t.Errorf("%s: got %q, want %q", statement, plan, want)
		}
	}
}
