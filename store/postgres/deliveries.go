package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Owes implements outbox.DeliveryStore.
func (s *store) Owes(ctx context.Context, lanes []int16, sinks []string) (map[int16][]string, error) {
	rows, err := s.pool.Query(ctx, s.sql.owes, s.name, lanes, sinks)
	if err != nil {
		return nil, fmt.Errorf("ask what %s owes: %w", s.layout.Table, err)
	}
	owed := map[int16][]string{}
	var lane int16
	var sink string
	if _, err := pgx.ForEachRow(rows, []any{&lane, &sink}, func() error {
		owed[lane] = append(owed[lane], sink)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("ask what %s owes: %w", s.layout.Table, err)
	}
	return owed, nil
}

// Debtors implements outbox.Database.
func (d served) Debtors(ctx context.Context) ([]outbox.Debtor, error) {
	text, err := plain("debtors")
	if err != nil {
		return nil, err
	}
	rows, err := d.pool.Query(ctx, text)
	if err == nil {
		var found []outbox.Debtor
		if found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[outbox.Debtor]); err == nil {
			return found, nil
		}
	}
	if c := pgtable.Code(err); c == undefinedTable || c == noRight {
		return nil, nil
	}
	return nil, fmt.Errorf("look for what sinks owe: %w", err)
}

// LeaseName implements outbox.DeliveryStore.
func (s *store) LeaseName() string { return s.name }
