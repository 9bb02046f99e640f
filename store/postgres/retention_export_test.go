package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/retention"
)

// RetentionPlans are the plans of a table's statements.
type RetentionPlans struct{ Walk, Sweep, Remove string }

// ExplainRetention asks the server how it runs the statements.
func ExplainRetention(t testing.TB, pool *pgxpool.Pool, table *retention.Table) (p RetentionPlans) {
	t.Helper()
	db, err := newAging(pool)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		dst  *string
		name string
	}{{&p.Walk, "retention_walk"}, {&p.Sweep, "retention_sweep"}, {&p.Remove, "retention_remove"}} {
		q := table.Query(retention.Search{OlderThan: 168 * time.Hour, Limit: 1000})
		q.From, q.To, q.Archive, q.Owner, q.IDs = "(0,0)", "(256,0)", true, uuid.New(), []uuid.UUID{uuid.New()}
		q.Places, q.Parts = []string{"(0,1)"}, []uint32{1}
		sql, args, err := cold.Statement(db, s.name, q)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := db.sessions.Query(t.Context(), "EXPLAIN "+sql, args...)
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
