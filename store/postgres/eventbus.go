package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/internal/store/busevent"
	"github.com/outboxrelay/outbox/internal/store/errortext"
)

// NewEventBus returns the repository of table event_outbox for transactions of pgx, and NewSQLEventBus for those of
// database/sql and what is built on it. maxPayload is in bytes; 0 means outbox.DefaultMaxPayload.
//
// A bus sees what row-level security shows its transaction. A role that the policy of the relay does not cover must
// call SetTenant first; without it nothing can be offered, and there seem to be no events.
func NewEventBus(maxPayload int) eventbus.Bus[pgx.Tx] { return bus[pgx.Tx]{maxPayload} }

// NewSQLEventBus is NewEventBus for transactions of database/sql.
func NewSQLEventBus(maxPayload int) eventbus.Bus[outbox.SQLTx] { return bus[outbox.SQLTx]{maxPayload} }

// bus is an eventbus.Bus. Tx is pgx.Tx or outbox.SQLTx, and nothing else.
type bus[Tx any] struct{ maxPayload int }

// SetTenant makes the rest of tx speak for the application appID. It ends with the transaction, so a pooled connection
// carries nothing over. tx is a pgx.Tx or an outbox.SQLTx.
func SetTenant(ctx context.Context, tx any, appID uuid.UUID) error {
	if _, err := changeBus(ctx, tx, "bus_tenant", appID.String()); err != nil {
		return fmt.Errorf("set tenant %s: %w", appID, err)
	}
	return nil
}

// Offer implements eventbus.Bus.
func (b bus[Tx]) Offer(ctx context.Context, tx Tx, e eventbus.Event) error {
	if err := busevent.Prepare(&e, cmp.Or(b.maxPayload, outbox.DefaultMaxPayload)); err != nil {
		return fmt.Errorf("offer event: %w", err)
	}
	n, err := changeBus(ctx, tx, "bus_offer", e.ID.String(), e.AppID.String(), e.EventID.String(), e.EventType,
		string(e.Payload), e.Key)
	var refused interface{ SQLState() string }
	switch {
	case errors.As(err, &refused) && refused.SQLState() == "42501": // insufficient_privilege
		return fmt.Errorf("offer event for app %s (is it the one given to SetTenant?): %w", e.AppID, err)
	case err != nil:
		return fmt.Errorf("offer event: %w", err)
	case n > 0:
		return nil
	}
	var encoding string
	var safe bool
	if err := queryBus(ctx, tx, "write_encoding",
		func(row scanner) error { return row.Scan(&encoding, &safe) }); err != nil {
		return fmt.Errorf("offer event: ask for the connection's encoding: %w", err)
	}
	if !safe {
		return fmt.Errorf("offer event: %w", &EncodingError{encoding})
	}
	return fmt.Errorf("offer event %s: %w", e.EventID, outbox.ErrDuplicateEvent)
}

// TakePending implements eventbus.Bus.
func (bus[Tx]) TakePending(ctx context.Context, tx Tx, limit int) ([]eventbus.Event, error) {
	return collectBusEvents(ctx, tx, "take pending events", "bus_take_pending", busevent.TakeLimit(limit))
}

// ListPending implements eventbus.Bus.
func (bus[Tx]) ListPending(ctx context.Context, tx Tx, after uuid.UUID, limit int) ([]eventbus.Event, error) {
	return collectBusEvents(ctx, tx, "list pending events", "bus_list_pending", after.String(), busevent.TakeLimit(limit))
}

// CountPending implements eventbus.Bus.
func (bus[Tx]) CountPending(ctx context.Context, tx Tx) (int, error) {
	n := 0
	if err := queryBus(ctx, tx, "bus_count_pending", func(row scanner) error { return row.Scan(&n) }); err != nil {
		return 0, fmt.Errorf("count pending events: %w", err)
	}
	return n, nil
}

// ByEventID implements eventbus.Bus.
func (bus[Tx]) ByEventID(ctx context.Context, tx Tx, eventID uuid.UUID) (eventbus.Event, error) {
	found, err := collectBusEvents(ctx, tx, "find event", "bus_by_event_id", eventID.String())
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("find event %s: %w", eventID, eventbus.ErrNoEvent)
	}
	if err != nil {
		return eventbus.Event{}, err
	}
	return found[0], nil
}

// MarkPublished implements eventbus.Bus.
func (bus[Tx]) MarkPublished(ctx context.Context, tx Tx, ids ...uuid.UUID) (int, error) {
	n, err := changeBus(ctx, tx, "bus_mark_published", idArray(ids))
	if err != nil {
		return 0, fmt.Errorf("mark events published: %w", err)
	}
	return n, nil
}

// MarkFailed implements eventbus.Bus.
func (b bus[Tx]) MarkFailed(ctx context.Context, tx Tx, ids ...uuid.UUID) (int, error) {
	return b.Fail(ctx, tx, outbox.Failure{}, ids...)
}

// Fail implements eventbus.Bus.
func (bus[Tx]) Fail(ctx context.Context, tx Tx, why outbox.Failure, ids ...uuid.UUID) (int, error) {
	reason := cmp.Or(why.Reason, outbox.ReasonDeliveryFailed)
	if err := deadletter.SourceEvent.CheckReason(reason); err != nil {
		return 0, fmt.Errorf("mark events failed: %w", err)
	}
	failed := 0
	err := queryBus(ctx, tx, "bus_mark_failed", func(row scanner) error { return row.Scan(&failed) },
		idArray(ids), string(reason), errortext.Fit(cmp.Or(why.Error, "marked as failed")), why.Destination)
	if err != nil {
		return 0, fmt.Errorf("mark events failed: %w", err)
	}
	return failed, nil
}

// idArray is PostgreSQL's text form, which both kinds of transaction take.
func idArray(ids []uuid.UUID) string { return arrayOf(ids, uuid.UUID.String) }

func collectBusEvents(
	ctx context.Context, tx any, what, name string, args ...any,
) (events []eventbus.Event, err error) {
	err = queryBus(ctx, tx, name, func(row scanner) error {
		var e eventbus.Event
		var payload string
		if err := row.Scan(&e.ID, &e.AppID, &e.EventID, &e.EventType, &payload, &e.Key, &e.Status,
			&e.PublishedAt); err != nil {
			return err
		}
		e.Payload = json.RawMessage(payload)
		events = append(events, e)
		return nil
	}, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return events, nil
}
