package pgcold_test

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/endpoint"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/test/operatetest"
)

// With 10,000 endpoints, what concerns one of them is served by the primary key. What concerns them all reads the table
// once.
func TestEndpointPlans(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `INSERT INTO outbox_endpoints (name, tenant_id, url, secrets, revision)
		SELECT 'endpoint-' || i, 'tenant-' || i % 100, 'https://example.com/' || i, '[{"value": "env:SECRET"}]', i
		  FROM generate_series(1, 10000) i`)
	exec(t, pool, `ANALYZE outbox_endpoints`)
	db, all := operatetest.Explained(pgcold.DB{Pool: pool}, "EXPLAIN")
	e := operatetest.Opened(t, operate.On(db).Endpoints)
	ctx := t.Context()
	by := endpoint.Change{Action: "x", Actor: "me"}
	stored := endpoint.Stored{Name: "endpoint-77", URL: "https://example.com/"}
	old := stored
	old.Revision = 77
	const served = "Index Scan using outbox_endpoints_pkey on outbox_endpoints"
	for _, c := range []struct {
		ask  func() (bool, error)
		want string
	}{
		{func() (bool, error) { return e.Put(ctx, stored, by) }, "Conflict Arbiter Indexes: outbox_endpoints_pkey"},
		{func() (bool, error) { return e.Put(ctx, old, by) }, served},
		{func() (bool, error) { return true, e.Disable(ctx, "endpoint-78", 78, "gone") }, served},
		{func() (bool, error) { return e.Remove(ctx, "endpoint-77", by) }, served},
	} {
		if _, err := c.ask(); err != nil {
			t.Fatal(err)
		}
		plan := all()[0]
		if !strings.Contains(plan, c.want) || strings.Contains(plan, "Seq Scan") || strings.Count(plan, "Scan") > 1 {
			t.Errorf("want %q:\n%s", c.want, plan)
		}
	}
	if _, _, err := e.Read(ctx, ""); err != nil {
		t.Fatal(err)
	}
	for _, plan := range all() {
		if !strings.Contains(plan, " on outbox_endpoints") || strings.Count(plan, "Scan") > 1 {
			t.Errorf("it reads the table more than once:\n%s", plan)
		}
	}
}
