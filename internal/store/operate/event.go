package operate

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// What callers of a Browser branch on.
var (
	// ErrFilter says that a Filter, or what Show was asked for, does not fit the table.
	ErrFilter = errors.New("cannot look for that")
	// ErrNoEvent says that the table has no such event, or that row-level security hides it.
	ErrNoEvent = errors.New("no such event")
)

// EventRow is a row as a list shows it. What the table has no column for is nil.
type EventRow struct {
	ID            uuid.UUID  `json:"id"`
	Position      int64      `json:"position"`
	Status        string     `json:"status"`
	Topic         string     `json:"topic"`
	Key           *string    `json:"key,omitempty"`
	AggregateType *string    `json:"aggregateType,omitempty"`
	Tenant        *string    `json:"tenant,omitempty"`
	Source        *string    `json:"source,omitempty"`
	WrittenAt     *time.Time `json:"writtenAt,omitempty"` // from a UUIDv7 if the table keeps no time
	DeliveredAt   *time.Time `json:"deliveredAt,omitempty"`
	Attempts      int        `json:"attempts"` // failed ones
	// When it is tried next; of one that waits behind another, when that one is.
	NextRetryAt *time.Time `json:"nextRetryAt,omitempty"`
	LastError   *string    `json:"lastError,omitempty"`
	// Destinations is the event's own list, a JSON array of strings; nil where the relay's template
	// says where it goes.
	Destinations json.RawMessage `json:"destinations,omitempty"`
	// WaitsBehind is the event of its key that is being retried, before which it cannot go; of
	// several, the one that is tried last.
	WaitsBehind *uuid.UUID `json:"waitsBehind,omitempty"`
	// Paused is for whoever knows the pauses: it waits until an operator resumes its table, topic
	// or destination. A Browser leaves it false.
	Paused bool `json:"paused,omitempty"`
}

// EventDetail is everything about one row.
type EventDetail struct {
	EventRow
	OccurredAt    *time.Time      `json:"occurredAt,omitempty"`
	SchemaID      *string         `json:"schemaId,omitempty"`
	SchemaVersion *int            `json:"schemaVersion,omitempty"`
	Lane          int             `json:"lane"`
	Sequence      *int64          `json:"sequence,omitempty"`
	Generation    int             `json:"generation"`
	DeliveredTo   json.RawMessage `json:"deliveredTo,omitempty"`
	ErrorHistory  json.RawMessage `json:"errorHistory,omitempty"`
	Metadata      json.RawMessage `json:"metadata,omitempty"`
	Payload       json.RawMessage `json:"payload"`
	// Deliveries are those that sinks did not take at once, of a table with routes.
	// DeliveriesHidden says that the role may not see them.
	Deliveries       []Delivery `json:"deliveries,omitempty"`
	DeliveriesHidden bool       `json:"deliveriesHidden,omitempty"`
}

// StatusGone is the status of an event whose row has left the table, and of which Deliveries are
// left.
const StatusGone = "gone"

// gone makes the detail of a row of outbox_deliveries that of its event, whose own row has left its
// table.
func (d *EventDetail) gone() {
	d.Status, d.Position, d.Attempts, d.Lane = StatusGone, 0, 0, 0
	d.NextRetryAt, d.DeliveredAt, d.LastError = nil, nil, nil
	d.Destinations, d.ErrorHistory = nil, nil
}

// Filter chooses rows; the zero value is the newest 50.
type Filter struct {
	Statuses []string  `json:"statuses,omitempty"` // of Browser.Statuses, in any case
	Tenant   string    `json:"tenant,omitempty"`   // or, where tenants are applications, the id of one
	Key      string    `json:"key,omitempty"`
	Topic    string    `json:"topic,omitempty"` // a name, or a pattern in which * stands for any text
	Type     string    `json:"type,omitempty"`  // of the aggregate, as Topic
	Trace    string    `json:"trace,omitempty"` // id of a W3C trace: of the metadata's traceparent, or trace_id
	Since    time.Time `json:"since,omitzero"`  // of being written, inclusive
	Until    time.Time `json:"until,omitzero"`  // exclusive

	Limit int    `json:"-"` // of a list: 0 is 50
	After string `json:"-"` // what List returned with the previous page
}

// Selection chooses undelivered events: those that match all of it. The zero value chooses none.
type Selection struct {
	IDs []uuid.UUID `json:"ids,omitempty"`
	All bool        `json:"all,omitempty"` // where nothing else is said
	Filter
	// UpTo leaves out what stands behind a position, and chooses nothing by itself. 0: there is
	// none.
	UpTo int64 `json:"upTo,omitempty"`
}

// None tells whether nothing was chosen: an empty list of ids must not mean everything.
func (s Selection) None() bool {
	return len(s.IDs) == 0 && !s.All && s.none()
}

// none tells whether a filter leaves nothing out.
func (f Filter) none() bool {
	return len(f.Statuses) == 0 && f.Tenant == "" && f.Key == "" && f.Topic == "" && f.Type == "" && f.Trace == "" &&
		f.Since.IsZero() && f.Until.IsZero()
}

// dateByID fills WrittenAt from a UUIDv7 where the table keeps no time.
func (r *EventRow) dateByID() {
	if t := uuid7.Time(r.ID); r.WrittenAt == nil && !t.IsZero() {
		r.WrittenAt = &t
	}
}

// mayWait returns those of rows, by position, that are undelivered and have a key: they may wait
// behind another of it.
func mayWait(l outbox.Layout, rows []EventRow) map[int64]*EventRow {
	at := map[int64]*EventRow{}
	for i := range rows {
		if r := &rows[i]; r.Undelivered(l) && (r.Key != nil || l.KeylessScope != "") {
			at[r.Position] = r
		}
	}
	return at
}

// Undelivered tells whether a row of the layout's table is still to be delivered.
func (r *EventRow) Undelivered(l outbox.Layout) bool {
	if l.Status == "" {
		return r.DeliveredAt == nil
	}
	return r.Status == l.Pending || l.Retrying != "" && r.Status == l.Retrying
}

// GoesTo returns the row's destinations: its own list, or what the relay's template makes of it.
func (r *EventRow) GoesTo(l outbox.Layout, t outbox.Template) []string {
	var names []string
	if json.Unmarshal(r.Destinations, &names) == nil && len(names) > 0 {
		return names
	}
	of := outbox.Record{Event: r.Event()}
	if r.Source == nil {
		of.Source = l.Table
	}
	if name, err := t.Expand(&of); err == nil {
		return []string{name}
	}
	return nil // it becomes a dead letter
}

// Event is what decides where the row goes, but for destinations of its own.
func (r *EventRow) Event() outbox.Event {
	of := outbox.Event{Topic: r.Topic}
	for dst, src := range map[*string]*string{
		&of.AggregateID: r.Key, &of.AggregateType: r.AggregateType, &of.TenantID: r.Tenant, &of.Source: r.Source,
	} {
		if src != nil {
			*dst = *src
		}
	}
	return of
}
