package sqliteoperate

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// hasDeliveries tells whether the file has a table of deliveries, and the browser's table is another one.
func (b *Browser) hasDeliveries(ctx context.Context) (bool, error) {
	if b.layout.Part != "" {
		return false, nil
	}
	_, err := file(b.db).CheckTable(ctx, "outbox_deliveries", nil)
	var old *outbox.SchemaError
	if errors.As(err, &old) {
		return false, nil
	}
	return err == nil, err
}

// showDeliveries adds to an event what sinks did not take of it at once. An event that is gone from its own table is
// filled in from outbox_deliveries, which may not have it either.
func (b *Browser) showDeliveries(
	ctx context.Context, tx *sql.Tx, d *operate.EventDetail, gone bool, id, tenant string,
) error {
	if gone {
		t, err := parseSQL()
		if err != nil {
			return err
		}
		of := sqlitetable.Quote(operate.DeliveriesOfTable(b.layout.Table))
		text, err := t.Statement("browse_show", &browseQuery{Layout: of})
		if err != nil {
			return err
		}
		var r browsedDetail
		if err := tx.QueryRowContext(ctx, text, id, tenant).Scan(r.columns()...); err != nil {
			return err
		}
		*d = r.detail()
		d.Gone()
	}
	text, err := plain("deliveries")
	if err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, text, b.layout.Table, d.ID.String())
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one operate.Delivery
		var next, failed, delivered sqltable.Text
		if err := rows.Scan(&one.Sink, &one.Destination, &one.Status, &one.Attempts, &next, &failed,
			&delivered); err != nil {
			return err
		}
		one.NextRetryAt, one.LastError, one.DeliveredAt = next.Moment(), failed.Pointer(), delivered.Moment()
		d.Deliveries = append(d.Deliveries, one)
	}
	return rows.Err()
}
