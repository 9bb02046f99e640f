package main

import (
	"context"
	"database/sql"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	oagudo "github.com/oagudo/outbox"
	"github.com/redis/go-redis/v9"
)

// oagudoReader is github.com/oagudo/outbox with one reader, which is all that it allows without
// copies, and large batches.
var oagudoReader = side{
	name: "oagudo/outbox", kind: peer,
	// The table of its README, by another name.
	setup: func(ctx context.Context, s *servers) error {
		return s.exec(ctx, `CREATE TABLE oagudo (id UUID PRIMARY KEY, created_at TIMESTAMP WITH TIME ZONE NOT NULL,
			scheduled_at TIMESTAMP WITH TIME ZONE NOT NULL, metadata BYTEA, payload BYTEA NOT NULL,
			times_attempted INTEGER NOT NULL)`,
			"CREATE INDEX ON oagudo (created_at)", "CREATE INDEX ON oagudo (scheduled_at)")
	},
	tables: []string{"oagudo"},
	fill: `INSERT INTO oagudo SELECT gen_random_uuid(), now() + i * interval '1 microsecond', now(), NULL,
		convert_to(jsonb_build_object('n', i, 'pad', repeat('x', 475))::text, 'UTF8'), 0 FROM generate_series(1, $1::int) i`,
	busy: "SELECT EXISTS (SELECT FROM oagudo)",
	serve: func(_ context.Context, s *servers, until context.Context) error {
		db, err := s.standard()
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		reader := oagudo.NewReader(oagudoTable(db), oagudoPublisher{s.client}, oagudo.WithInterval(10*time.Millisecond),
			oagudo.WithReadBatchSize(10_000), oagudo.WithDeleteBatchSize(1000))
		reader.Start()
		<-until.Done()
		return reader.Stop(context.WithoutCancel(until))
	},
	opens: oagudoWriter(false),
}

// standard is a pool of database/sql for the same database.
func (c connections) standard() (*sql.DB, error) {
	db, err := sql.Open("pgx", c.url)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	return db, nil
}

func oagudoTable(db *sql.DB) *oagudo.DBContext {
	return oagudo.NewDBContext(db, oagudo.SQLDialectPostgres, oagudo.WithTableName("oagudo"))
}

type oagudoPublisher struct{ client *redis.Client }

func (p oagudoPublisher) Publish(ctx context.Context, m *oagudo.Message) error {
	return p.client.Publish(ctx, "order.placed", m.Payload).Err()
}

// oagudoWriter is its Writer. An optimistic one also publishes, right after the commit and in the
// writer's process.
func oagudoWriter(optimistic bool) opening {
	return func(_ context.Context, s *servers, _ ...func(string)) (writing, func(), error) {
		db, err := s.standard()
		if err != nil {
			return nil, nil, err
		}
		var options []oagudo.WriterOption
		if optimistic {
			options = append(options, oagudo.WithOptimisticPublisher(oagudoPublisher{s.client}))
		}
		w := oagudo.NewWriter(oagudoTable(db), options...)
		return func(ctx context.Context, n, key int) error {
			payload, err := body(n)
			if err != nil {
				return err
			}
			return w.WriteOne(ctx, oagudo.NewMessage(payload), func(ctx context.Context, tx oagudo.TxQueryer) error {
				_, err := tx.ExecContext(ctx, businessInsert, key, 9.99)
				return err
			})
		}, func() { _ = db.Close() }, nil
	}
}
