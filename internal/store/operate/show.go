package operate

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Show returns one event, by its id or by its position, of the tenant if one is named, with what
// sinks did not take of it at once. By its id an event is found also while its row is gone and a
// sink has not taken it. None: ErrNoEvent.
func (b *Browser) Show(ctx context.Context, idOrPosition, tenant string) (detail EventDetail, err error) {
	q := b.query()
	q.F.Tenant, q.Asked = tenant, idOrPosition
	if _, err := strconv.ParseInt(idOrPosition, 10, 64); err == nil {
		q.ByPosition, q.ByColumn, q.ByType = true, q.Position, "bigint"
	} else if id, err := uuid.Parse(idOrPosition); err == nil {
		q.Asked = id.String()
	} else {
		return detail, fmt.Errorf("%w: %q is neither an event id (a UUID) nor a position (a number)", ErrFilter,
			idOrPosition)
	}
	if err := b.check(Filter{Tenant: tenant}); err != nil {
		return detail, err
	}
	err = b.read(ctx, tenant, func(tx *cold.Tx) error {
		var r browsedDetail
		err := tx.One(ctx, "browse_show", q, r.columns()...)
		if err == nil {
			detail = r.detail()
			row := []EventRow{detail.EventRow}
			err = b.findBehind(ctx, tx, row)
			detail.EventRow = row[0]
		}
		if b.layout.Part != "" || err != nil && (!errors.Is(err, cold.ErrNoRow) || q.ByPosition) {
			return err
		}
		return b.showDeliveries(ctx, tx, &detail, err != nil, *q)
	})
	if errors.Is(err, cold.ErrNoRow) {
		err = ErrNoEvent
	}
	if err != nil {
		return EventDetail{}, fmt.Errorf("show event %s of %s: %w", idOrPosition, b.layout.Name(), err)
	}
	return detail, nil
}

// Seen tells whether there is a table, and whether it may be read. To read one that is not there
// would be an error in the server's log.
func Seen(ctx context.Context, tx *cold.Tx, table string) (exists, allowed bool, err error) {
	err = tx.One(ctx, "seen", struct{ Table string }{table}, &exists, &allowed)
	return exists, allowed, err
}

// showDeliveries adds to an event what sinks did not take of it at once. An event that is gone from
// its own table is filled in from outbox_deliveries, which may not have it either.
func (b *Browser) showDeliveries(ctx context.Context, tx *cold.Tx, d *EventDetail, gone bool, q query) error {
	exists, allowed, err := Seen(ctx, tx, "outbox_deliveries")
	if err != nil {
		return err
	}
	if !allowed {
		if gone {
			return cold.ErrNoRow
		}
		d.DeliveriesHidden = exists
		return nil
	}
	if gone {
		q.Layout = b.db.Quote(DeliveriesOfTable(b.leased))
		q.ByColumn = q.ID
		var r browsedDetail
		if err := tx.One(ctx, "browse_show", &q, r.columns()...); err != nil {
			return err
		}
		*d = r.detail()
		d.gone()
	}
	q.Event = d.ID
	return tx.Each(ctx, "deliveries", &q, func(rows cold.Rows) error {
		var one Delivery
		var next, failed, delivered sqltable.Text
		err := rows.Scan(&one.Sink, &one.Destination, &one.Status, &one.Attempts, &next, &failed, &delivered)
		one.NextRetryAt, one.LastError, one.DeliveredAt = next.Moment(), failed.Pointer(), delivered.Moment()
		d.Deliveries = append(d.Deliveries, one)
		return err
	})
}
