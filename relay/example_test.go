package relay_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
)

// The store and the sink are given, because what a test beside this package imports ends up in its
// users' go.sum.

// A relay inside a service serves the tables of the migration sets, and removes what was delivered
// a month ago. examples/embed is the whole program.
func ExampleNew() {
	var db outbox.Database // postgres.Connect(ctx, url, postgres.Config{})
	var sink outbox.Sink   // redispubsub.Open(ctx, url, redispubsub.Config{})

	r, err := relay.New(db, sink, relay.Config{Retention: outbox.Retention{After: 30 * 24 * time.Hour}})
	if err != nil {
		log.Fatal(err)
	}
	serve := func(ctx context.Context) error {
		return r.Run(ctx) // until ctx ends; then it finishes its batch and gives up its lanes
	}
	_ = serve
}

// Two tables, two sinks: billing has a table of its own shape, and a sink of its own.
func ExampleTable() {
	var db outbox.Database
	var redis, kafka outbox.Sink

	billing := outbox.OutboxEvents()
	billing.Table = "billing.outbox_events"
	perTenant, err := outbox.ParseTemplate("billing.{tenant}")
	if err != nil {
		log.Fatal(err)
	}
	r, err := relay.New(db, redis, relay.Config{
		Sinks: map[string]outbox.Sink{"kafka": kafka},
		Tables: []relay.Table{
			{Layout: outbox.OutboxEvents()},
			{Layout: billing, Sink: "kafka", Destination: perTenant, MaxAttempts: 20},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	_ = r.Run
}

// An event that goes to several sinks: each has its own outcome, and one that is down delays no
// other.
func ExampleRoute() {
	var db outbox.Database       // postgres.Connect, or sqlite.Open
	var redis, kafka outbox.Sink // of packages below sink/

	orders, err := relay.ParseTarget("kafka:orders.{tenant}")
	if err != nil {
		panic(err)
	}
	rest, err := relay.ParseTarget("redis")
	if err != nil {
		panic(err)
	}
	routes := []relay.Route{
		{Topic: "order.*", To: []relay.Target{orders, rest}},
		{To: []relay.Target{rest}},
	}
	_, err = relay.New(db, nil, relay.Config{
		Sinks:  map[string]outbox.Sink{"redis": redis, "kafka": kafka},
		Tables: []relay.Table{{Layout: outbox.OutboxEvents(), Routes: routes}},
	})
	fmt.Println(err != nil) // the sinks of this example are nil

	addresses, err := relay.Addresses(routes, outbox.Event{Topic: "order.placed", TenantID: "acme"})
	fmt.Println(addresses, err)
	// Output:
	// true
	// [kafka:orders.acme redis:order.placed] <nil>
}
