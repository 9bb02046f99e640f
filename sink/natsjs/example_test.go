package natsjs_test

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/sink/natsjs"
)

// A relay's sink, with a stream for the subjects if there is none.
func ExampleOpen() {
	ctx := context.Background()
	sink, err := natsjs.Open(ctx, "nats://relay:password@nats-1.example,nats-2.example:4222", natsjs.Config{
		Create: natsjs.Stream{Name: "ORDERS", Subjects: []string{"orders.>"}, Replicas: 3},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sink.Close() }()
	var _ outbox.Sink = sink // for relay.New
}

// A program that has a connection gives it to the sink. It must keep nothing back while it is
// disconnected.
func ExampleNew() {
	conn, err := nats.Connect("nats://nats.example",
		nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.IgnoreAuthErrorAbort())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	sink, err := natsjs.New(conn, natsjs.Config{Binary: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = sink.Close() }()
}
