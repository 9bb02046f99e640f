package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/store/postgres"
)

// idleChild is a relay with its defaults, of all tables that there are.
const idleChild = "idle"

// idleSettles is how long a relay has been idle before it is looked at. Connections that were
// needed at its start are closed after half a minute, its first retention comes after one, and
// autovacuum looks at what is new in the minute after that.
const idleSettles = 165 * time.Second

// idle measures what a relay costs while nothing happens, at a PostgreSQL of its own with its
// defaults and pg_stat_statements. A checkpoint has the first change of each page written whole, so
// it is measured apart: by default one comes every five minutes.
func idle(ctx context.Context, s *servers, o options, found *figures) error {
	found.Rounds = 1
	all := append(slices.Clone(pgmigrations.Sets), "log")
	tables := found.line("outbox_events, event_outbox, crawl_outbox (wanted: 10, 5, 20, 1)", ours)
	andLog := found.line("these and outbox_log", ours)
	var both errgroup.Group // side by side, each with a PostgreSQL of its own
	both.Go(func() error { return s.idles(ctx, pgmigrations.Sets, o, tables) })
	both.Go(func() error { return s.idles(ctx, all, o, andLog) })
	return both.Wait()
}

func (s *servers) idles(ctx context.Context, sets []string, o options, into *line) (err error) {
	own, err := testenv.StartPostgres(ctx, testenv.PostgresConfig{Fsync: true, Settings: map[string]string{
		"shared_preload_libraries": "pg_stat_statements", "checkpoint_timeout": "1h",
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, own.Stop()) }()
	url := own.URL("postgres")
	if err := pgmigrations.Up(ctx, url, sets...); err != nil {
		return err
	}
	db, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.Exec(ctx, "CREATE EXTENSION pg_stat_statements"); err != nil {
		return err
	}
	relay, err := startChild(ctx, idleChild, databaseVariable+"="+url, socketVariable+"="+s.redis.Socket())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, relay.stop()) }()
	measured := &servers{postgres: own, redis: s.redis, child: relay}
	window := time.Duration(o.seconds) * time.Second
	var looks [4]look // at the beginning and the end of both windows
	for i, wait := range []time.Duration{idleSettles, window, 0, window} {
		if i == 2 {
			if _, err := db.Exec(ctx, "CHECKPOINT"); err != nil {
				return err
			}
		}
		time.Sleep(wait)
		if looks[i], err = measured.look(ctx, db); err != nil {
			return err
		}
	}
	const day, checkpoints = 86_400, 288
	before, after, seconds := looks[0], looks[1], window.Seconds()
	written := after.wal - before.wal
	pages := max(looks[3].wal-looks[2].wal-written, 0)
	spent := after.spent.minus(before.spent)
	into.add("statements", (after.statements-before.statements)/seconds)
	into.add("connections", float64(after.connections))
	into.add("log", (written/seconds*day+pages*checkpoints)/1e6)
	into.add("cpu_relay", spent.child/seconds*100)
	into.add("cpu_postgres", spent.postgres/seconds*100)
	return nil
}

// look is what was counted so far: bytes of log, statements but for those of this, the relay's
// connections, and processor time.
type look struct {
	wal, statements float64
	connections     int
	spent           cpu
}

func (s *servers) look(ctx context.Context, db *pgxpool.Pool) (l look, err error) {
	err = db.QueryRow(ctx, `SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
		(SELECT sum(calls) FROM pg_stat_statements WHERE query NOT LIKE '%pg_current_wal_insert_lsn%' AND query <> 'CHECKPOINT'),
		(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())`).Scan(
		&l.wal, &l.statements, &l.connections)
	l.spent = s.cpu()
	return l, err
}

// serveIdle runs the relay until its input ends.
func serveIdle(ctx context.Context) error {
	db, err := postgres.Connect(ctx, os.Getenv(databaseVariable), postgres.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	sink, err := redispubsub.Open(ctx, "unix://"+os.Getenv(socketVariable), redispubsub.Config{})
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close() }()
	relay, err := relay.New(db, sink, relay.Config{Logger: quiet})
	if err != nil {
		return err
	}
	until, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	fmt.Println("ready")
	return relay.Run(until)
}
