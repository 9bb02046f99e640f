package pgtable

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
)

func TestSinkContract(t *testing.T) {
	t.Parallel()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{})
	for _, tt := range []struct{ name, refusing string }{
		{"a table that is not there", "missing"}, {"a table that refuses each row", "refusing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.refusing == "missing" {
				tier.Full(t)
			}
			r := &receiver{Postgres: server, admin: connectAdmin(t, server.URL("postgres"))}
			exec(t, r.admin, "DROP TABLE IF EXISTS refusing")
			makeTables(t, r.admin, "refusing")
			exec(t, r.admin, "ALTER TABLE refusing ADD CONSTRAINT nothing_passes CHECK (topic = 'nothing')")
			// The role has the rights that the package comment lists.
			exec(t, r.admin, `DO $$ BEGIN CREATE ROLE relay LOGIN; EXCEPTION WHEN duplicate_object THEN END $$`)
			exec(t, r.admin, "GRANT INSERT, SELECT ON refusing TO relay")
			url := strings.Replace(server.URL("postgres"), "postgres@", "relay@", 1)
			outboxtest.SinkSuite(t, outboxtest.SinkFeatures{RefusesDuplicates: true, Durable: true},
				func(t *testing.T) outboxtest.SinkHarness {
					return outboxtest.SinkHarness{
						Sink: openURL(t, url, Config{}), Listen: r.listen, Stored: r.stored, Restart: r.restart,
						Refusing: tt.refusing, Stall: r.stall,
						Forbidden: []string{"", "a.b.c", "a..b", ".a", "a\nb", "a*", "a\x00b", strings.Repeat("a", 64),
							"outbox_events", "public.outbox_log_of_tomorrow", "job_dlq", "crawl_runs"},
					}
				})
		})
	}
}

type receiver struct {
	*testenv.Postgres
	admin  *pgxpool.Pool
	tables []string
}

func (r *receiver) listen(t *testing.T) (string, <-chan outboxtest.Arrived) {
	table := "inbox_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	makeTables(t, r.admin, table)
	exec(t, r.admin, "GRANT INSERT, SELECT ON "+table+" TO relay")
	r.tables = append(r.tables, table)
	// More than any test sends: the reader never waits for a test that is over.
	messages := make(chan outboxtest.Arrived, 10000)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		seen := []int64{}
		for ctx.Err() == nil {
			rows, err := r.admin.Query(ctx,
				selectRows+" FROM "+table+" WHERE position <> ALL ($1) ORDER BY position", seen)
			if err != nil {
				continue // the server is away
			}
			// What it does not get to the next turn does.
			_, _ = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
				position, message, err := scan(row)
				if err == nil {
					seen = append(seen, position)
					messages <- message
				}
				return struct{}{}, err
			})
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return table, messages
}

const selectRows = `SELECT position, event_id, generation, topic, coalesce(aggregate_type, ''), coalesce(aggregate_id, ''),
	coalesce(tenant_id, ''), coalesce(source, ''), coalesce(schema_id, ''), coalesce(schema_version, 0),
	coalesce(sequence, 0), coalesce(occurred_at, '-infinity'), payload::text, coalesce(metadata::text, '')`

// scan makes a CloudEvent of a row: the columns have all that one holds.
func scan(row pgx.CollectableRow) (position int64, message outboxtest.Arrived, err error) {
	d := outbox.Delivery{Record: &outbox.Record{}}
	var payload, metadata string
	err = row.Scan(&position, (*[16]byte)(&d.ID), &d.Generation, &d.Topic, &d.AggregateType, &d.AggregateID, &d.TenantID,
		&d.Source, &d.SchemaID, &d.SchemaVersion, &d.Sequence, &d.OccurredAt, &payload, &metadata)
	d.Payload, d.RawMetadata = []byte(payload), []byte(metadata)
	return position, outboxtest.Arrived{Body: outbox.CloudEvent(nil, &d)}, err
}

func (r *receiver) stored(t *testing.T, table string, n int) []outboxtest.Arrived {
	rows, err := r.admin.Query(t.Context(), fmt.Sprintf("%s FROM %s ORDER BY position LIMIT %d", selectRows, table, n))
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (outboxtest.Arrived, error) {
		_, message, err := scan(row)
		return message, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (r *receiver) restart(t *testing.T) {
	if err := r.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return r.admin.Ping(t.Context()) == nil })
}

// stall has every statement wait for a lock.
func (r *receiver) stall(t *testing.T) func() {
	tx, err := r.admin.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range slices.Compact(r.tables) {
		if _, err := tx.Exec(t.Context(), "LOCK TABLE "+table); err != nil {
			t.Fatal(err)
		}
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }
}
