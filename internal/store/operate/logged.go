package operate

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// LogReader is the progress of a reader of a log relative to one event.
type LogReader struct {
	Kind   string `json:"kind"` // sinks, group or subscription
	Name   string `json:"name"` // "" of sinks
	Passed bool   `json:"passed"`
	Before int    `json:"before"` // events that it has still to pass first, counted up to 100,000
	// Status is pending of a failed or fetched event, given of one that a consumer has, dead,
	// delivered after a failure, other of one that is not for the subscription; or "".
	Status   string `json:"status,omitempty"`
	Attempts int    `json:"attempts,omitempty"`
	Error    string `json:"error,omitempty"`
	Paused   bool   `json:"paused,omitempty"`
}

// StatusLogged is the status of an event of a log, whose rows have none.
const StatusLogged = "logged"

// Logged returns one event of a log, by its position, or by its id among the newest 1,000,000 rows,
// and how far each reader has come with it. None: ErrNoEvent.
func (d Database) Logged(
	ctx context.Context, log outbox.Layout, idOrPosition, tenant string,
) (e EventDetail, readers []LogReader, err error) {
	b, err := d.Browser(ctx, log)
	if err != nil {
		return e, nil, err
	}
	q := struct {
		*query
		Event      *EventDetail
		Xid        string
		Deliveries bool // may be read
	}{query: b.query(), Event: &e}
	q.F.Tenant, q.Asked = tenant, idOrPosition
	if _, err := strconv.ParseInt(idOrPosition, 10, 64); err == nil {
		q.ByPosition = true
	} else if _, err := uuid.Parse(idOrPosition); err != nil {
		return e, nil, fmt.Errorf("%w: %q is neither an event id (a UUID) nor a position (a number)", ErrFilter, idOrPosition)
	}
	err = cold.Read(ctx, d.db, func(tx *cold.Tx) error {
		var key, of, source, at, payload sqltable.Text
		err := tx.One(ctx, "logged", q, &e.ID, &e.Position, &q.Xid, &e.Lane, &e.Topic, &key, &of, &source, &at, &payload)
		if err != nil {
			return err
		}
		e.Status, e.Key, e.Tenant, e.Source = StatusLogged, key.Pointer(), of.Pointer(), source.Pointer()
		e.WrittenAt, e.Payload = at.Moment(), payload.JSON()
		if _, q.Deliveries, err = Seen(ctx, tx, "outbox_deliveries"); err != nil {
			return err
		}
		return tx.Each(ctx, "logged_readers", q, func(rows cold.Rows) error {
			var r LogReader
			err := rows.Scan(&r.Kind, &r.Name, &r.Passed, &r.Before, &r.Status, &r.Attempts, &r.Error, &r.Paused)
			readers = append(readers, r)
			return err
		})
	})
	if errors.Is(err, cold.ErrNoRow) {
		err = ErrNoEvent
	}
	return e, readers, err
}
