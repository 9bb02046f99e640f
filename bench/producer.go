package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/store/postgres"
)

// producerLine is a way of writing a business row, alone or with an event.
type producerLine struct {
	name, base string // base is the line without an event that has as many round trips
	kind       kind
	indexes    pgmigrations.IndexSet
	tables     []string
	opens      opening
}

// The lines without an event. "Spare" has a round trip more that does nothing, where an event's
// INSERT would have it.
const (
	plainOne      = "no event, 1 round trip"
	plainThree    = "no event, 3 round trips"
	plainFour     = "no event, 4 round trips"
	plainStandard = "no event, 4 round trips, database/sql"
)

func producerLines() []producerLine {
	events := []string{outboxTables[0].layout.Table}
	return []producerLine{
		{plainOne, plainOne, limit, "", nil, plainBatch},
		{plainThree, plainThree, limit, "", nil, plainTransaction(false)},
		{plainFour, plainFour, limit, "", nil, plainTransaction(true)},
		{plainStandard, plainStandard, limit, "", nil, plainSQL},
		{"ours, Queue", plainOne, ours, lean, events, writeQueued},
		{"ours, InTx", plainThree, ours, lean, events, writeInTx},
		{"ours, InTx, strict order", plainThree, ours, lean, events, writeInTxStrict},
		{"ours, Write", plainFour, ours, lean, events, writeAlone},
		{"ours, Write, one tenant", plainFour, ours, lean, events, withoutTenants(writeAlone)},
		{"ours, Write, ADR-004's indexes", plainFour, ours, adr, events, writeAlone},
		{"ours, Write, outbox_log", plainFour, ours, "", []string{outboxLog.layout.Table, "outbox_log_positions"}, writeLog},
		{"oagudo/outbox", plainStandard, peer, "", oagudoReader.tables, oagudoReader.opens},
		{"watermill-sql, queue", plainFour, peer, "", watermillQueue.tables, watermillQueue.opens},
		{"River", plainFour, peer, "", riverTuned.tables, riverTuned.opens},
	}
}

// producer measures what an event costs a business transaction of one INSERT, by 16 writers.
func producer(ctx context.Context, s *servers, o options, found *figures) error {
	var tasks []task
	for _, l := range producerLines() {
		tasks = append(tasks, task{l.name, l.base, l.kind, func(ctx context.Context, into *line) error {
			return s.produce(ctx, l, o.writing, into)
		}})
	}
	if err := found.measure(ctx, o, tasks); err != nil {
		return err
	}
	return s.manyInOneCall(ctx, o)
}

func (s *servers) produce(ctx context.Context, l producerLine, length time.Duration, into *line) error {
	one := side{tables: append([]string{"orders"}, l.tables...), indexes: l.indexes}
	ctx, cancel := context.WithTimeout(ctx, length+measurementLimit)
	defer cancel()
	if err := s.ready(ctx, one, 0); err != nil {
		return err
	}
	write, closeWriter, err := l.opens(ctx, s)
	if err != nil {
		return err
	}
	defer closeWriter()
	before, err := s.counted(ctx)
	if err != nil {
		return err
	}
	spent := s.cpu()
	rate, err := hammer(16, length, func(n int64) error { return write(ctx, int(n), int(n%1000)) })
	if err != nil {
		return err
	}
	spent = s.cpu().minus(spent)
	after, err := s.counted(ctx)
	if err != nil {
		return err
	}
	calls := rate * length.Seconds()
	into.add("rate", rate)
	into.add("cpu_postgres", spent.postgres/calls*1e6)
	into.add("cpu_writers", spent.self/calls*1e6)
	into.add("wal", (after.wal-before.wal)/calls)
	return s.empty(ctx, one)
}

// plainBatch is one INSERT in a pgx.Batch, which PostgreSQL makes a transaction.
func plainBatch(_ context.Context, s *servers, _ ...func(string)) (writing, func(), error) {
	return func(ctx context.Context, _, key int) error {
		var batch pgx.Batch
		batch.Queue(businessInsert, key, 9.99)
		return s.app.SendBatch(ctx, &batch).Close()
	}, func() {}, nil
}

// plainTransaction is BEGIN, INSERT and COMMIT, with an empty statement before COMMIT if a spare
// round trip is asked for.
func plainTransaction(spare bool) opening {
	return func(_ context.Context, s *servers, _ ...func(string)) (writing, func(), error) {
		return func(ctx context.Context, _, key int) error {
			return pgx.BeginFunc(ctx, s.app, func(tx pgx.Tx) error {
				if err := business(ctx, tx, key); err != nil || !spare {
					return err
				}
				_, err := tx.Exec(ctx, "-- spare")
				return err
			})
		}, func() {}, nil
	}
}

// plainSQL is the one with a spare round trip, by database/sql.
func plainSQL(_ context.Context, s *servers, _ ...func(string)) (writing, func(), error) {
	db, err := s.standard()
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, _, key int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after a commit
		if _, err := tx.ExecContext(ctx, businessInsert, key, 9.99); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "-- spare"); err != nil {
			return err
		}
		return tx.Commit()
	}, func() { _ = db.Close() }, nil
}

// withoutTenants is for a table of one tenant, without the index by which several share a claim.
func withoutTenants(opens opening) opening {
	return func(ctx context.Context, s *servers, wake ...func(string)) (writing, func(), error) {
		switchTo := func(set pgmigrations.IndexSet) error {
			_, err := pgmigrations.SwitchIndexes(ctx, s.url, set, func(string) {})
			return err
		}
		if err := switchTo(pgmigrations.OneTenant); err != nil {
			return nil, nil, err
		}
		write, closeWriter, err := opens(ctx, s, wake...)
		return write, func() {
			closeWriter()
			if err := switchTo(pgmigrations.TenantIndex); err != nil {
				panic(err) // every later line would be measured without the index
			}
		}, err
	}
}

// hammer calls run from n goroutines and returns calls per second.
func hammer(n int, length time.Duration, run func(int64) error) (float64, error) {
	var calls atomic.Int64
	var running errgroup.Group
	start := time.Now()
	for range n {
		running.Go(func() error {
			for time.Since(start) < length {
				if err := run(calls.Add(1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := running.Wait()
	return float64(calls.Load()) / time.Since(start).Seconds(), err
}

// manyInOneCall measures Write with 100 events.
func (s *servers) manyInOneCall(ctx context.Context, o options) error {
	const events, calls = 100, 200
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	if err != nil {
		return err
	}
	var per series
	for range o.rounds {
		var spent time.Duration
		for c := range calls {
			batch := make([]outbox.Event, events)
			for i := range batch {
				if batch[i], err = event(c*events+i, c*events+i); err != nil {
					return err
				}
			}
			if err := pgx.BeginFunc(ctx, s.app, func(tx pgx.Tx) error {
				start := time.Now()
				defer func() { spent += time.Since(start) }()
				return w.Write(ctx, tx, batch...)
			}); err != nil {
				return err
			}
		}
		per.add(float64(spent.Microseconds()) / (events * calls))
	}
	fmt.Printf("100 events in one Write call: %.1f µs each  (wanted: 15)\n", per.median())
	return s.exec(ctx, "TRUNCATE outbox_events, orders")
}
