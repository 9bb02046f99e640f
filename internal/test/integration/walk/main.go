// Command walk takes one event from Write to the sink's answer, and writes down which code that
// executes: built with -cover, in the folders idle (a relay with nothing to do), write and publish
// of a folder.
//
// Guaranteed: a relay with the defaults, on PostgreSQL, with a sink on Redis Pub/Sub.
//
// Not guaranteed: that the relay does nothing else in the same moment, such as renewing its lease.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/coverage"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/store/postgres"
)

func main() {
	if err := walk(context.Background(), os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "walk:", err)
		os.Exit(1)
	}
}

// watched is a sink that writes down what was executed by its answer.
type watched struct {
	outbox.Sink
	answered func()
}

func (w watched) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	results := w.Sink.Publish(ctx, batch)
	w.answered()
	return results
}

func walk(ctx context.Context, database, redis, folder string) (err error) {
	db, err := postgres.Connect(ctx, database, postgres.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	opened, err := redispubsub.Open(ctx, redis, redispubsub.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	published := make(chan error, 1)
	var answers atomic.Int32
	sink := watched{opened, func() {
		switch answers.Add(1) {
		case 1:
			published <- nil
		case 2:
			published <- write(folder, "publish")
		}
	}}
	r, err := relay.New(db, sink, relay.Config{Tables: []relay.Table{{Layout: outbox.OutboxEvents()}}})
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	var running errgroup.Group
	running.Go(func() error { return r.Run(ctx) })
	defer func() { stop(); err = errors.Join(err, running.Wait()) }()
	for !r.Health().Ready {
		if ctx.Err() != nil {
			return fmt.Errorf("the relay is not ready: %s", r.Health().Reason)
		}
		time.Sleep(10 * time.Millisecond)
	}
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	if err != nil {
		return err
	}
	// The first one makes statements.
	if err := errors.Join(placeOrder(ctx, conn, writer, func() error { return nil }), <-published); err != nil {
		return err
	}
	time.Sleep(time.Second)
	if err := coverage.ClearCounters(); err != nil {
		return err
	}
	time.Sleep(time.Second)
	if err := write(folder, "idle"); err != nil {
		return err
	}
	if err := placeOrder(ctx, conn, writer, func() error { return write(folder, "write") }); err != nil {
		return err
	}
	select {
	case err := <-published:
		return err
	case <-ctx.Done():
		return errors.New("the event was not published")
	}
}

// placeOrder writes one event, as a producer does. written is called before the commit, after which
// the relay begins.
func placeOrder(ctx context.Context, conn *pgx.Conn, writer outbox.Writer[pgx.Tx], written func() error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := writer.Write(ctx, tx, outbox.Event{Topic: "order.placed", AggregateType: "Order", AggregateID: "42",
			Payload: []byte(`{"total":70}`)}); err != nil {
			return err
		}
		return written()
	})
}

// write writes down what was executed since the last time.
func write(folder, name string) error {
	folder = filepath.Join(folder, name)
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	return errors.Join(coverage.WriteMetaDir(folder), coverage.WriteCountersDir(folder), coverage.ClearCounters())
}
