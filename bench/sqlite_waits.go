package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/memory"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// waits measures how long a producer waits for a file's write lock beside relays that have a backlog. Each relay and
// each producer has a handle of its own, which SQLite cannot tell from a process of its own. A thousand a batch is the
// default; a hundred means ten times as many transactions.
func waits(ctx context.Context, _ *servers, o options) error {
	fmt.Printf("%-40s %16s %12s %12s %12s %10s\n", "wait for the write lock, 10 s", "transactions", "p50 ms", "p99 ms",
		"longest ms", "failed")
	for _, relays := range []int{0, 1, 2, 4, 8} {
		if err := waitsBeside(ctx, relays, o); err != nil {
			return err
		}
	}
	return nil
}

func waitsBeside(ctx context.Context, relays int, o options) (err error) {
	f, err := newFile(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.remove()) }()
	path := filepath.Join(f.dir, "outbox.db")
	if _, err := f.db.Writes().ExecContext(ctx, fillFile, 3*o.rows, pad(475)); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	all, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	ended := make(chan error, relays)
	for range relays {
		running.Go(func() { ended <- relayBeside(all, path) })
	}
	library, err := sqlite.Connect(ctx, path, 1)
	if err != nil {
		return err
	}
	source := (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(),
		RawQuery: "_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=synchronous(FULL)"}).String()
	plain, err := sql.Open("sqlite", source)
	if err != nil {
		return err
	}
	for serving := 0; serving < relays; time.Sleep(10 * time.Millisecond) { // until they have shared the lanes out
		if err := f.db.Reads().QueryRowContext(ctx,
			"SELECT count(DISTINCT owner) FROM outbox_lanes").Scan(&serving); err != nil {
			return err
		}
	}
	producers := []*waiting{{name: "the library", begin: library.Begin},
		{name: "plain SQL", begin: func(ctx context.Context) (*sql.Tx, error) { return plain.BeginTx(ctx, nil) }}}
	var producing sync.WaitGroup
	for _, p := range producers {
		producing.Go(func() { p.produce(ctx, 10*time.Second) })
	}
	producing.Wait()
	stop()
	running.Wait()
	close(ended)
	for e := range ended {
		err = errors.Join(err, e)
	}
	for _, p := range producers {
		slices.Sort(p.waits)
		fmt.Printf("%-40s %16d %12.1f %12.1f %12.0f %10d\n", fmt.Sprintf("beside %d relays, %s", relays, p.name),
			len(p.waits), ms(percentile(p.waits, 0.5)), ms(percentile(p.waits, 0.99)),
			ms(p.waits[len(p.waits)-1]), p.failed)
	}
	return errors.Join(err, library.Close(), plain.Close())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// relayBeside serves the file's table through a handle of its own.
func relayBeside(ctx context.Context, path string) (err error) {
	db, err := sqlite.Connect(ctx, path, 4)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	relay, err := relay.New(db, memory.New(memory.Config{}), relay.Config{Logger: quiet, BatchRecords: 100})
	if err != nil {
		return err
	}
	return relay.Run(ctx)
}

// waiting is a producer with a short transaction every few milliseconds.
type waiting struct {
	name   string
	begin  func(context.Context) (*sql.Tx, error)
	waits  []time.Duration
	failed int
}

func (w *waiting) produce(ctx context.Context, length time.Duration) {
	for began := time.Now(); time.Since(began) < length && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		asked := time.Now()
		tx, err := w.begin(ctx)
		w.waits = append(w.waits, time.Since(asked))
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT INTO orders (customer, total) VALUES (1, 9.99)")
			err = errors.Join(err, tx.Commit())
		}
		if err != nil {
			w.failed++
		}
	}
}
