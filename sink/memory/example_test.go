package memory_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink/memory"
)

// What a relay publishes arrives on a Go channel. Given to relay.New as its sink, the hub is handed
// such deliveries by the relay.
func Example() {
	ctx := context.Background()
	hub := memory.New(memory.Config{Envelope: outbox.PayloadOnly})
	orders := make(chan []byte, 100) // with room: a listener that blocks holds up the relay
	_, stop := hub.Subscribe(ctx, "orders", memory.Func(func(message []byte) { orders <- message }))
	defer stop()

	placed := outbox.Delivery{Destination: "orders", Record: &outbox.Record{Event: outbox.Event{
		ID: uuid.MustParse("0198c2a4-5f3e-7c11-8a8e-2f5b6f0c9d01"), Payload: json.RawMessage(`{"order": 42}`),
	}}}
	again := hub.Publish(ctx, []outbox.Delivery{placed, placed})[1]
	fmt.Printf("%s, and the copy was refused: %v\n", <-orders, again.Duplicate)
	// Output: {"order": 42}, and the copy was refused: true
}
