// Package orders is an Encore service that writes its events in the transaction of its data, in the
// database whose migrations stand in migrations/. They are its own and Outbox's, in one sequence.
//
// It guarantees what package outbox does: an order that is committed is announced on the topic, at
// least once. It does not guarantee that this is at once: the cron job looks every minute, and
// delivers for most of it.
package orders

import (
	"context"
	"time"

	"encore.dev/cron"
	"encore.dev/pubsub"
	"encore.dev/rlog"
	"encore.dev/storage/sqldb"

	"github.com/outboxrelay/outbox/examples/encore/delivery"
)

var db = sqldb.NewDatabase("orders", sqldb.DatabaseConfig{Migrations: "./migrations"})

// Placed announces the orders. Encore's topics deliver at least once, as a relay does: a consumer
// knows a copy by ID.
var Placed = pubsub.NewTopic[*Event]("order-placed", pubsub.TopicConfig{DeliveryGuarantee: pubsub.AtLeastOnce})

// Event is an event of the outbox as Encore's topics carry it.
type Event struct {
	ID      string
	Topic   string
	Payload string
}

// PlaceParams is the request of Place.
type PlaceParams struct{ Total int64 }

// PlaceResponse is the answer of Place.
type PlaceResponse struct{ ID int64 }

// Place places an order.
//
//encore:api public method=POST path=/orders
func Place(ctx context.Context, p *PlaceParams) (*PlaceResponse, error) {
	tx, err := db.Stdlib().BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // after Commit it does nothing
	id, err := delivery.Place(ctx, tx, p.Total)
	if err != nil {
		return nil, err
	}
	return &PlaceResponse{id}, tx.Commit()
}

// Where `outbox relay` cannot run beside the application, this delivers: any number of instances
// share the work.
var _ = cron.NewJob("deliver", cron.JobConfig{Title: "Deliver events", Every: cron.Minute, Endpoint: Deliver})

// Deliver publishes what is undelivered, and what comes in most of the next minute.
//
//encore:api private
func Deliver(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 50*time.Second)
	defer cancel()
	return delivery.Run(ctx, sqldb.Driver(db), func(ctx context.Context, m delivery.Message) error {
		_, err := Placed.Publish(ctx, &Event{m.ID, m.Topic, m.Payload})
		return err
	})
}

var _ = pubsub.NewSubscription(Placed, "confirm", pubsub.SubscriptionConfig[*Event]{
	Handler: func(_ context.Context, e *Event) error {
		rlog.Info("confirm order", "event", e.ID, "order", e.Payload)
		return nil
	},
})
