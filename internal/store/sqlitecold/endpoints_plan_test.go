package sqlitecold_test

import (
	"slices"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/endpoint"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/test/operatetest"
)

// What concerns one endpoint is served by the primary key. What concerns them all reads the table once and sorts
// nothing. Plans are those of a file that nobody has analysed: SQLite's do not depend on the number of rows.
func TestEndpointPlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	of, all := operatetest.Explained(sqlitecold.DB{File: db}, "EXPLAIN QUERY PLAN")
	e := operatetest.Opened(t, operate.On(of).Endpoints)
	by := endpoint.Change{Action: "x", Actor: "me"}
	const served = "SEARCH outbox_endpoints USING INDEX sqlite_autoindex_outbox_endpoints_1 (name=?)"
	for _, ask := range []func() (bool, error){
		func() (bool, error) { return e.Put(t.Context(), endpoint.Stored{Name: "one", Revision: 7}, by) },
		func() (bool, error) { return true, e.Disable(t.Context(), "one", 7, "gone") },
		func() (bool, error) { return e.Remove(t.Context(), "one", by) },
	} {
		if _, err := ask(); err != nil {
			t.Fatal(err)
		}
		if plan := all()[0]; plan != served {
			t.Errorf("got %q, want %q", plan, served)
		}
	}
	if _, _, err := e.Read(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	want := []string{"SCAN outbox_endpoints", "SCAN outbox_endpoints USING INDEX sqlite_autoindex_outbox_endpoints_1"}
	if plans := all(); !slices.Equal(plans, want) {
		t.Errorf("got %q, want %q", plans, want)
	}
}
