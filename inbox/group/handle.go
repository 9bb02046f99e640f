package group

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"runtime"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Message is an event as a handler gets it.
type Message[T any] struct {
	outbox.Event
	Data    T         // the payload, decoded by encoding/json
	Attempt int       // 1 is the first
	AppID   uuid.UUID // of a table whose events belong to applications (event_outbox); else uuid.Nil
}

// Names in the metadata of events that say what they come from.
const (
	CorrelationID = "correlation_id" // of all that one request has led to
	CausationID   = "causation_id"   // of the event that this one answers
)

// Causes says in the metadata of an event what it comes from: the message is its cause, and what
// the message belongs to it belongs to as well. Write it in the handler's transaction.
func (m Message[T]) Causes(e outbox.Event) outbox.Event {
	e.Metadata = maps.Clone(e.Metadata)
	if e.Metadata == nil {
		e.Metadata = map[string]any{}
	}
	e.Metadata[CausationID] = m.ID.String()
	if e.Metadata[CorrelationID] = m.Metadata[CorrelationID]; e.Metadata[CorrelationID] == nil {
		e.Metadata[CorrelationID] = m.ID.String()
	}
	return e
}

// Failures are the messages of a batch that were not handled, by their place in it, and why. The
// others were.
type Failures map[int]error

func (f Failures) Error() string { return fmt.Sprintf("%d messages of the batch failed", len(f)) }

// handler is what a type of events is handled by. One of both is set.
type handler[Tx any] struct {
	one  func(ctx context.Context, tx Tx, d *outbox.Delivery) error
	many func(ctx context.Context, tx Tx, batch []*outbox.Delivery) error
	TypeConfig
	running int // calls that have not returned
}

// Handle has f handle the events of a type; "*" is for all types that have no handler of their own.
// Call it before Run. It panics if the type has one already, as http.ServeMux does.
//
// What f does in tx, and no other effect, happens once: it is committed together with the event's
// id. If the event belongs to an application (Message.AppID), tx speaks for it: row-level security
// that reads app.current_tenant applies (inbox.Transactions.SetTenant). An error rolls it back and
// is classed as a sink's is: outbox.Permanent makes a dead letter at once, outbox.RetryAfter says
// when to try again, any other is tried again with Backoff. A panic is an error. ctx ends with the
// handler's Timeout, or when another process may take the event over; what returns later is rolled
// back.
func Handle[Tx, T any](g *Group[Tx], eventType string, f func(ctx context.Context, tx Tx, m Message[T]) error) {
	g.add(eventType, &handler[Tx]{
		one: func(ctx context.Context, tx Tx, d *outbox.Delivery) error {
			m, err := message[T](d)
			if err != nil {
				return err
			}
			return f(ctx, tx, m)
		},
	})
}

// HandleBatch is Handle for many messages at a time, each of another key, in one transaction. They
// are what has come within some milliseconds, of one application if the table has applications.
// With Failures some have failed: f is called again without those, after a rollback. With any other
// error all have.
func HandleBatch[Tx, T any](g *Group[Tx], eventType string, f func(ctx context.Context, tx Tx, ms []Message[T]) error) {
	g.add(eventType, &handler[Tx]{
		many: func(ctx context.Context, tx Tx, batch []*outbox.Delivery) error {
			messages, failed := make([]Message[T], len(batch)), Failures{}
			for i, d := range batch {
				var err error
				if messages[i], err = message[T](d); err != nil {
					failed[i] = err
				}
			}
			if len(failed) > 0 {
				return failed
			}
			return f(ctx, tx, messages)
		},
	})
}

func (g *Group[Tx]) add(eventType string, h *handler[Tx]) {
	if g.handlers[eventType] != nil {
		panic(fmt.Sprintf("group %s: there are two handlers for %s", g.cfg.Name, eventType))
	}
	h.TypeConfig = g.cfg.Types[eventType]
	h.Timeout = cmp.Or(h.Timeout, g.cfg.Timeout)
	h.Batch = cmp.Or(h.Batch, 100)
	g.handlers[eventType] = h
}

func message[T any](d *outbox.Delivery) (Message[T], error) {
	m := Message[T]{Event: eventOf(d), Attempt: d.Attempts + 1, AppID: d.AppID}
	if err := json.Unmarshal(m.Payload, &m.Data); err != nil {
		return m, outbox.Permanent(outbox.Because(outbox.ReasonDeserializationFailed,
			fmt.Errorf("the payload is not what the handler takes: %w", err)))
	}
	return m, nil
}

// find returns the handler of an event.
func (g *Group[Tx]) find(d *outbox.Delivery) (*handler[Tx], error) {
	h := g.handlers[d.Topic]
	if h == nil {
		h = g.handlers["*"]
	}
	if h == nil {
		// Not Permanent: while a new version is rolled out, the old one meets events that it does
		// not know.
		return nil, outbox.Because(outbox.ReasonHandlerMissing, fmt.Errorf("group %s has no handler for %s: give it one, or "+
			"name the types that are its own in Only", g.cfg.Name, d.Topic))
	}
	return h, nil
}

// eventOf is what a handler gets of a delivery.
func eventOf(d *outbox.Delivery) outbox.Event {
	e := d.Event
	e.Destinations = nil
	if e.Metadata == nil && len(d.RawMetadata) > 0 {
		_ = json.Unmarshal(d.RawMetadata, &e.Metadata) // what is no object says nothing
	}
	return e
}

// recovered calls a handler. Its panic is an error with the panic's stack.
func recovered(call func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %.1000v%s", cause, stack())
		}
	}()
	return call()
}

// stack returns the innermost functions of a panic, down to the handler. It has no addresses, so
// that panics of one cause have one text, and are one line of the log.
func stack() string {
	var calls [16]uintptr
	frames := runtime.CallersFrames(calls[:runtime.Callers(4, calls[:])]) // from the caller of panic on
	var text strings.Builder
	for f, more := frames.Next(); more && !strings.HasSuffix(f.Function, "/group.recovered"); f, more = frames.Next() {
		fmt.Fprintf(&text, "\n\t%.200s (%s:%d)", f.Function, path.Base(f.File), f.Line)
	}
	return text.String()
}
