package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/memory"
	"github.com/outboxrelay/outbox/store/sqlite"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// embedded measures store/sqlite with its default durability (WAL, synchronous=FULL), on a file in the folder for
// temporary files. It needs no server.
func embedded(ctx context.Context, _ *servers, o options) error {
	if err := embeddedDrain(ctx, o); err != nil {
		return err
	}
	return embeddedProducer(ctx, o)
}

// file is a new SQLite file with the core tables.
type file struct {
	db  *sqlite.DB
	dir string
}

func newFile(ctx context.Context) (_ *file, err error) {
	f := &file{}
	if f.dir, err = os.MkdirTemp("", "outbox-bench"); err != nil {
		return nil, err
	}
	if f.db, err = sqlite.Create(ctx, filepath.Join(f.dir, "outbox.db"), 4); err != nil {
		return nil, errors.Join(err, os.RemoveAll(f.dir))
	}
	if err = migrations.Up(ctx, f.db.Writes(), "core"); err == nil {
		_, err = f.db.Writes().ExecContext(ctx, "CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, total REAL)")
	}
	if err != nil {
		return nil, errors.Join(err, f.remove())
	}
	return f, nil
}

func (f *file) remove() error { return errors.Join(f.db.Close(), os.RemoveAll(f.dir)) }

// fill is the table of the other benches: payloads of about 500 bytes over 1000 keys.
const fillFile = `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload)
	WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
	SELECT 'order.placed', strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'), 'Order', CAST(i % 1000 AS TEXT), 'shop', json_object('n', i, 'pad', ?2) FROM n`

// embeddedDrain compares the relay, delivering within the process, with the least statements that could drain the same
// table.
func embeddedDrain(ctx context.Context, o options) error {
	loops := []struct {
		name string
		run  func(ctx context.Context, f *file, rows int) error
	}{
		{"bare: the least SQL, no sink", bareFile},
		{"relay, 1 worker, sink/memory", relayFile(relay.Config{Workers: 1})},
		{"relay, 2 workers (default), sink/memory", relayFile(relay.Config{Workers: 2})},
	}
	rates, spent := make([][]float64, len(loops)), make([]float64, len(loops))
	for range o.rounds {
		for i, l := range loops {
			rate, cpu, err := drainFile(ctx, o.rows, l.run)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			rates[i], spent[i] = append(rates[i], rate), cpu
		}
	}
	fmt.Printf("%-56s %12s %8s   %s\n", fmt.Sprintf("drain of %d outbox_events", o.rows), "events/s", "ratio",
		"CPU µs an event")
	for i, l := range loops {
		fmt.Printf("%-56s %12.0f %8.2f   %.1f\n", l.name, median(rates[i]), median(rates[i])/median(rates[0]), spent[i])
	}
	fmt.Printf("%-56s %12s\n", "(wanted: 20,000)", "")
	return nil
}

// drainFile returns events per second, and the CPU microseconds of one.
func drainFile(
	ctx context.Context, rows int, run func(context.Context, *file, int) error,
) (rate, spent float64, err error) {
	f, err := newFile(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, f.remove()) }()
	if _, err := f.db.Writes().ExecContext(ctx, fillFile, rows, pad(475)); err != nil {
		return 0, 0, fmt.Errorf("fill: %w", err)
	}
	before, start := ownCPU(), time.Now()
	if err := run(ctx, f, rows); err != nil {
		return 0, 0, err
	}
	took := time.Since(start)
	var left int
	if err := f.db.Reads().QueryRowContext(ctx,
		"SELECT count(*) FROM outbox_events WHERE status <> 'SENT'").Scan(&left); err != nil || left > 0 {
		return 0, 0, errors.Join(err, fmt.Errorf("%d rows are left", left))
	}
	return float64(rows) / took.Seconds(), (ownCPU() - before).Seconds() / float64(rows) * 1e6, nil
}

