package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// checkTypes finds columns of a mapped table that cannot play their part. Otherwise it would turn out after the first
// publish. A settle that compares a text with a uuid fails for ever, and a row without a position is never delivered
// and nobody is told.
func (s *store) checkTypes(ctx context.Context) error {
	sql, err := plain("check_nullable")
	if err != nil {
		return err
	}
	rows, err := s.pool.Query(ctx, sql, pgtable.QuoteTable(s.layout.Table), []string{s.layout.ID, s.layout.Position})
	if err != nil {
		return fmt.Errorf("check columns of %s: %w", s.layout.Table, err)
	}
	nullable, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("check columns of %s: %w", s.layout.Table, err)
	}
	if len(nullable) > 0 {
		return &outbox.SchemaError{Table: s.layout.Table, Missing: []string{"NOT NULL on " + strings.Join(nullable, " and ")},
			Remedy: "a row without it could not be delivered: ALTER TABLE … ALTER COLUMN … SET NOT NULL"}
	}
	if s.layout.IsLog() { // made by its migration set only
		return nil
	}
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("check statements for %s: %w", s.layout.Table, err)
	}
	defer conn.Release()
	statements := []string{s.sql.claim, s.sql.settle.delivered, s.sql.settlePlaced.delivered, s.sql.settle.retry,
		s.sql.settle.dead, s.sql.backlog}
	if s.layout.Settle.Removes() {
		statements = append(statements, s.sql.settle.remove, s.sql.settlePlaced.remove)
	}
	for _, sql := range statements {
		if _, err := conn.Conn().Prepare(ctx, "", sql); err != nil {
			return fmt.Errorf("check statements for %s, a column is not of the type that its part in the layout asks for: %w",
				s.layout.Table, err)
		}
	}
	return nil
}
