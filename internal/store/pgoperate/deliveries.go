package pgoperate

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// showDeliveries adds to an event what sinks did not take of it at once. An event that is gone from its own table is
// filled in from outbox_deliveries, which may not have it either.
func (b *Browser) showDeliveries(
	ctx context.Context, tx pgx.Tx, d *operate.EventDetail, gone bool, id, tenant string,
) error {
	asked, err := plain("deliveries_seen")
	if err != nil {
		return err
	}
	var exists, allowed bool
	if err := tx.QueryRow(ctx, asked).Scan(&exists, &allowed); err != nil {
		return err
	}
	if !allowed {
		if gone {
			return pgx.ErrNoRows
		}
		d.DeliveriesHidden = exists
		return nil
	}
	table, err := pgtable.Name(ctx, tx, b.layout.Table)
	if err != nil {
		return err
	}
	if gone {
		if *d, err = showGone(ctx, tx, table, id); err != nil {
			return err
		}
		if tenant != "" && (d.Tenant == nil || *d.Tenant != tenant) {
			return pgx.ErrNoRows
		}
	}
	sql, err := plain("deliveries")
	if err != nil {
		return err
	}
	rows, err := tx.Query(ctx, sql, table, d.ID)
	if err != nil {
		return err
	}
	d.Deliveries, err = pgx.CollectRows(rows, pgx.RowToStructByName[operate.Delivery])
	return err
}

// showGone returns an event as one of its deliveries has it.
func showGone(ctx context.Context, tx pgx.Tx, table, id string) (d operate.EventDetail, err error) {
	t, err := parseSQL()
	if err != nil {
		return d, err
	}
	of := pgtable.Quote(operate.DeliveriesOfTable(table))
	sql, err := t.Statement("browse_show", browseNames{Layout: of, ByColumn: of.ID, ByType: "uuid"})
	if err != nil {
		return d, err
	}
	rows, err := tx.Query(ctx, sql, id)
	if err != nil {
		return d, err
	}
	d, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[operate.EventDetail])
	d.Gone()
	return d, err
}