// bareFile reads and marks what there is, by batches: no lanes, no guard, no blocked keys, prepared statements.
func bareFile(ctx context.Context, f *file, _ int) error {
	claim, err := f.db.Reads().PrepareContext(ctx,
		"SELECT position, event_topic, payload FROM outbox_events WHERE status IN ('NEW', 'FAILED') ORDER BY "+
			"position LIMIT ?1")
	if err != nil {
		return err
	}
	settle, err := f.db.Writes().PrepareContext(ctx,
		"UPDATE outbox_events SET status = 'SENT', processed_at = ?2 WHERE position = ?1 AND status IN ('NEW', 'FAILED')")
	if err != nil {
		return err
	}
	free := context.WithoutCancel(ctx) // no goroutine a statement, as the store does it
	for {
		positions, err := readFile(ctx, claim)
		if err != nil || len(positions) == 0 {
			return err
		}
		tx, err := f.db.Begin(ctx)
		if err != nil {
			return err
		}
		stmt := tx.StmtContext(free, settle) //nolint:sqlclosecheck // ends with its transaction
		now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		for _, p := range positions {
			if _, err := stmt.ExecContext(free, p, now); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
}

func readFile(ctx context.Context, claim *sql.Stmt) (positions []int64, err error) {
	rows, err := claim.QueryContext(ctx, batch)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var position int64
		var topic, payload string
		if err := rows.Scan(&position, &topic, &payload); err != nil {
			return nil, err
		}
		positions = append(positions, position)
	}
	return positions, rows.Err()
}

// relayFile is the product, as `outbox dev` runs it.
func relayFile(cfg relay.Config) func(context.Context, *file, int) error {
	return func(ctx context.Context, f *file, rows int) error {
		all, delivered := context.WithCancel(ctx)
		defer delivered()
		count := &countdown{done: delivered}
		count.left.Store(int64(rows))
		cfg.Logger, cfg.Observer = quiet, count
		cfg.Tables = []relay.Table{{Layout: outbox.OutboxEvents()}}
		cfg.Retention.After, cfg.LetterRetention.After = -1, -1
		relay, err := relay.New(f.db, memory.New(memory.Config{}), cfg)
		if err != nil {
			return err
		}
		return relay.Run(all)
	}
}

// countdown ends a run once everything has been settled.
type countdown struct {
	outbox.Observer // of what else a relay does: nothing calls it
	left            atomic.Int64
	done            context.CancelFunc
}

// ObserveBatch implements outbox.Observer.
func (c *countdown) ObserveBatch(r outbox.BatchReport) {
	if c.left.Add(int64(-r.Settled.Delivered)) == 0 {
		c.done()
	}
}

// ownCPU is the processor time that this process has spent.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// embeddedProducer is the other half: what an event costs a business transaction of one INSERT.
func embeddedProducer(ctx context.Context, o options) (err error) {
	f, err := newFile(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.remove()) }()
	writer, err := f.db.NewWriter(ctx, outbox.WriterConfig{Source: "shop"})
	if err != nil {
		return err
	}
	payload := map[string]string{"pad": pad(475)}
	transaction := func(events int) func(int64) error {
		return func(n int64) error {
			tx, err := f.db.Begin(ctx)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (customer, total) VALUES (?1, ?2)", n%1000, 9.99); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			all := make([]outbox.Event, events)
			for i := range all {
				if all[i], err = outbox.NewEvent("order.placed", payload); err != nil {
					return errors.Join(err, tx.Rollback())
				}
				all[i].AggregateType, all[i].AggregateID = "Order", fmt.Sprint(n)
			}
			if err := writer.Write(ctx, tx, all...); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}
	}
	const length = 2 * time.Second
	fmt.Printf("\n%-56s %12s %8s   %s\n", "producers", "tx/s", "ratio", "CPU µs a transaction")
	for _, writers := range []int{1, 16} {
		var base float64
		for _, events := range []int{0, 1, 100} {
			var rates []float64
			var spent float64
			for range o.rounds {
				before := ownCPU()
				rate, err := hammer(writers, length, transaction(events))
				if err != nil {
					return err
				}
				spent = (ownCPU() - before).Seconds() / (rate * length.Seconds()) * 1e6
				rates = append(rates, rate)
			}
			if events == 0 {
				base = median(rates)
			}
			fmt.Printf("%-56s %12.0f %8.2f   %.0f\n", fmt.Sprintf("%d writers, business INSERT and %d events", writers, events),
				median(rates), median(rates)/base, spent)
		}
	}
	return nil
}
