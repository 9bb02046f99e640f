package rabbitmq_test

import (
	"context"
	"fmt"
	"log"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink/rabbitmq"
)

// A relay gets the sink as any other. The queue of a destination without an exchange is made if it
// is missing.
func Example() {
	ctx := context.Background()
	sink, err := rabbitmq.Open(ctx, "amqp://user:password@localhost:5672/shop", rabbitmq.Config{Declare: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	var relay outbox.Sink = sink
	_ = relay
}

func ExampleDestination() {
	fmt.Println(rabbitmq.Destination("", "orders"))
	fmt.Println(rabbitmq.Destination("events", "order.placed"))
	fmt.Println(rabbitmq.Destination("", "a/b"))
	fmt.Println(rabbitmq.Destination("a/b", "key"))
	// Output:
	// orders
	// events/order.placed
	// /a/b
	// a%2Fb/key
}
