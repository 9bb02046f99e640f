package pgoperate

import (
	"strings"
	"testing"
)

// With 10,000 endpoints, what concerns one of them is served by the primary key, in the sessions of operators and in
// those of relays. What concerns them all reads the table once.
func TestEndpointPlans(t *testing.T) {
	t.Parallel()
	pool := browsed(t)
	exec(t, pool, `INSERT INTO outbox_endpoints (name, tenant_id, url, secrets, revision)
		SELECT 'endpoint-' || i, 'tenant-' || i % 100, 'https://example.com/' || i, '[{"value": "env:SECRET"}]', i
		  FROM generate_series(1, 10000) i`)
	exec(t, pool, `ANALYZE outbox_endpoints`)
	stored := []any{"endpoint-77", "tenant-77", "https://example.com/", "[]", "{}", 0, 0, 0.0, false, "", 7, "[]", "[]"}
	const served = "Index Scan using outbox_endpoints_pkey on outbox_endpoints"
	for _, c := range []struct {
		statement string
		args      []any
		want      string
	}{
		{"endpoint_add", stored, "Conflict Arbiter Indexes: outbox_endpoints_pkey"},
		{"endpoint_change", append(stored, 77), served},
		{"endpoint_disable", []any{"endpoint-77", 77, "gone", 7}, served},
		{"endpoint_remove", []any{"endpoint-77"}, served},
		{"endpoint_list", nil, " on outbox_endpoints"},
		{"endpoint_version", nil, " on outbox_endpoints"},
	} {
		sql, err := plain(c.statement)
		if err != nil {
			t.Fatal(err)
		}
		for session, plan := range map[string]string{
			"an operator's": explainPlainly(t, pool, sql, c.args...), "a relay's": explain(t, pool, sql, c.args...),
		} {
			if !strings.Contains(plan, c.want) || c.args != nil && strings.Contains(plan, "Seq Scan") ||
				strings.Count(plan, "Scan") > 1 {
				t.Errorf("%s in %s session, want %q:\n%s", c.statement, session, c.want, plan)
			}
		}
	}
}
