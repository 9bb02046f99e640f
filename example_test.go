package outbox_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
)

// These examples take the store and the sink as given, because what a test beside this package
// imports ends up in its users' go.sum. Those of package store/postgres run against a server, and
// examples/embed is a whole program.

// An order and the event about it are committed together, or neither is.
func ExampleWriter_Write() {
	var db *sql.DB                         // sql.Open("pgx", url)
	var writer outbox.Writer[outbox.SQLTx] // postgres.NewSQLWriter(outbox.WriterConfig{Source: "shop"})

	placeOrder := func(ctx context.Context, id string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
			return err
		}
		placed, err := outbox.NewEvent("order.placed", map[string]string{"order": id})
		if err != nil {
			return err
		}
		placed.AggregateType, placed.AggregateID = "Order", id // the events of one order stay in order
		if err := writer.Write(ctx, tx, placed); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = placeOrder
}

// A sink for a broker that this module does not know: a function.
func ExampleSinkFunc() {
	var db outbox.Database // postgres.Connect(ctx, url, postgres.Config{})

	sink := outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		body := d.AppendMessage(nil, outbox.CloudEvent)
		fmt.Println(d.Destination, d.ID, len(body)) // in its place: publish body, and return nil when the broker has it
		return nil
	})
	r, err := relay.New(db, sink, relay.Config{})
	if err != nil {
		log.Fatal(err)
	}
	_ = r.Run
}

// A dispatcher over event_outbox hands each event to the handler of its type. What goes wrong is
// named as its dead letter will be: nobody handles the type, or the payload is another. A handler
// that takes too long needs no Because.
func ExampleBecause() {
	var db outbox.Database // postgres.Connect(ctx, url, postgres.Config{})

	type handler func(ctx context.Context, payload json.RawMessage) error
	handlers := map[string]handler{
		"invoice.created": func(_ context.Context, payload json.RawMessage) error {
			var invoice struct{ Total int }
			if err := json.Unmarshal(payload, &invoice); err != nil {
				return outbox.Permanent(outbox.Because(outbox.ReasonDeserializationFailed, err))
			}
			fmt.Println("booked", invoice.Total)
			return nil
		},
	}
	dispatch := outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		handle, ok := handlers[d.Topic] // event_type
		if !ok {
			err := fmt.Errorf("no handler for %s", d.Topic)
			return outbox.Permanent(outbox.Because(outbox.ReasonHandlerMissing, err))
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second) // of one event
		defer cancel()
		return handle(ctx, d.Payload)
	})
	serve := func(ctx context.Context) error {
		r, err := relay.New(db, dispatch, relay.Config{
			Tables: []relay.Table{{Layout: outbox.EventOutbox()}},
		})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}
	_ = serve

	for _, e := range []outbox.Event{
		{Topic: "invoice.created", Payload: []byte(`{"total": 70}`)},
		{Topic: "invoice.created", Payload: []byte(`"seventy"`)},
		{Topic: "invoice.lost"},
	} {
		fmt.Println(dispatch(context.Background(), outbox.Delivery{Record: &outbox.Record{Event: e}}))
	}
	// Output:
	// booked 70
	// <nil>
	// DeserializationFailed: json: cannot unmarshal string into Go value of type struct { Total int }
	// HandlerMissing: no handler for invoice.lost
}

// answer classes a receiver's answer, as the Sink of a webhook would.
func answer(status int) error {
	err := fmt.Errorf("post event: status %d", status)
	switch {
	case status < 300:
		return nil
	case status == http.StatusGone:
		return outbox.Permanent(err) // a dead letter at once
	case status == http.StatusTooManyRequests:
		return outbox.RetryAfter(err, time.Minute) // as the receiver asked
	case status >= 500:
		return outbox.Unavailable(err) // costs the event no attempt
	}
	return err // tried again after a growing delay, relay.Config.MaxAttempts times
}

// What a Sink answers decides what becomes of an event.
func ExampleClassify() {
	fate := map[outbox.Class]string{
		outbox.ClassRetryable: "tried again", outbox.ClassRetryAfter: "tried again after", outbox.ClassPermanent: "dead",
		outbox.ClassUnavailable: "waits for the receiver",
	}
	for _, status := range []int{400, 410, 429, 503} {
		class, after := outbox.Classify(answer(status))
		fmt.Println(status, fate[class], after)
	}
	// Output:
	// 400 tried again 0s
	// 410 dead 0s
	// 429 tried again after 1m0s
	// 503 waits for the receiver 0s
}

// A bad event is refused before anything is sent, so that the transaction stays usable.
func ExampleEvent_Validate() {
	event := outbox.Event{Topic: "note.saved", Source: "notes", Payload: []byte(`{"text": "\u0000"}`)}
	err := event.Validate(outbox.DefaultMaxPayload)
	var field *outbox.FieldError
	fmt.Println(errors.Is(err, outbox.ErrInvalidEvent), errors.As(err, &field) && field.Field == "Payload")
	fmt.Println(err)
	// Output:
	// true true
	// event 0: Payload contains \u0000, which jsonb refuses (at byte 15)
}

// A sink that sends message by message and is told later what became of each: the order of keys is
// InOrder's.
func ExampleInOrder() {
	type answer func(err error)
	send := func(subject string, body []byte, answered answer) { // of a client: it does not wait
		fmt.Println("sent to", subject)
		go answered(nil)
	}
	publish := func(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
		return outbox.InOrder(ctx, batch, outbox.Sending{Messages: 1000, Send: func(i int, done func(outbox.Result)) {
			body := batch[i].AppendMessage(nil, outbox.CloudEvent)
			send(batch[i].Destination, body, func(err error) { done(outbox.Result{Err: err}) })
		}})
	}
	event := func(n int) outbox.Delivery {
		return outbox.Delivery{Destination: fmt.Sprint("orders.", n), Record: &outbox.Record{
			Event: outbox.Event{ID: [16]byte{byte(n)}}, Keyed: true, OrderKey: 42}}
	}
	for _, result := range publish(context.Background(), []outbox.Delivery{event(1), event(2)}) {
		fmt.Println(result.Err)
	}
	// Output:
	// sent to orders.1
	// sent to orders.2
	// <nil>
	// <nil>
}
