package orm

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// errChanged ends a transaction whose customer has changed his mind.
var errChanged = errors.New("the customer has changed his mind")

// service places an order: it writes the row and the event in one transaction, and rolls both back
// if end is an error.
type service func(ctx context.Context, id string, total int, end error) error

// shop is a database with a table of orders.
type shop struct {
	url    string // of the service
	direct string // of the relay
}

// everyWay runs a test against a server, and through PgBouncer in transaction mode, without
// prepared statements.
func everyWay(t *testing.T, test func(t *testing.T, s shop)) {
	t.Run("direct", func(t *testing.T) {
		url := newShop(t)
		test(t, shop{url, url})
	})
	t.Run("through PgBouncer", func(t *testing.T) {
		_, through := testenv.Pooled(t, nil)
		url := newShop(t)
		test(t, shop{through(url) + "&default_query_exec_mode=exec", url})
	})
}

func newShop(t *testing.T) (url string) {
	t.Helper()
	url = testenv.Database(t)
	if err := migrations.Up(t.Context(), url, "core"); err != nil {
		t.Fatal(err)
	}
	db := openSQL(t, url)
	if _, err := db.ExecContext(t.Context(),
		"CREATE TABLE orders (id text PRIMARY KEY, total bigint NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	return url
}

func openSQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newWriter(t *testing.T) outbox.Writer[outbox.SQLTx] {
	t.Helper()
	writer, err := postgres.NewSQLWriter(outbox.WriterConfig{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return writer
}

// placed is the event about an order.
func placed(id string, total int) outbox.Event {
	payload, _ := json.Marshal(map[string]any{"order": id, "total": total}) // of a text and a number
	return outbox.Event{Topic: "order.placed", AggregateType: "Order", AggregateID: id, Payload: payload}
}

// try places orders of which the second is rolled back, and wants a relay to deliver the others and
// nothing else.
func (s shop) try(t *testing.T, place service) {
	t.Helper()
	for i, id := range []string{"1", "2", "3"} {
		var end error
		if id == "2" {
			end = errChanged
		}
		if err := place(t.Context(), id, 10*i, end); !errors.Is(err, end) {
			t.Fatalf("place order %s: %v, want %v", id, err, end)
		}
	}
	pool, err := pgxpool.New(t.Context(), s.direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	messages := outboxtest.Relay(t, postgres.NewDB(pool))
	var got []string
	for range 2 {
		got = append(got, messages.Next(t).AggregateID)
	}
	slices.Sort(got) // of different keys, so in any order
	var orders, events int
	if err := pool.QueryRow(t.Context(),
		"SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM outbox_events)").Scan(&orders, &events); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{"1", "3"}) || orders != 2 || events != 2 {
		t.Errorf("delivered %v of %d events about %d orders, want 1 and 3", got, events, orders)
	}
}

// refuse wants ErrNoTransaction for what is none.
func refuse(t *testing.T, pools ...outbox.SQLTx) {
	t.Helper()
	for _, pool := range pools {
		if err := newWriter(t).Write(t.Context(), pool, placed("4", 0)); !errors.Is(err, outbox.ErrNoTransaction) {
			t.Errorf("%T: %v, want ErrNoTransaction", pool, err)
		}
	}
}
