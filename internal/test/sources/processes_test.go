package sources

import (
	"context"
	"fmt"
	"io"
	"os"
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
	part     = "OUTBOX_TEST_PART" // of parts
	kind     = "OUTBOX_TEST_BROKER"
	database = "OUTBOX_TEST_DATABASE"
	server   = "OUTBOX_TEST_SERVER" // the broker's address; of a webhook, the consumer's own
	member   = "OUTBOX_TEST_MEMBER" // what it is called in a consumer group of Kafka
)

// parts are the processes between a producer and an effect.
var parts = map[string]func(ctx context.Context, db *postgres.DB, pool *pgxpool.Pool) error{
	"relay": send, "source": receive, "group": handle}

// opened is the source of a broker, and what ends it.
type opened struct {
	source.Source
	close func()
}

// placed is an event's payload.
type placed struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

// dies says that the process is to kill itself between the next commit and its acknowledgement.
var dies atomic.Bool

// play is a process. It runs until its standard input ends; a line there is for dies.
func play(ctx context.Context, name string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		n, _ := os.Stdin.Read(make([]byte, 1))
		dies.Store(n == 1)
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
	return parts[name](ctx, db, pool)
}

// soon tries again without end: what fails here does so because something was killed, or a key is
// held.
var soon = relay.Backoff{Base: 50 * time.Millisecond, Factor: 2, Cap: time.Second}

const (
	attempts = 1_000_000
	lease    = 3 * time.Second
)

// send is the producer's relay.
func send(ctx context.Context, db *postgres.DB, _ *pgxpool.Pool) error {
	sink, err := sinks[os.Getenv(kind)](ctx, os.Getenv(server))
	if err != nil {
		return err
	}
	table := relay.Table{Layout: outbox.OutboxEvents()}
	if way := ways[os.Getenv(kind)]; way != "" {
		if table.Destination, err = outbox.ParseTemplate(way); err != nil {
			return err
		}
	}
	r, err := relay.New(db, sink, relay.Config{Tables: []relay.Table{table},
		MaxAttempts: attempts, Backoff: soon, LeaseTTL: lease})
	if err != nil {
		return err
	}
	return r.Run(ctx)
}

// receive writes what the broker has into the consumer's log.
func receive(ctx context.Context, _ *postgres.DB, pool *pgxpool.Pool) error {
	w, err := postgres.NewWriter(outbox.WriterConfig{Table: outbox.OutboxLog().Table, Strict: true})
	if err != nil {
		return err
	}
	from, err := sources[os.Getenv(kind)](os.Getenv(server))
	if err != nil {
		return err
	}
	defer from.close()
	counting := &struck{Source: from.Source, pool: pool}
	write := func(ctx context.Context, tx pgx.Tx, events ...outbox.Event) error {
		counting.written = len(events)
		return w.Write(ctx, tx, events...)
	}
	return source.Run(ctx, counting, postgres.Transactions(pool), write, source.Config{Name: "orders"})
}

// struck counts what has come again, and kills its process between a commit and the
// acknowledgement.
type struck struct {
	source.Source
	pool    *pgxpool.Pool
	written int // of the last batch
}

func (s *struck) Receive(ctx context.Context) (source.Batch, error) {
	batch, err := s.Source.Receive(ctx)
	if err != nil {
		return batch, err
	}
	s.written = 0
	ack := batch.Ack
	batch.Ack = func(ctx context.Context) error {
		if dies.Load() {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		if copies := len(batch.Messages) - s.written; copies > 0 { // a database that is away may forget some
			_, _ = s.pool.Exec(ctx, "INSERT INTO again (messages) VALUES ($1)", copies)
		}
		return ack(ctx)
	}
	return batch, nil
}

// handle has the effects.
func handle(ctx context.Context, db *postgres.DB, pool *pgxpool.Pool) error {
	g, err := group.New(db, postgres.Transactions(pool), group.Config{Name: "billing", MaxAttempts: attempts,
		Backoff: soon, Relay: relay.Config{LeaseTTL: lease, Observer: copies{pool}}})
	if err != nil {
		return err
	}
	group.HandleBatch(g, destination, bill)
	return g.Run(ctx)
}

// bill has the effects of some events, but for those of a key that fails for a while.
func bill(ctx context.Context, tx pgx.Tx, ms []group.Message[placed]) error {
	keys, ns := make([]string, len(ms)), make([]int, len(ms))
	for i, m := range ms {
		keys[i], ns[i] = m.Data.Key, m.Data.N
	}
	var held []string
	err := tx.QueryRow(ctx, "SELECT array_agg(key) FROM held WHERE key = ANY($1)", keys).Scan(&held)
	if err != nil {
		return err
	}
	failed := group.Failures{}
	for i, key := range keys {
		for _, one := range held {
			if key == one {
				failed[i] = fmt.Errorf("key %s fails for a while", key)
			}
		}
	}
	if len(failed) > 0 {
		return failed
	}
	_, err = tx.Exec(ctx, "INSERT INTO effects (key, n) SELECT * FROM unnest($1::text[], $2::int[])", keys, ns)
	return err
}

// copies counts what the group has refused as a copy.
type copies struct{ pool *pgxpool.Pool }

func (c copies) ObserveBatch(r outbox.BatchReport) {
	if r.Duplicates > 0 {
		_, _ = c.pool.Exec(context.Background(), "INSERT INTO refused (messages) VALUES ($1)", r.Duplicates)
	}
}

func (copies) ObserveRemoved(string, string, int) {}

func (copies) ObserveRun(string, error) {}
