package pgtable

import (
	"fmt"
	"hash/fnv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func openURL(t testing.TB, url string, cfg Config) *Sink {
	t.Helper()
	sink, err := Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sink.Close(); err != nil {
			t.Error(err)
		}
	})
	return sink
}

// open returns a sink on a new database, and a pool for what the sink cannot do.
func open(t testing.TB, cfg Config) (*Sink, *pgxpool.Pool) {
	t.Helper()
	url := testenv.Database(t)
	return openURL(t, url, cfg), connectAdmin(t, url)
}

func connectAdmin(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func exec(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// makeTables makes tables as their owner would.
func makeTables(t testing.TB, pool *pgxpool.Pool, names ...string) {
	t.Helper()
	for _, name := range names {
		sql, err := CreateTable(name)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, pool, sql)
	}
}

// event returns a delivery of a new event; events of the same key stay in order.
func event(t testing.TB, table string, key int) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d", key)
	orderKey := int64(h.Sum64())
	return outbox.Delivery{
		Destination: table,
		Record: &outbox.Record{
			Event: outbox.Event{
				ID: id, Topic: "order.placed", OccurredAt: time.Now(), AggregateType: "Order", AggregateID: fmt.Sprint(key),
				TenantID: "acme", Source: "orders", Payload: []byte(`{"total":1}`),
			},
			OrderKey: orderKey, Keyed: true, Lane: int16(uint64(orderKey) % outbox.Lanes),
		},
	}
}

func deliver(t testing.TB, sink sink.Sink, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range sink.Publish(t.Context(), batch) {
		if res != (outbox.Result{}) {
			t.Fatalf("delivery %d is answered %+v, want delivered", i, res)
		}
	}
}

func wantCopies(t testing.TB, sink sink.Sink, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range sink.Publish(t.Context(), batch) {
		if res != (outbox.Result{Duplicate: true}) {
			t.Errorf("delivery %d is answered %+v, want duplicate", i, res)
		}
	}
}

// received returns the ids in a table, in the order of their positions.
func received(t testing.TB, pool *pgxpool.Pool, table string) []uuid.UUID {
	t.Helper()
	name, err := quote(table)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(t.Context(), "SELECT event_id FROM "+name+" ORDER BY position")
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (id uuid.UUID, err error) {
		err = row.Scan((*[16]byte)(&id))
		return id, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func ids(batch ...outbox.Delivery) []uuid.UUID {
	var list []uuid.UUID
	for _, d := range batch {
		list = append(list, d.ID)
	}
	return list
}

// eventually waits until ok, for what another process does in its own time.
func eventually(t testing.TB, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(testenv.Patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing for %s", testenv.Patience)
		}
	}
}
