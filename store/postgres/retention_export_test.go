package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/retention"
)

// RetentionPlans are the plans of a table's statements.
type RetentionPlans struct{ Walk, Sweep, Remove string }

// ExplainRetention asks the server how it runs the statements.
func ExplainRetention(t testing.TB, table retention.Table) (p RetentionPlans) {
	t.Helper()
	r := table.(*retain)
	week := (168 * time.Hour).Microseconds()
	for _, s := range []struct {
		dst  *string
		sql  string
		args []any
	}{
		{&p.Walk, r.sql.walk, []any{week, nil, 1000, false}},
		{&p.Sweep, r.sql.sweep, []any{week, "(0,0)", uint32(0), "(256,0)", 1000, false}},
		{&p.Remove, r.sql.remove, []any{week, r.layout.Table, uuid.New(), []string{"(0,1)"}, []uint32{1},
			[]uuid.UUID{uuid.New()}, true}},
	} {
		rows, err := r.pool.Query(t.Context(), "EXPLAIN "+s.sql, s.args...)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		*s.dst = strings.Join(lines, "\n")
	}
	return p
}
