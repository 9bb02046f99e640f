package operatetest

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/outboxrelay/outbox/internal/store/cold"
)

// Explained is db, and the plans of the statements that it is asked to run, in their order. explain
// is what the database calls it: EXPLAIN, or EXPLAIN QUERY PLAN, whose fourth column is the text.
func Explained(db cold.Database, explain string) (cold.Database, func() []string) {
	e := &explained{Database: db, explain: explain}
	return e, func() []string {
		e.mu.Lock()
		defer e.mu.Unlock()
		plans := slices.Clone(e.plans)
		e.plans = nil
		return plans
	}
}

type explained struct {
	cold.Database
	explain string
	mu      sync.Mutex
	plans   []string
}

func (e *explained) Begin(ctx context.Context, writes bool) (cold.Transaction, error) {
	tx, err := e.Database.Begin(ctx, writes)
	if err != nil {
		return nil, err
	}
	return explaining{tx, e}, nil
}

type explaining struct {
	cold.Transaction
	of *explained
}

func (t explaining) Query(ctx context.Context, statement string, args ...any) (cold.Rows, error) {
	if err := t.plan(ctx, statement, args); err != nil {
		return nil, err
	}
	return t.Transaction.Query(ctx, statement, args...)
}

func (t explaining) Exec(ctx context.Context, statement string, args ...any) (int, error) {
	if err := t.plan(ctx, statement, args); err != nil {
		return 0, err
	}
	return t.Transaction.Exec(ctx, statement, args...)
}

func (t explaining) plan(ctx context.Context, statement string, args []any) error {
	if strings.Contains(statement, "SAVEPOINT") {
		return nil // it has no plan
	}
	rows, err := t.Transaction.Query(ctx, t.of.explain+" "+statement, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var line string
		dst := []any{&line}
		if strings.HasSuffix(t.of.explain, "PLAN") {
			var number [3]int
			dst = []any{&number[0], &number[1], &number[2], &line}
		}
		if err := rows.Scan(dst...); err != nil {
			return err
		}
		lines = append(lines, line)
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	t.of.plans = append(t.of.plans, strings.Join(lines, "\n"))
	return rows.Err()
}
