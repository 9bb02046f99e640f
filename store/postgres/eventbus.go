package postgres

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/tables"
)

// EventBus is the repository of table event_outbox (plan 05-01): for producers, and for consumers that publish by themselves instead of
// running a relay. The zero value is ready and safe for concurrent use.
//
// Every method works inside the caller's transaction and sees what row-level security shows it. A role that the policy of the relay
// does not cover must call SetTenant first; without it nothing can be offered, and there seem to be no events.
//
// Do not take from a table that a relay serves: a relay looks at leases and not at row locks, so both would publish.
type EventBus struct {
	MaxPayload int // bytes; 0 means outbox.DefaultMaxPayload
}

var (
	//go:embed sql/bus_tenant.sql
	busTenant string
	//go:embed sql/bus_offer.sql
	busOffer string
	//go:embed sql/bus_take_pending.sql
	busTakePending string
	//go:embed sql/bus_list_pending.sql
	busListPending string
	//go:embed sql/bus_count_pending.sql
	busCountPending string
	//go:embed sql/bus_by_event_id.sql
	busByEventID string
	//go:embed sql/bus_mark_published.sql
	busMarkPublished string
	//go:embed sql/bus_mark_failed.sql
	busMarkFailed string
)

// SetTenant makes the rest of tx speak for the application appID. It ends with the transaction, so a pooled connection carries nothing over.
func (EventBus) SetTenant(ctx context.Context, tx pgx.Tx, appID uuid.UUID) error {
	if _, err := tx.Exec(ctx, busTenant, appID.String()); err != nil {
		return fmt.Errorf("set tenant %s: %w", appID, err)
	}
	return nil
}

// Offer writes an event in tx: it exists exactly if tx commits. An event that the table cannot hold is an *outbox.FieldError and one whose
// EventID is there already outbox.ErrDuplicateEvent; tx stays usable after both. Any other error has aborted it.
func (b EventBus) Offer(ctx context.Context, tx pgx.Tx, e tables.BusEvent) error {
	if err := e.Prepare(cmp.Or(b.MaxPayload, outbox.DefaultMaxPayload)); err != nil {
		return fmt.Errorf("offer event: %w", err)
	}
	if err := checkEncoding(tx.Conn()); err != nil {
		return fmt.Errorf("offer event: %w", err)
	}
	tag, err := tx.Exec(ctx, busOffer, e.ID, e.AppID, e.EventID, e.EventType, string(e.Payload), e.Key)
	var refused *pgconn.PgError
	switch {
	case errors.As(err, &refused) && refused.Code == "42501": // insufficient_privilege
		return fmt.Errorf("offer event for app %s (is it the one given to SetTenant?): %w", e.AppID, err)
	case err != nil:
		return fmt.Errorf("offer event: %w", err)
	case tag.RowsAffected() == 0:
		return fmt.Errorf("offer event %s: %w", e.EventID, outbox.ErrDuplicateEvent)
	}
	return nil
}

// TakePending returns up to limit pending events (tables.DefaultTake if limit is not positive), oldest first, and keeps them from other takers until tx
// ends. Publish them, call MarkPublished and commit. If one fails and is to be tried again, mark no later event of its key either.
// A crash before the commit gives them all out again, so whoever receives them must expect copies.
//
// Per application and key, no event is returned while an earlier one is pending elsewhere: with another taker, or waiting for a retry. So
// there may be fewer than limit events, or none, although CountPending is not zero; they come once the other taker is done.
func (EventBus) TakePending(ctx context.Context, tx pgx.Tx, limit int) ([]tables.BusEvent, error) {
	return collectBusEvents(ctx, tx, "take pending events", busTakePending, tables.TakeLimit(limit))
}

// ListPending returns a page of pending events without taking them: up to limit (tables.DefaultTake if it is not positive) whose row ids follow after,
// in the order of row ids. uuid.Nil gives the first page, the last ID of a page the next one.
func (EventBus) ListPending(ctx context.Context, tx pgx.Tx, after uuid.UUID, limit int) ([]tables.BusEvent, error) {
	return collectBusEvents(ctx, tx, "list pending events", busListPending, after, tables.TakeLimit(limit))
}

// CountPending returns how many events are pending.
func (EventBus) CountPending(ctx context.Context, tx pgx.Tx) (int, error) {
	var n int
	if err := tx.QueryRow(ctx, busCountPending).Scan(&n); err != nil {
		return 0, fmt.Errorf("count pending events: %w", err)
	}
	return n, nil
}

// ByEventID returns the event with that EventID, whatever its status, or tables.ErrNoEvent.
func (EventBus) ByEventID(ctx context.Context, tx pgx.Tx, eventID uuid.UUID) (tables.BusEvent, error) {
	found, err := collectBusEvents(ctx, tx, "find event", busByEventID, eventID)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("find event %s: %w", eventID, tables.ErrNoEvent)
	}
	if err != nil {
		return tables.BusEvent{}, err
	}
	return found[0], nil
}

// MarkPublished makes pending events published, now. ids are row ids (tables.BusEvent.ID). It returns how many changed; others are left as they
// are.
func (EventBus) MarkPublished(ctx context.Context, tx pgx.Tx, ids ...uuid.UUID) (int, error) {
	return markBusEvents(ctx, tx, "mark events published", busMarkPublished, ids)
}

// MarkFailed makes pending events failed, which is final: the row stays for inspection, and what follows it in its key goes on.
// ids are row ids. It returns how many changed; others are left as they are.
func (EventBus) MarkFailed(ctx context.Context, tx pgx.Tx, ids ...uuid.UUID) (int, error) {
	return markBusEvents(ctx, tx, "mark events failed", busMarkFailed, ids)
}

func markBusEvents(ctx context.Context, tx pgx.Tx, what, sql string, ids []uuid.UUID) (int, error) {
	list := make([]pgtype.UUID, len(ids))
	for i, id := range ids {
		list[i] = pgtype.UUID{Bytes: id, Valid: true}
	}
	tag, err := tx.Exec(ctx, sql, list)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return int(tag.RowsAffected()), nil
}

func collectBusEvents(ctx context.Context, tx pgx.Tx, what, sql string, args ...any) ([]tables.BusEvent, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e tables.BusEvent, err error) {
		var payload string
		err = row.Scan(&e.ID, &e.AppID, &e.EventID, &e.EventType, &payload, &e.Key, &e.Status, &e.PublishedAt)
		e.Payload = json.RawMessage(payload)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return events, nil
}
