package sources

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/source"
	"github.com/outboxrelay/outbox/store/postgres"
)

const (
	database = "OUTBOX_TEST_DATABASE"
	server   = "OUTBOX_TEST_SERVER" // the broker's address; of a webhook, the consumer's own
	member   = "OUTBOX_TEST_MEMBER" // what it is called in a consumer group of Kafka
	dieAt    = "OUTBOX_TEST_DIE_AT" // the acknowledgement at which the consumer kills itself
)

// opened is a source, and what ends it.
type opened struct {
	source.Source
	close func()
}

// placed is an event's payload.
type placed struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

// consume is a consumer's process: a source and a group. It runs until its standard input ends.
func consume(ctx context.Context, broker string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	db, err := postgres.Connect(ctx, os.Getenv(database), postgres.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	pool, err := pgxpool.New(ctx, os.Getenv(database))
	if err != nil {
		return err
	}
	defer pool.Close()
	w, err := postgres.NewWriter(outbox.WriterConfig{Table: outbox.OutboxLog().Table, Strict: true})
	if err != nil {
		return err
	}
	from, err := sources[broker](os.Getenv(server))
	if err != nil {
		return err
	}
	defer from.close()
	g, err := group.New(db, postgres.Transactions(pool), group.Config{Name: "billing", MaxAttempts: 1000,
		Backoff: relay.Backoff{Base: 50 * time.Millisecond, Factor: 1, Cap: 50 * time.Millisecond},
		Relay:   relay.Config{LeaseTTL: 3 * time.Second}})
	if err != nil {
		return err
	}
	group.Handle(g, destination, bill)
	var both sync.WaitGroup
	both.Go(func() {
		if err := g.Run(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			stop()
		}
	})
	defer both.Wait()
	defer stop()
	return source.Run(ctx, &struck{Source: from, pool: pool}, postgres.Transactions(pool), w.Write,
		source.Config{Name: "orders"})
}

// bill has the effect of an event, unless it is of the key that fails for a while.
func bill(ctx context.Context, tx pgx.Tx, m group.Message[placed]) error {
	var held bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM held WHERE key = $1)", m.Data.Key).Scan(&held)
	if err == nil && held {
		err = fmt.Errorf("key %s fails for a while", m.Data.Key)
	}
	if err == nil {
		_, err = tx.Exec(ctx, "INSERT INTO effects (key, n) VALUES ($1, $2)", m.Data.Key, m.Data.N)
	}
	return err
}

// struck counts what is received, and kills its process between a commit and the acknowledgement.
type struck struct {
	source.Source
	pool *pgxpool.Pool
	acks atomic.Int64
}

func (s *struck) Receive(ctx context.Context) (source.Batch, error) {
	batch, err := s.Source.Receive(ctx)
	if err != nil {
		return batch, err
	}
	if _, err := s.pool.Exec(ctx, "INSERT INTO received (messages) VALUES ($1)", len(batch.Messages)); err != nil {
		return source.Batch{}, err
	}
	ack := batch.Ack
	batch.Ack = func(ctx context.Context) error {
		if fmt.Sprint(s.acks.Add(1)) == os.Getenv(dieAt) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		return ack(ctx)
	}
	return batch, nil
}
