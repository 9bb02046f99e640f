package sinks_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/sinks"
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/memory"
)

// printer is a sink of one's own: a function, and that it always works.
type printer struct{ outbox.SinkFunc }

func (printer) Abilities() outbox.Abilities { return outbox.Abilities{} }

func (printer) Close() error { return nil }

// A driver for URLs such as print:, beside one that comes with the library.
func Example() {
	own := sink.Driver{
		Schemes: []string{"print"},
		Example: "print: writes to stdout",
		Open: func(context.Context, string, sink.Options) (sink.Sink, error) {
			return printer{func(_ context.Context, d outbox.Delivery) error {
				_, err := fmt.Printf("%s: %s\n", d.Destination, d.Payload)
				return err
			}}, nil
		},
	}
	registry, err := sinks.NewRegistry(own, memory.Driver())
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	driver, err := registry.Find("print:")
	if err != nil {
		panic(err)
	}
	opened, err := driver.Open(ctx, "print:", sink.Options{})
	if err != nil {
		panic(err)
	}
	results := opened.Publish(ctx, []outbox.Delivery{
		{Destination: "order.placed", Record: &outbox.Record{Event: outbox.Event{Payload: []byte(`{"total": 12}`)}}},
	})
	fmt.Println("error:", errors.Join(results[0].Err, opened.Close()))
	_, err = registry.Find("redis://cache")
	fmt.Println(err)
	// Output:
	// order.placed: {"total": 12}
	// error: <nil>
	// there is no sink for URLs of redis: want one of memory:, print:
}
