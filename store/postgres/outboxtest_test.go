package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// told is a test that is told of its failure instead of failing.
type told struct {
	testing.TB
	fatal string
}

var errFatal = errors.New("the test has ended")

func (f *told) Helper() {}

func (f *told) Fatal(args ...any) {
	f.fatal = fmt.Sprint(args...)
	panic(errFatal)
}

func (f *told) Fatalf(format string, args ...any) { f.Fatal(fmt.Sprintf(format, args...)) }

func (f *told) by(run func()) (said string) {
	defer func() {
		ended := recover()
		if err, ok := ended.(error); ended != nil && (!ok || !errors.Is(err, errFatal)) {
			panic(ended)
		}
		said = f.fatal
	}()
	run()
	return ""
}

func TestRequireWritten(t *testing.T) {
	t.Parallel()
	url := newDatabase(t)
	pool := newPool(t, url)
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	ok(t, err)
	write := func(tx pgx.Tx, topic string) {
		t.Helper()
		e := outbox.Event{Topic: topic, AggregateType: "Order", AggregateID: "42", Payload: json.RawMessage(`{"total": 7}`),
			Metadata: map[string]any{"user_id": 7}, Destinations: []string{"a", "b"}}
		ok(t, w.Write(t.Context(), tx, e))
	}
	before, err := pool.Begin(t.Context()) // begins first, commits while the other is open
	ok(t, err)
	write(before, "of another")
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	outboxtest.RequireWritten(t, tx)
	write(tx, "order.placed")
	ok(t, before.Commit(t.Context()))
	after, err := pool.Begin(t.Context())
	ok(t, err)
	write(after, "of another")
	ok(t, after.Commit(t.Context()))

	kept, err := tx.Begin(t.Context())
	ok(t, err)
	write(kept, "order.paid")
	ok(t, kept.Commit(t.Context()))
	dropped, err := tx.Begin(t.Context())
	ok(t, err)
	write(dropped, "order.dropped")
	outboxtest.RequireWritten(t, dropped, outbox.Event{Topic: "order.placed"}, outbox.Event{Topic: "order.paid"},
		outbox.Event{Topic: "order.dropped"})
	ok(t, dropped.Rollback(t.Context()))

	got := outboxtest.RequireWritten(t, tx,
		outbox.Event{Topic: "order.placed", AggregateID: "42", Payload: json.RawMessage(`{"total":7}`)},
		outbox.Event{Topic: "order.paid"})
	if e := got[0]; e.Source != "shop" || e.TenantID != "default" || e.SchemaVersion != 1 ||
		e.Metadata["user_id"] != 7.0 || len(e.Destinations) != 2 {
		t.Errorf("read %+v", e)
	}
	failing := &told{TB: t}
	said := failing.by(func() {
		outboxtest.RequireWritten(failing, tx, outbox.Event{Topic: "order.placed", Payload: json.RawMessage(`{"total":8}`)})
	})
	if !strings.Contains(said, "Payload.total is 7, want 8") ||
		!strings.Contains(said, "2. too many: order.paid of Order 42") {
		t.Errorf("said %q", said)
	}
	ok(t, tx.Commit(t.Context()))

	db := stdlib.OpenDBFromPool(pool)
	defer func() { _ = db.Close() }()
	sw, err := postgres.NewSQLWriter(outbox.WriterConfig{Source: "shop"})
	ok(t, err)
	stx, err := db.BeginTx(t.Context(), nil)
	ok(t, err)
	defer func() { _ = stx.Rollback() }()
	outboxtest.RequireWrittenSQL(t, stx)
	ok(t, sw.Write(t.Context(), stx, outbox.Event{Topic: "order.placed", Payload: json.RawMessage(`{"total": 7}`)}))
	outboxtest.RequireWrittenSQL(t, stx, outbox.Event{Topic: "order.placed", Payload: json.RawMessage(`{"total": 7}`)})
	failing = &told{TB: t}
	if said := failing.by(func() { outboxtest.RequireWrittenSQL(failing, db) }); !strings.Contains(said,
		"not a transaction: *sql.DB") {
		t.Errorf("of a pool it said %q", said)
	}
}

