package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // as "pgx"
	_ "github.com/lib/pq"              // as "postgres"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// producer writes events in a transaction of its own.
type producer func(ctx context.Context, events []outbox.Event) error

// TestProducersThroughPooler has each driver and mode write through PgBouncer in transaction mode,
// from more connections than the pooler has to the server. The table is that of
// docs/operations/poolers.md. Those that prepare statements by name fail (PgBouncer before 1.21
// knows nothing of them); what they acknowledge is there all the same.
func TestProducersThroughPooler(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	// Which lib/pq sends.
	_, through := testenv.Pooled(t,
		map[string]string{"default_pool_size": "4", "ignore_startup_parameters": "extra_float_digits"})
	direct := testenv.Database(t)
	noError(t, migrations.Up(t.Context(), direct, "core"))
	url := through(direct)
	for _, p := range []struct {
		name  string
		open  func(*testing.T) producer
		fails bool
	}{
		{"pgx, its default (cache_statement)", byPgx(url, 0), true},
		{"pgx, cache_describe", byPgx(url, pgx.QueryExecModeCacheDescribe), false},
		{"pgx, describe_exec", byPgx(url, pgx.QueryExecModeDescribeExec), false},
		{"pgx, exec", byPgx(url, pgx.QueryExecModeExec), false},
		{"pgx, simple_protocol", byPgx(url, pgx.QueryExecModeSimpleProtocol), false},
		{"pgx, postgres.Adapt", byPgx(url, 0, postgres.Adapt), false},
		{"database/sql with pgx, its default", bySQL("pgx", url), true},
		{"database/sql with pgx, cache_describe", bySQL("pgx", url+"&default_query_exec_mode=cache_describe"), false},
		{"database/sql with pgx, exec", bySQL("pgx", url+"&default_query_exec_mode=exec"), false},
		{"database/sql with pgx, simple_protocol", bySQL("pgx", url+"&default_query_exec_mode=simple_protocol"), false},
		{"database/sql with lib/pq", bySQL("postgres", url), false},
		{"database/sql with lib/pq, binary_parameters", bySQL("postgres", url+"&binary_parameters=yes"), false},
	} {
		t.Run(p.name, func(t *testing.T) {
			acknowledged, failures := producePooled(t, p.open(t))
			there := column(t, direct, "SELECT id::text FROM outbox_events WHERE event_topic = $1", t.Name())
			missing, more := len(acknowledged), 0
			for _, id := range there {
				if acknowledged[id] {
					missing--
				} else {
					more++
				}
			}
			if missing > 0 || more > 0 {
				t.Errorf("%d acknowledged events are not there, %d are that were not acknowledged", missing, more)
			}
			t.Logf("%d events acknowledged, %d transactions failed", len(acknowledged), len(failures))
			switch {
			case !p.fails && len(failures) > 0:
				t.Errorf("the first of %d failures: %v", len(failures), failures[0])
			case p.fails && len(failures) == 0:
				t.Error("nothing failed: the documents say that this mode does not work")
			case p.fails && !strings.Contains(failures[0].Error(), "prepared statement"):
				t.Errorf("failed for another reason: %v", failures[0])
			}
		})
	}
}

// producePooled returns the ids of the events whose commit was acknowledged, and the other
// transactions' errors.
func producePooled(t *testing.T, write producer) (acknowledged map[string]bool, failures []error) {
	t.Helper()
	acknowledged = map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			for n := range 40 {
				events := make([]outbox.Event, 1+n%3)
				for i := range events {
					e, err := outbox.NewEvent(t.Name(), "Grüße 日本")
					if err != nil {
						t.Error(err)
						return
					}
					e.AggregateType, e.AggregateID = "Order", fmt.Sprint(k)
					events[i] = e
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				err := write(ctx, events)
				cancel()
				mu.Lock()
				if err != nil {
					failures = append(failures, err)
				} else {
					for _, e := range events {
						acknowledged[e.ID.String()] = true
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return acknowledged, failures
}

// byPgx writes in turn with Write, whose transaction has a statement before and one after, and with
// InTx, whose INSERT travels with the COMMIT.
func byPgx(url string, mode pgx.QueryExecMode, change ...func(*pgxpool.Config)) func(*testing.T) producer {
	return func(t *testing.T) producer {
		cfg, err := pgxpool.ParseConfig(url)
		noError(t, err)
		cfg.MaxConns = 8
		if mode != 0 {
			cfg.ConnConfig.DefaultQueryExecMode = mode
		}
		for _, f := range change {
			f(cfg)
		}
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		noError(t, err)
		t.Cleanup(pool.Close)
		w, err := postgres.NewWriter(outbox.WriterConfig{Source: "test", Strict: true})
		noError(t, err)
		return func(ctx context.Context, events []outbox.Event) error {
			if len(events) == 2 {
				return w.InTx(ctx, pool, func(tx pgx.Tx) ([]outbox.Event, error) {
					_, err := tx.Exec(ctx, "SELECT $1::text", "business")
					return events, err
				})
			}
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "SELECT $1::text", "business"); err != nil {
					return err
				}
				return w.Write(ctx, tx, events...)
			})
		}
	}
}

func bySQL(driver, url string) func(*testing.T) producer {
	return func(t *testing.T) producer {
		db, err := sql.Open(driver, url)
		noError(t, err)
		db.SetMaxOpenConns(8)
		db.SetMaxIdleConns(8)
		t.Cleanup(func() { _ = db.Close() })
		w, err := postgres.NewSQLWriter(outbox.WriterConfig{Source: "test", Strict: true})
		noError(t, err)
		return func(ctx context.Context, events []outbox.Event) error {
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			if _, err = tx.ExecContext(ctx, "SELECT $1::text", "business"); err == nil {
				err = w.Write(ctx, tx, events...)
			}
			if err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}
	}
}

// column returns a column of text.
func column(t *testing.T, url, statement string, args ...any) []string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	noError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	rows, err := conn.Query(t.Context(), statement, args...)
	noError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[string])
	noError(t, err)
	return values
}
