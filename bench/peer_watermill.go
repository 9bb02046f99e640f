package main

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	watermessage "github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
)

// watermillQueue is watermill-sql with its queue schema, which deletes what is acknowledged, in
// batches of 1000. Its topic is the table watermill_queue.
var watermillQueue = side{
	name: "watermill-sql, queue", kind: peer,
	setup: func(_ context.Context, s *servers) error {
		return watermillTables(s, "queue", queueSchema, queueOffsets)
	},
	tables: []string{"watermill_queue"},
	fill: `INSERT INTO watermill_queue (uuid, payload, metadata)
		SELECT gen_random_uuid(), json_build_object('n', i, 'pad', repeat('x', 475)), '{}'
		  FROM generate_series(1, $1::int) i`,
	busy: "SELECT EXISTS (SELECT FROM watermill_queue)",
	serve: func(_ context.Context, s *servers, until context.Context) error {
		return forward(s, "queue", queueSchema, queueOffsets, until)
	},
	opens: watermillWriter,
}

// watermillOffsets is watermill-sql with its default schema: a log, and the position of its reader.
var watermillOffsets = side{
	name: "watermill-sql, offsets", kind: peer,
	setup:  func(_ context.Context, s *servers) error { return watermillTables(s, "log", logSchema, logOffsets) },
	tables: []string{"watermill_log", "watermill_offsets_log"},
	fill: `INSERT INTO watermill_log (uuid, payload, metadata, transaction_id)
		SELECT gen_random_uuid(), json_build_object('n', i, 'pad', repeat('x', 475)), '{}', pg_current_xact_id()
		  FROM generate_series(1, $1::int) i`,
	busy: `SELECT (SELECT max("offset") FROM watermill_log) > (SELECT offset_acked FROM watermill_offsets_log)`,
	serve: func(_ context.Context, s *servers, until context.Context) error {
		return forward(s, "log", logSchema, logOffsets, until)
	},
}

var (
	queueSchema  = watermillsql.PostgreSQLQueueSchema{SubscribeBatchSize: batch}
	queueOffsets = watermillsql.PostgreSQLQueueOffsetsAdapter{DeleteOnAck: true}
	logSchema    = watermillsql.DefaultPostgreSQLSchema{SubscribeBatchSize: batch}
	logOffsets   = watermillsql.DefaultPostgreSQLOffsetsAdapter{}
)

func watermillSubscriber(
	s *servers, schema watermillsql.SchemaAdapter, offsets watermillsql.OffsetsAdapter,
) (*watermillsql.Subscriber, error) {
	return watermillsql.NewSubscriber(watermillsql.BeginnerFromPgx(s.app), watermillsql.SubscriberConfig{
		SchemaAdapter: schema, OffsetsAdapter: offsets, PollInterval: 10 * time.Millisecond,
	}, watermill.NopLogger{})
}

func watermillTables(
	s *servers, topic string, schema watermillsql.SchemaAdapter, offsets watermillsql.OffsetsAdapter,
) error {
	subscriber, err := watermillSubscriber(s, schema, offsets)
	if err != nil {
		return err
	}
	return subscriber.SubscribeInitialize(topic)
}

// forward publishes what a subscriber of the topic gets. It hands out a message when the one before
// is acknowledged.
func forward(
	s *servers, topic string, schema watermillsql.SchemaAdapter, offsets watermillsql.OffsetsAdapter,
	until context.Context,
) error {
	subscriber, err := watermillSubscriber(s, schema, offsets)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(until, topic)
	if err != nil {
		return err
	}
	for m := range messages {
		if err := s.client.Publish(m.Context(), "order.placed", []byte(m.Payload)).Err(); err != nil {
			m.Nack()
		} else {
			m.Ack()
		}
	}
	return subscriber.Close()
}

func watermillWriter(_ context.Context, s *servers, _ ...func(string)) (writing, func(), error) {
	return func(ctx context.Context, n, key int) error {
		return pgx.BeginFunc(ctx, s.app, func(tx pgx.Tx) error {
			if err := business(ctx, tx, key); err != nil {
				return err
			}
			payload, err := body(n)
			if err != nil {
				return err
			}
			publisher, err := watermillsql.NewPublisher(watermillsql.TxFromPgx(tx),
				watermillsql.PublisherConfig{SchemaAdapter: queueSchema}, watermill.NopLogger{})
			if err != nil {
				return err
			}
			m := watermessage.NewMessage(watermill.NewUUID(), payload)
			m.SetContext(ctx)
			return publisher.Publish("queue", m)
		})
	}, func() {}, nil
}
