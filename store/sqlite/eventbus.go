package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/internal/store/busevent"
	"github.com/outboxrelay/outbox/internal/store/errortext"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

// NewEventBus returns the repository of table event_outbox. It speaks for an application, whose events it offers and
// sees and no others, or for all if app is zero: there is no row-level security. maxPayload is in bytes; 0 means
// outbox.DefaultMaxPayload.
//
// Its transactions are those of DB.Begin, or of a library on a handle of sqlite.Source. One that takes events is the
// file's only write transaction meanwhile, so publish them quickly. It stays usable after every error but those of its
// end.
func NewEventBus(app uuid.UUID, maxPayload int) eventbus.Bus[outbox.SQLTx] {
	return bus{app, maxPayload}
}

// bus is an eventbus.Bus.
type bus struct {
	appID      uuid.UUID // zero: all
	maxPayload int
}

// app is the application as the statements have it.
func (b bus) app() string {
	if b.appID == uuid.Nil {
		return ""
	}
	return b.appID.String()
}

// Offer implements eventbus.Bus.
func (b bus) Offer(ctx context.Context, tx outbox.SQLTx, e eventbus.Event) error {
	e.AppID = cmp.Or(e.AppID, b.appID)
	if b.appID != uuid.Nil && e.AppID != b.appID {
		return fmt.Errorf("offer event: %w",
			&outbox.FieldError{Field: "AppID", Problem: "is not the application that this event bus speaks for"})
	}
	if err := busevent.Prepare(&e, cmp.Or(b.maxPayload, outbox.DefaultMaxPayload)); err != nil {
		return fmt.Errorf("offer event: %w", err)
	}
	n, err := changeBus(ctx, tx, "bus_offer", e.ID.String(), e.AppID.String(), e.EventID.String(), e.EventType,
		string(e.Payload), e.Key)
	switch {
	case err != nil:
		return fmt.Errorf("offer event for app %s: %w", e.AppID, err)
	case n == 0:
		return fmt.Errorf("offer event %s: %w", e.EventID, outbox.ErrDuplicateEvent)
	}
	return nil
}

// TakePending implements eventbus.Bus.
func (b bus) TakePending(ctx context.Context, tx outbox.SQLTx, limit int) ([]eventbus.Event, error) {
	return readBus(ctx, tx, "take pending events", "bus_take_pending", b.app(), stamp(time.Now()),
		busevent.TakeLimit(limit))
}

// ListPending implements eventbus.Bus.
func (b bus) ListPending(
	ctx context.Context, tx outbox.SQLTx, after uuid.UUID, limit int,
) ([]eventbus.Event, error) {
	return readBus(ctx, tx, "list pending events", "bus_list_pending", b.app(), after.String(), busevent.TakeLimit(limit))
}

// CountPending implements eventbus.Bus.
func (b bus) CountPending(ctx context.Context, tx outbox.SQLTx) (n int, err error) {
	tx, err = sqltx.Open(tx)
	if err != nil {
		return 0, fmt.Errorf("count pending events: %w", err)
	}
	statement, err := plain("bus_count_pending")
	if err != nil {
		return 0, err
	}
	if err := sqltx.QueryRow(ctx, tx, statement, []any{b.app()}, &n); err != nil {
		return 0, fmt.Errorf("count pending events: %w", explain(err))
	}
	return n, nil
}

// ByEventID implements eventbus.Bus.
func (b bus) ByEventID(ctx context.Context, tx outbox.SQLTx, eventID uuid.UUID) (eventbus.Event, error) {
	found, err := readBus(ctx, tx, "find event", "bus_by_event_id", b.app(), eventID.String())
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("find event %s: %w", eventID, eventbus.ErrNoEvent)
	}
	if err != nil {
		return eventbus.Event{}, err
	}
	return found[0], nil
}

// MarkPublished implements eventbus.Bus.
func (b bus) MarkPublished(ctx context.Context, tx outbox.SQLTx, ids ...uuid.UUID) (int, error) {
	n, err := b.mark(ctx, tx, "bus_mark_published", ids, stamp(time.Now()))
	if err != nil {
		return 0, fmt.Errorf("mark events published: %w", err)
	}
	return n, nil
}

// MarkFailed implements eventbus.Bus.
func (b bus) MarkFailed(ctx context.Context, tx outbox.SQLTx, ids ...uuid.UUID) (int, error) {
	return b.Fail(ctx, tx, outbox.Failure{}, ids...)
}

// Fail implements eventbus.Bus.
func (b bus) Fail(
	ctx context.Context, tx outbox.SQLTx, why outbox.Failure, ids ...uuid.UUID,
) (failed int, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("mark events failed: %w", err)
		}
	}()
	reason := cmp.Or(why.Reason, outbox.ReasonDeliveryFailed)
	if err := deadletter.SourceEvent.CheckReason(reason); err != nil {
		return 0, err
	}
	now, problem := stamp(time.Now()), errortext.Fit(cmp.Or(why.Error, "marked as failed"))
	ids = slices.Clone(ids)
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range slices.Compact(ids) {
		letter, err := outbox.NewID()
		if err != nil {
			return 0, err
		}
		n, err := changeBus(ctx, tx, "bus_letter", b.app(), id.String(), letter.String(), now, string(reason), problem,
			why.Destination)
		if err != nil {
			return 0, err
		}
		failed += n
	}
	_, err = b.mark(ctx, tx, "bus_mark_failed", ids, now, problem)
	return failed, err
}

func (b bus) mark(ctx context.Context, tx outbox.SQLTx, name string, ids []uuid.UUID, more ...any) (int, error) {
	args := sqlitetable.Arguments{Args: []any{b.app()}}
	if _, err := args.Add(ids); err != nil {
		return 0, err
	}
	return changeBus(ctx, tx, name, append(args.Args, more...)...)
}

func changeBus(ctx context.Context, tx outbox.SQLTx, name string, args ...any) (int, error) {
	tx, err := sqltx.Open(tx)
	if err != nil {
		return 0, err
	}
	statement, err := plain(name)
	if err != nil {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, explain(err)
	}
	n, err := result.RowsAffected()
	return int(n), err
}

func readBus(
	ctx context.Context, tx outbox.SQLTx, what, name string, args ...any,
) (events []eventbus.Event, err error) {
	defer func() {
		if err != nil {
			events, err = nil, fmt.Errorf("%s: %w", what, explain(err))
		}
	}()
	tx, err = sqltx.Open(tx)
	if err != nil {
		return nil, err
	}
	statement, err := plain(name)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e eventbus.Event
		var payload string
		var published sql.NullString
		if err := rows.Scan(&e.ID, &e.AppID, &e.EventID, &e.EventType, &payload, &e.Key, &e.Status, &published); err != nil {
			return nil, err
		}
		e.Payload = json.RawMessage(payload)
		if e.PublishedAt, err = timePointer(published); err != nil {
			return nil, err
		}
		events = append(events, e)
	}
	return events, rows.Err()
}
