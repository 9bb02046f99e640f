package busevent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Bus is an eventbus.Bus of any database.
type Bus[Tx any] struct {
	DB cold.Database
	// Conn is a caller's transaction, which must be open.
	Conn func(tx Tx) (cold.Conn, error)
	// App is the application that it speaks for; zero: all, or what row-level security says.
	App        uuid.UUID
	MaxPayload int // in bytes; 0: outbox.DefaultMaxPayload
	// Refused says why the database took no event, where that is not because it has it already.
	Refused func(ctx context.Context, tx *cold.Tx) error
}

// Query is what the files bus_*.sql are given.
type Query struct {
	eventbus.Event
	App            string // '' for all
	Body           string
	IDs, Letters   []uuid.UUID
	After, EventID uuid.UUID
	Limit          int
	Now            time.Time
	Failure        outbox.Failure
}

func (b Bus[Tx]) query() Query {
	q := Query{Now: time.Now()}
	if b.App != uuid.Nil {
		q.App = b.App.String()
	}
	return q
}

func (b Bus[Tx]) open(tx Tx) (*cold.Tx, error) {
	conn, err := b.Conn(tx)
	if err != nil {
		return nil, err
	}
	return cold.In(b.DB, conn), nil
}

// Offer implements eventbus.Bus.
func (b Bus[Tx]) Offer(ctx context.Context, tx Tx, e eventbus.Event) error {
	e.AppID = cmp.Or(e.AppID, b.App)
	if b.App != uuid.Nil && e.AppID != b.App {
		return fmt.Errorf("offer event: %w",
			&outbox.FieldError{Field: "AppID", Problem: "is not the application that this event bus speaks for"})
	}
	if err := Prepare(&e, cmp.Or(b.MaxPayload, outbox.DefaultMaxPayload)); err != nil {
		return fmt.Errorf("offer event: %w", err)
	}
	on, err := b.open(tx)
	if err != nil {
		return fmt.Errorf("offer event: %w", err)
	}
	n, err := on.Change(ctx, "bus_offer", Query{Event: e, EventID: e.EventID, Body: string(e.Payload)})
	var refused interface{ SQLState() string }
	switch {
	case errors.As(err, &refused) && refused.SQLState() == "42501": // insufficient_privilege
		return fmt.Errorf("offer event for app %s (is it the one given to SetTenant?): %w", e.AppID, err)
	case err != nil:
		return fmt.Errorf("offer event for app %s: %w", e.AppID, b.DB.Explain(err))
	case n > 0:
		return nil
	case b.Refused != nil:
		if err := b.Refused(ctx, on); err != nil {
			return fmt.Errorf("offer event: %w", err)
		}
	}
	return fmt.Errorf("offer event %s: %w", e.EventID, outbox.ErrDuplicateEvent)
}

// TakePending implements eventbus.Bus.
func (b Bus[Tx]) TakePending(ctx context.Context, tx Tx, limit int) ([]eventbus.Event, error) {
	q := b.query()
	q.Limit = takeLimit(limit)
	if err := b.free(ctx, tx, q); err != nil {
		return nil, fmt.Errorf("take pending events: %w", err)
	}
	return b.list(ctx, tx, "take pending events", "bus_take_pending", q)
}

// free returns ErrServed if a relay or a group serves the table, as far as the role may know.
func (b Bus[Tx]) free(ctx context.Context, tx Tx, q Query) error {
	on, err := b.open(tx)
	if err != nil {
		return err
	}
	var may bool
	served := 0
	if err = on.One(ctx, "bus_may_look", q, &may); err == nil && may {
		err = on.One(ctx, "bus_served", q, &served)
	}
	if err == nil && served > 0 {
		return eventbus.ErrServed
	}
	return b.DB.Explain(err)
}

// ListPending implements eventbus.Bus.
func (b Bus[Tx]) ListPending(ctx context.Context, tx Tx, after uuid.UUID, limit int) ([]eventbus.Event, error) {
	q := b.query()
	q.After, q.Limit = after, takeLimit(limit)
	return b.list(ctx, tx, "list pending events", "bus_list_pending", q)
}

// CountPending implements eventbus.Bus.
func (b Bus[Tx]) CountPending(ctx context.Context, tx Tx) (n int, err error) {
	on, err := b.open(tx)
	if err == nil {
		err = b.DB.Explain(on.One(ctx, "bus_count_pending", b.query(), &n))
	}
	if err != nil {
		return 0, fmt.Errorf("count pending events: %w", err)
	}
	return n, nil
}

// ByEventID implements eventbus.Bus.
func (b Bus[Tx]) ByEventID(ctx context.Context, tx Tx, eventID uuid.UUID) (eventbus.Event, error) {
	q := b.query()
	q.EventID = eventID
	found, err := b.list(ctx, tx, "find event", "bus_by_event_id", q)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("find event %s: %w", eventID, eventbus.ErrNoEvent)
	}
	if err != nil {
		return eventbus.Event{}, err
	}
	return found[0], nil
}

// MarkPublished implements eventbus.Bus.
func (b Bus[Tx]) MarkPublished(ctx context.Context, tx Tx, ids ...uuid.UUID) (n int, err error) {
	on, err := b.open(tx)
	if err == nil {
		q := b.query()
		q.IDs = ids
		n, err = on.Change(ctx, "bus_mark_published", q)
	}
	if err != nil {
		return 0, fmt.Errorf("mark events published: %w", b.DB.Explain(err))
	}
	return n, nil
}

// MarkFailed implements eventbus.Bus.
func (b Bus[Tx]) MarkFailed(ctx context.Context, tx Tx, ids ...uuid.UUID) (int, error) {
	return b.Fail(ctx, tx, outbox.Failure{}, ids...)
}

// Fail implements eventbus.Bus.
func (b Bus[Tx]) Fail(ctx context.Context, tx Tx, why outbox.Failure, ids ...uuid.UUID) (n int, err error) {
	defer func() {
		if err != nil {
			n, err = 0, fmt.Errorf("mark events failed: %w", b.DB.Explain(err))
		}
	}()
	why.Reason = cmp.Or(why.Reason, outbox.ReasonDeliveryFailed)
	if err := deadletter.SourceEvent.CheckReason(why.Reason); err != nil {
		return 0, err
	}
	why.Error = errortext.Fit(cmp.Or(why.Error, "marked as failed"))
	on, err := b.open(tx)
	if err != nil {
		return 0, err
	}
	q := b.query()
	q.Failure, q.IDs = why, slices.CompactFunc(slices.SortedFunc(slices.Values(ids), compare), equal)
	for range q.IDs {
		letter, err := outbox.NewID()
		if err != nil {
			return 0, err
		}
		q.Letters = append(q.Letters, letter)
	}
	if n, err = on.Change(ctx, "bus_letter", q); err != nil {
		return 0, err
	}
	_, err = on.Change(ctx, "bus_mark_failed", q)
	return n, err
}

func compare(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) }
func equal(a, b uuid.UUID) bool  { return a == b }

func (b Bus[Tx]) list(ctx context.Context, tx Tx, what, name string, q Query) (all []eventbus.Event, err error) {
	on, err := b.open(tx)
	if err == nil {
		err = on.Each(ctx, name, q, func(rows cold.Rows) error {
			var e eventbus.Event
			var payload string
			var published sqltable.Text
			err := rows.Scan(&e.ID, &e.AppID, &e.EventID, &e.EventType, &payload, &e.Key, &e.Status, &published)
			e.Payload, e.PublishedAt = json.RawMessage(payload), published.Moment()
			all = append(all, e)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, b.DB.Explain(err))
	}
	return all, nil
}