// What is written is what is found, however jsonb spells it.
func TestRequireWrittenFindsTheSameEvent(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabase(t))
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	ok(t, err)
	tx, err := pool.Begin(t.Context())
	ok(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	var all []outbox.Event
	for _, n := range []string{"1e21", "1e-7", "1e2", "-0", "7.0", "1.50", "-12e-3", "123456789012345678901234567890"} {
		all = append(all, outbox.Event{Topic: "order.placed", Payload: json.RawMessage(`{"n":` + n + `}`),
			Metadata: map[string]any{"n": json.Number(n), "big": int64(1<<53 + 1)}, Destinations: []string{}})
	}
	ok(t, w.Write(t.Context(), tx, all...))
	got := outboxtest.RequireWritten(t, tx, all...)
	if n := got[2].Metadata["n"]; n != 100.0 {
		t.Errorf("metadata has the number %v (%[1]T), want 100.0", n)
	}
}

// The events of a log are found as those of outbox_events are, and by a role that cannot read it,
// those alone.
func TestRequireWrittenOfALog(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	ok(t, err)
	l.write(keyed("of another", 1))
	l.begin(keyed("of another", 2))
	tx := l.begin(keyed("a", 1), keyed("b", 2))
	ok(t, w.Write(t.Context(), tx, event("first")))
	dropped, err := tx.Begin(t.Context())
	ok(t, err)
	ok(t, l.writer.Write(t.Context(), dropped, keyed("dropped", 1)))
	ok(t, dropped.Rollback(t.Context()))
	kept, err := tx.Begin(t.Context())
	ok(t, err)
	ok(t, l.writer.Write(t.Context(), kept, keyed("c", 3)))
	ok(t, kept.Commit(t.Context()))
	outboxtest.RequireWritten(t, tx, outbox.Event{Topic: "first"}, outbox.Event{AggregateID: "a"},
		outbox.Event{AggregateID: "b", Payload: json.RawMessage("2")}, outbox.Event{AggregateID: "c"})
	_, err = tx.Exec(t.Context(), `CREATE ROLE reads_no_log; GRANT SELECT ON outbox_events TO reads_no_log;
		SET LOCAL ROLE reads_no_log`)
	ok(t, err)
	outboxtest.RequireWritten(t, tx, outbox.Event{Topic: "first"})

	db := stdlib.OpenDBFromPool(l.pool)
	defer func() { _ = db.Close() }()
	sw, err := postgres.NewSQLWriter(outbox.WriterConfig{Table: "outbox_log", Source: "shop"})
	ok(t, err)
	stx, err := db.BeginTx(t.Context(), nil)
	ok(t, err)
	defer func() { _ = stx.Rollback() }()
	outboxtest.RequireWrittenSQL(t, stx)
	written := keyed("a", 1)
	ok(t, sw.Write(t.Context(), stx, written))
	outboxtest.RequireWrittenSQL(t, stx, written)
}

func TestRequireWrittenUsesItsIndex(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabase(t, "core", "log"))
	for name, index := range map[string]string{"written": "idx_outbox_created", "written_log": "_xid_expr_idx"} {
		text, err := os.ReadFile("../../outboxtest/sql/" + name + ".sql")
		ok(t, err)
		ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL enable_seqscan = off"); err != nil {
				return err
			}
			rows, err := tx.Query(t.Context(), "EXPLAIN "+string(text))
			if err != nil {
				return err
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if !strings.Contains(strings.Join(plan, "\n"), index) {
				t.Errorf("%s: %s", name, strings.Join(plan, "\n"))
			}
			return err
		}))
	}
}

