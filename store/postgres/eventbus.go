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
	"github.com/outboxrelay/outbox/internal/busevent"
	"github.com/outboxrelay/outbox/internal/errortext"
)

// EventBus is the repository of table event_outbox for transactions of pgx, SQLEventBus for those of database/sql and
// what is built on it.
type (
	EventBus    = EventBusOf[pgx.Tx]
	SQLEventBus = EventBusOf[outbox.SQLTx]
)

// EventBusOf is the repository of table event_outbox (docs/seeds.md, 05-01): for producers, and for consumers that
// publish by themselves instead of running a relay. Tx is pgx.Tx or outbox.SQLTx, and nothing else. The zero value is
// ready and safe for concurrent use.
//
// Every method works inside the caller's transaction and sees what row-level security shows it. A role that the policy
// of the relay does not cover must call SetTenant first; without it nothing can be offered, and there seem to be no
// events.
//
// Do not take from a table that a relay serves: a relay looks at leases and not at row locks, so both would publish.
type EventBusOf[Tx any] struct {
	MaxPayload int // bytes; 0 means outbox.DefaultMaxPayload
}

// SetTenant makes the rest of tx speak for the application appID. It ends with the transaction, so a pooled connection
// carries nothing over.
func (EventBusOf[Tx]) SetTenant(ctx context.Context, tx Tx, appID uuid.UUID) error {
	if _, err := changeBus(ctx, tx, "bus_tenant", appID.String()); err != nil {
		return fmt.Errorf("set tenant %s: %w", appID, err)
	}
	return nil
}

// Offer writes an event in tx: it exists exactly if tx commits. An event that the table cannot hold is an
// *outbox.FieldError and one whose EventID is there already outbox.ErrDuplicateEvent; tx stays usable after both. Any
// other error has aborted it.
func (b EventBusOf[Tx]) Offer(ctx context.Context, tx Tx, e eventbus.Event) error {
	if err := busevent.Prepare(&e, cmp.Or(b.MaxPayload, outbox.DefaultMaxPayload)); err != nil {
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

// TakePending returns up to limit pending events (100 if limit is not positive), oldest first, and keeps
// them from other takers until tx ends. Publish them, call MarkPublished and commit. If one fails and is to be tried
// again, mark no later event of its key either. A crash before the commit gives them all out again, so whoever receives
// them must expect copies.
//
// Per application and key, no event is returned while an earlier one is pending elsewhere: with another taker, or
// waiting for a retry. So there may be fewer than limit events, or none, although CountPending is not zero; they come
// once the other taker is done.
func (EventBusOf[Tx]) TakePending(ctx context.Context, tx Tx, limit int) ([]eventbus.Event, error) {
	return collectBusEvents(ctx, tx, "take pending events", "bus_take_pending", busevent.TakeLimit(limit))
}

// ListPending returns a page of pending events without taking them: up to limit (100 if it is not
// positive) whose row ids follow after, in the order of row ids. uuid.Nil gives the first page, the last ID of a page
// the next one.
func (EventBusOf[Tx]) ListPending(ctx context.Context, tx Tx, after uuid.UUID, limit int) ([]eventbus.Event, error) {
	return collectBusEvents(ctx, tx, "list pending events", "bus_list_pending", after.String(), busevent.TakeLimit(limit))
}

// CountPending returns how many events are pending.
func (EventBusOf[Tx]) CountPending(ctx context.Context, tx Tx) (int, error) {
	n := 0
	if err := queryBus(ctx, tx, "bus_count_pending", func(row scanner) error { return row.Scan(&n) }); err != nil {
		return 0, fmt.Errorf("count pending events: %w", err)
	}
	return n, nil
}

// ByEventID returns the event with that EventID, whatever its status, or eventbus.ErrNoEvent.
func (EventBusOf[Tx]) ByEventID(ctx context.Context, tx Tx, eventID uuid.UUID) (eventbus.Event, error) {
	found, err := collectBusEvents(ctx, tx, "find event", "bus_by_event_id", eventID.String())
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("find event %s: %w", eventID, eventbus.ErrNoEvent)
	}
	if err != nil {
		return eventbus.Event{}, err
	}
	return found[0], nil
}

// MarkPublished makes pending events published, now. ids are row ids (eventbus.Event.ID). It returns how many changed;
// others are left as they are.
func (EventBusOf[Tx]) MarkPublished(ctx context.Context, tx Tx, ids ...uuid.UUID) (int, error) {
	n, err := changeBus(ctx, tx, "bus_mark_published", idArray(ids))
	if err != nil {
		return 0, fmt.Errorf("mark events published: %w", err)
	}
	return n, nil
}

// MarkFailed is Fail of events that could not be delivered, where nothing more is known about it.
func (b EventBusOf[Tx]) MarkFailed(ctx context.Context, tx Tx, ids ...uuid.UUID) (int, error) {
	return b.Fail(ctx, tx, outbox.Failure{}, ids...)
}

// Fail makes pending events failed and keeps a dead letter of each, with why it failed: they are final unless an
// operator replays the letter, which makes the event pending again. What follows them in their keys goes on. ids are
// row ids. It returns how many changed; others are left as they are.
//
// An empty Reason is outbox.ReasonDeliveryFailed, and one that events cannot have a *deadletter.ReasonError. The role
// needs INSERT on job_dlq, as outbox_relay has.
func (EventBusOf[Tx]) Fail(ctx context.Context, tx Tx, why outbox.Failure, ids ...uuid.UUID) (int, error) {
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