func TestRelayOfATest(t *testing.T) {
	t.Parallel()
	pool := newPool(t, newDatabase(t))
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	ok(t, err)
	t.Run("delivers", func(t *testing.T) {
		messages := outboxtest.Relay(t, postgres.NewDB(pool))
		for i := range 3 {
			ok(t, w.InTx(t.Context(), pool, func(pgx.Tx) ([]outbox.Event, error) {
				return []outbox.Event{{Topic: "order.placed", AggregateType: "Order", AggregateID: "42",
					Payload: json.RawMessage(fmt.Sprint(i))}}, nil
			}))
		}
		for i := range 3 {
			m := messages.Next(t)
			var body struct{ Type, Subject string }
			ok(t, json.Unmarshal(m.Body, &body))
			if string(m.Payload) != fmt.Sprint(i) || m.Destination != "order.placed" || m.AggregateID != "42" ||
				body.Type != "order.placed" {
				t.Errorf("message %d: %+v %s", i, m, m.Body)
			}
		}
		if n := len(messages.All()); n != 3 {
			t.Errorf("%d messages, want 3", n)
		}
	})
	if n := one[int](t, pool, "SELECT count(*) FROM outbox_events WHERE status <> 'SENT'"); n != 0 {
		t.Errorf("%d events are not settled after the end of the test", n)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM outbox_lanes WHERE owner IS NOT NULL"); n != 0 {
		t.Errorf("the relay has left, and %d lanes are leased", n)
	}
}

// placeOrder is the service's own code.
func placeOrder(ctx context.Context, tx pgx.Tx, w *postgres.Writer, id string) error {
	placed, err := outbox.NewEvent("order.placed", map[string]string{"order": id})
	if err != nil {
		return err
	}
	placed.AggregateType, placed.AggregateID = "Order", id
	return w.Write(ctx, tx, placed)
}

// In a test of a service, t is the test's own. This test begins a transaction, has the service's
// code write in it, looks at what it has written, and rolls back.
func Example_requireWritten() {
	t, pool, writer := exampleTest()
	defer t.end()

	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if err := placeOrder(t.Context(), tx, writer, "42"); err != nil {
		t.Fatal(err)
	}
	written := outboxtest.RequireWritten(t, tx,
		outbox.Event{Topic: "order.placed", AggregateID: "42", Payload: json.RawMessage(`{"order": "42"}`)})
	fmt.Println(len(written), "event, from", written[0].Source)
	// Output: 1 event, from shop
}

// The same test with a relay: what has been committed arrives.
func Example_relayOfATest() {
	t, pool, writer := exampleTest()
	defer t.end()

	messages := outboxtest.Relay(t, postgres.NewDB(pool))
	if err := pgx.BeginFunc(t.Context(), pool,
		func(tx pgx.Tx) error { return placeOrder(t.Context(), tx, writer, "42") }); err != nil {
		t.Fatal(err)
	}
	m := messages.Next(t)
	fmt.Println(m.Destination, string(m.Payload))
	// Output: order.placed {"order": "42"}
}

// exampleT stands for the *testing.T that an example has not.
type exampleT struct {
	testing.TB
	ended []func()
}

func (*exampleT) Helper()                           {}
func (*exampleT) Output() io.Writer                 { return io.Discard }
func (*exampleT) Context() context.Context          { return context.Background() }
func (t *exampleT) Cleanup(f func())                { t.ended = append(t.ended, f) }
func (*exampleT) Fatal(args ...any)                 { log.Fatal(args...) }
func (*exampleT) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (*exampleT) Errorf(format string, args ...any) { log.Fatalf(format, args...) }

func (t *exampleT) end() {
	for i := len(t.ended) - 1; i >= 0; i-- {
		t.ended[i]()
	}
}

var examples atomic.Int32

func exampleTest() (*exampleT, *pgxpool.Pool, *postgres.Writer) {
	t := &exampleT{}
	server := openPool(t.Context())
	t.Cleanup(server.Close)
	at, err := url.Parse(exampleServer())
	check(err)
	at.Path = fmt.Sprintf("/test%d", examples.Add(1)) // of its own: a relay would deliver other examples' events too
	_, err = server.Exec(t.Context(), "CREATE DATABASE "+at.Path[1:])
	check(err)
	check(migrations.Up(t.Context(), at.String(), "core"))
	pool, err := pgxpool.New(t.Context(), at.String())
	check(err)
	t.Cleanup(pool.Close)
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop"})
	check(err)
	return t, pool, writer
}
