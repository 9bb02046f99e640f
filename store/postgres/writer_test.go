package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// transaction is an open transaction with the Writer of its kind.
type transaction struct {
	write    func(events ...outbox.Event) error
	exec     func(sql string) error
	commit   func() error
	rollback func() error
}

// A kind opens transactions of one type on a database.
type kind func(t *testing.T, url string, count *statements) func(cfg outbox.WriterConfig) transaction

// kinds are the transaction types that events can be written in. The ways in which pgx can send a
// statement are among them, because with a transaction pooler in between the default does not work.
var kinds = map[string]kind{
	"pgx":                   pgxKind(pgx.QueryExecModeCacheStatement),
	"pgx, cache describe":   pgxKind(pgx.QueryExecModeCacheDescribe),
	"pgx, describe exec":    pgxKind(pgx.QueryExecModeDescribeExec),
	"pgx, exec":             pgxKind(pgx.QueryExecModeExec),
	"pgx, simple protocol":  pgxKind(pgx.QueryExecModeSimpleProtocol),
	"database/sql with pgx": sqlKind,
}

func pgxKind(mode pgx.QueryExecMode) kind {
	return func(t *testing.T, url string, count *statements) func(outbox.WriterConfig) transaction {
		pool := newPool(t, url, func(c *pgxpool.Config) {
			c.ConnConfig.Tracer, c.ConnConfig.DefaultQueryExecMode = count, mode
		})
		return func(cfg outbox.WriterConfig) transaction {
			w, err := postgres.NewWriter(cfg)
			ok(t, err)
			tx, err := pool.Begin(t.Context())
			ok(t, err)
			t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
			return transaction{
				write:    func(events ...outbox.Event) error { return w.Write(t.Context(), tx, events...) },
				exec:     func(sql string) error { _, err := tx.Exec(t.Context(), sql); return err },
				commit:   func() error { return tx.Commit(t.Context()) },
				rollback: func() error { return tx.Rollback(t.Context()) },
			}
		}
	}
}

func sqlKind(t *testing.T, url string, count *statements) func(outbox.WriterConfig) transaction {
	cfg, err := pgx.ParseConfig(url)
	ok(t, err)
	cfg.Tracer = count
	return sqlTransactions(t, stdlib.OpenDB(*cfg))
}

func sqlTransactions(t *testing.T, db *sql.DB) func(outbox.WriterConfig) transaction {
	t.Cleanup(func() { _ = db.Close() })
	return func(cfg outbox.WriterConfig) transaction {
		w, err := postgres.NewSQLWriter(cfg)
		ok(t, err)
		tx, err := db.BeginTx(t.Context(), nil)
		ok(t, err)
		t.Cleanup(func() { _ = tx.Rollback() })
		return transaction{
			write:    func(events ...outbox.Event) error { return w.Write(t.Context(), tx, events...) },
			exec:     func(sql string) error { _, err := tx.ExecContext(t.Context(), sql); return err },
			commit:   tx.Commit,
			rollback: tx.Rollback,
		}
	}
}

// statements counts those that pgx sends.
type statements struct{ n atomic.Int64 }

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.n.Add(1)
	return ctx
}
func (s *statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (s *statements) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (s *statements) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { s.n.Add(1) }
func (s *statements) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// inserter is a role that may insert events and see none.
const inserter = "of_test_write_inserter"

// TestWrite runs every case with every kind of transaction, all on one database: each case has
// topics of its own.
func TestWrite(t *testing.T) {
	url := newDatabase(t)
	pool := newPool(t, url)
	_, err := pool.Exec(t.Context(), "CREATE ROLE "+inserter+"; GRANT INSERT ON outbox_events TO "+inserter)
	ok(t, err)
	for name, open := range kinds {
		t.Run(name, func(t *testing.T) {
			c := writeCase{pool: pool, sent: &statements{}, topic: "of " + name}
			c.begin = open(t, url, c.sent)
			t.Run("all fields", c.allFields)
			t.Run("many events", c.manyEvents)
			t.Run("duplicates", c.duplicates)
			t.Run("drawn ids", c.drawnIDs)
			t.Run("one id, two transactions", c.oneIDTwoTransactions)
			t.Run("hostile strings", c.hostileStrings)
		})
	}
}

type writeCase struct {
	pool  *pgxpool.Pool
	begin func(outbox.WriterConfig) transaction
	sent  *statements
	topic string
}

// count is how many rows have the topic.
func (c writeCase) count(t *testing.T, topic string) int {
	t.Helper()
	return one[int](t, c.pool, "SELECT count(*) FROM outbox_events WHERE event_topic = $1", topic)
}

// ADR-004's from_domain_event: each field in its column, status NEW.
func (c writeCase) allFields(t *testing.T) {
	tx := c.begin(outbox.WriterConfig{Source: "not used",
		Fill: func(_ context.Context, e *outbox.Event) { e.TenantID = "acme" }})
	full := outbox.Event{
		ID: uuid.New(), Topic: "full " + c.topic,
		OccurredAt: time.Date(2024, 7, 1, 12, 0, 0, 123456789, time.FixedZone("", -3*3600)),
		SchemaID:   "s", SchemaVersion: 7, AggregateType: "Order", AggregateID: "42", Source: "shop",
		Destinations: []string{"a", `"b"`},
		Payload:      json.RawMessage(`{"total": 1.50}`), Metadata: map[string]any{"trace_id": "t", "user_id": 7},
	}
	least := outbox.Event{ID: uuid.New(), Topic: "least " + c.topic, Source: "s", Payload: json.RawMessage("null")}
	ok(t, tx.write(full, least))
	ok(t, tx.commit())
	row := func(id uuid.UUID) string {
		return one[string](t, c.pool, `
			SELECT concat_ws('|', to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), coalesce(schema_id, '-'), schema_version,
			                 coalesce(aggregate_type, '-'), coalesce(aggregate_id, '-'), tenant_id, source_bc, coalesce(destination_topics::text, '-'),
			                 payload, coalesce(metadata::text, '-'), status, retry_count)
			  FROM outbox_events WHERE id = $1`, id)
	}
	want := `2024-07-01 15:00:00.123456|s|7|Order|42|acme|shop|["a", "\"b\""]|{"total": 1.50}|{"user_id": 7, "trace_id": "t"}|NEW|0`
	if got := row(full.ID); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	at, got, _ := strings.Cut(row(least.ID), "|")
	if want := `-|1|-|-|acme|s|-|null|-|NEW|0`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if occurred, err := time.Parse("2006-01-02 15:04:05", at); err != nil || time.Since(occurred).Abs() > time.Minute {
		t.Errorf("occurred_at is %s, want about now (%v)", at, err)
	}
}

func (c writeCase) manyEvents(t *testing.T) {
	topic := "many " + c.topic
	events := make([]outbox.Event, 500)
	for i := range events {
		events[i] = event(topic)
		events[i].AggregateID = fmt.Sprint(i) // uuid.New is random: neither ids nor keys are in order
	}
	tx := c.begin(outbox.WriterConfig{})
	before := c.sent.n.Load()
	ok(t, tx.write(events...))
	if n := c.sent.n.Load() - before; n != 1 {
		t.Errorf("%d statements for 500 events, want 1", n)
	}
	ok(t, tx.write())
	if n := c.sent.n.Load() - before; n != 1 {
		t.Errorf("a call without events sent %d statements", n-1)
	}
	ok(t, tx.commit())
	var want []string
	for i := range events {
		want = append(want, fmt.Sprint(i))
	}
	got := one[[]string](t, c.pool,
		"SELECT array_agg(aggregate_id ORDER BY position) FROM outbox_events WHERE event_topic = $1", topic)
	if !slices.Equal(got, want) {
		t.Errorf("positions do not follow the order of the call: %.100v", got)
	}
}

func (c writeCase) duplicates(t *testing.T) {
	topic := "duplicates " + c.topic
	first := event(topic)
	tx := c.begin(outbox.WriterConfig{})
	ok(t, tx.write(first))
	ok(t, tx.commit())

	changed := first
	changed.Payload = json.RawMessage(`"changed"`)
	tx = c.begin(outbox.WriterConfig{})
	ok(t, tx.write(changed, event(topic)))
	ok(t, tx.commit())
	if n := c.count(t, topic); n != 2 {
		t.Errorf("%d events after the first was written again beside a new one, want 2", n)
	}
	if p := one[string](t, c.pool, "SELECT payload::text FROM outbox_events WHERE id = $1", first.ID); p != `{"a": 1}` {
		t.Errorf("the second write changed the payload to %s", p)
	}

	tx = c.begin(outbox.WriterConfig{RefuseDuplicates: true})
	fresh, twice := event(topic), event(topic)
	if err := tx.write(fresh, first); !errors.Is(err, outbox.ErrDuplicateEvent) ||
		!strings.Contains(err.Error(), first.ID.String()) {
		t.Errorf("got %v, want ErrDuplicateEvent with the id", err)
	}
	if err := tx.write(twice, twice); !errors.Is(err, outbox.ErrDuplicateEvent) {
		t.Errorf("the same id twice in one call: got %v, want ErrDuplicateEvent", err)
	}
	ok(t, tx.exec("SELECT 1"))
	ok(t, tx.commit())
	if n := c.count(t, topic); n != 4 {
		t.Errorf("%d events, want 4: the new ones of a refused call are written", n)
	}
}

// A second writer of an id waits for the first, and its answer depends on how that one ends.
// Whether an id is there already is asked for chosen ids only: asking takes the right to read, a
// search and a log record.
func (c writeCase) drawnIDs(t *testing.T) {
	topic := "drawn " + c.topic
	drawn, chosen := event(topic), event(topic)
	drawn.ID = uuid.Nil
	for _, cfg := range []outbox.WriterConfig{{}, {RefuseDuplicates: true}} {
		tx := c.begin(cfg)
		ok(t, tx.exec("SET LOCAL ROLE "+inserter))
		ok(t, tx.write(drawn))
		ok(t, tx.write(drawn, drawn))
		ok(t, tx.commit())
		for _, events := range [][]outbox.Event{{chosen}, {drawn, chosen}} {
			tx = c.begin(cfg)
			ok(t, tx.exec("SET LOCAL ROLE "+inserter))
			var refused *pgconn.PgError
			if err := tx.write(events...); !errors.As(err, &refused) || refused.Code != "42501" {
				t.Errorf("%d events, one with a chosen id, by a role that cannot look for it: got %v", len(events), err)
			}
			ok(t, tx.rollback())
		}
	}
	if n := one[int](t, c.pool, "SELECT count(DISTINCT id) FROM outbox_events WHERE event_topic = $1", topic); n != 6 {
		t.Errorf("%d events, want 6, each with an id of its own", n)
	}
}

func (c writeCase) oneIDTwoTransactions(t *testing.T) {
	for _, commit := range []bool{true, false} {
		topic := fmt.Sprintf("two transactions %t %s", commit, c.topic)
		e := event(topic)
		first := c.begin(outbox.WriterConfig{})
		second := c.begin(outbox.WriterConfig{RefuseDuplicates: true})
		ok(t, first.write(e))
		answer := make(chan error, 1)
		go func() { answer <- second.write(e) }()
		select {
		case err := <-answer:
			t.Fatalf("the second write did not wait: %v", err)
		case <-time.After(30 * time.Millisecond):
		}
		if commit {
			ok(t, first.commit())
		} else {
			ok(t, first.rollback())
		}
		if err := <-answer; errors.Is(err, outbox.ErrDuplicateEvent) != commit {
			t.Errorf("first committed: %t; the second got %v", commit, err)
		}
		ok(t, second.commit())
		if n := c.count(t, topic); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
	}
}

// What database/sql gets as text is quoted by hand; what pgx gets, by pgx.
func (c writeCase) hostileStrings(t *testing.T) {
	topic := "hostile " + c.topic
	hostile := []string{"NULL", "null", `"`, `\`, `\\"`, `a"b\c`, ",", "{}", "{a,b}", "}", " ", " a ", "a\nb\tc\r",
		"'; DROP TABLE outbox_events; --", `E'\x41'`,
		"語😀", "\x01\x1f\x7f", "$1", "%s", strings.Repeat(`\"`, 64)}
	var events []outbox.Event
	for _, s := range hostile {
		e := event(topic)
		e.AggregateID = s
		e.Metadata = map[string]any{s: s}
		e.Payload, _ = json.Marshal(s)
		events = append(events, e)
	}
	tx := c.begin(outbox.WriterConfig{})
	ok(t, tx.write(events...))
	ok(t, tx.commit())
	for query, what := range map[string]string{
		"SELECT array_agg(aggregate_id ORDER BY position) FROM outbox_events WHERE " +
			"event_topic = $1": "aggregate ids",
		"SELECT array_agg(payload #>> '{}' ORDER BY position) FROM outbox_events WHERE event_topic = $1":          "payloads",
		"SELECT array_agg(metadata ->> aggregate_id ORDER BY position) FROM outbox_events WHERE event_topic = $1": "metadata",
	} {
		if got := one[[]string](t, c.pool, query, topic); !slices.Equal(got, hostile) {
			t.Errorf("%s came back as %q", what, got)
		}
	}
}

func TestWriteToAnotherTable(t *testing.T) {
	pool := newPool(t, newDatabase(t))
	_, err := pool.Exec(t.Context(),
		`CREATE SCHEMA "My Schema"; CREATE TABLE "My Schema"."out""box" (LIKE outbox_events INCLUDING ALL)`)
	ok(t, err)
	w, err := postgres.NewWriter(outbox.WriterConfig{Table: `My Schema.out"box`})
	ok(t, err)
	ok(t, w.InTx(t.Context(), pool,
		func(pgx.Tx) ([]outbox.Event, error) { return []outbox.Event{event("elsewhere")}, nil }))
	if n := one[int](t, pool, `SELECT count(*) FROM "My Schema"."out""box"`); n != 1 {
		t.Errorf("%d events in the table, want 1", n)
	}
	for _, table := range []string{"a.b.c", "a.", strings.Repeat("x", 64), "a\x00b"} {
		if _, err := postgres.NewWriter(outbox.WriterConfig{Table: table}); err == nil {
			t.Errorf("table %q is accepted", table)
		}
		if _, err := postgres.NewSQLWriter(outbox.WriterConfig{Table: table}); err == nil {
			t.Errorf("table %q is accepted for database/sql", table)
		}
	}
}

// twoMethods is a transaction of somebody's own, as an ORM has one.
type twoMethods struct{ tx *sql.Tx }

func (w twoMethods) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return w.tx.ExecContext(ctx, query, args...)
}

func (w twoMethods) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return w.tx.QueryContext(ctx, query, args...)
}

func (twoMethods) Commit() error { panic("the writer has ended its caller's transaction") }

// Who writes before anybody has migrated is told what to do, as a relay is; but not for what is
// somebody else's table.
func TestWriteWithoutTable(t *testing.T) {
	url := testenv.Database(t)
	pool := newPool(t, url)
	const remedy = "table outbox_events does not exist: run: outbox migrate up --set core"
	check := func(what string, err error, want string) {
		t.Helper()
		var server *pgconn.PgError
		var schema *outbox.SchemaError
		if !errors.As(err, &server) || server.Code != "42P01" || errors.As(err, &schema) != (want != "") ||
			!strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want %q in it", what, err, want)
		}
	}
	for name, open := range kinds {
		begin := open(t, url, &statements{})
		for _, cfg := range []outbox.WriterConfig{{}, {Strict: true}, {RefuseDuplicates: true}} {
			cfg.Source = "test"
			for _, events := range [][]outbox.Event{{event("a")}, {event("a"), event("b")}} {
				tx := begin(cfg)
				check(name, tx.write(events...), remedy)
				ok(t, tx.rollback())
			}
		}
		for table, want := range map[string]string{"shop_outbox": "", "public.shop_outbox": "",
			"outbox_log": "table outbox_log does not exist: run: outbox migrate up --set log"} {
			tx := begin(outbox.WriterConfig{Source: "test", Table: table})
			check(name+", "+table, tx.write(event("a")), want)
			ok(t, tx.rollback())
		}
	}
	inTx := func(refuse bool) error {
		w, err := postgres.NewWriter(outbox.WriterConfig{Source: "test", RefuseDuplicates: refuse})
		ok(t, err)
		return w.InTx(t.Context(), pool, func(pgx.Tx) ([]outbox.Event, error) { return []outbox.Event{event("a")}, nil })
	}
	check("InTx", inTx(false), remedy)
	check("InTx, duplicates refused", inTx(true), remedy)

	ok(t, migrations.Up(t.Context(), url, "core"))
	_, err := pool.Exec(t.Context(), `CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN INSERT INTO outbox_events_audit VALUES (NEW.id); RETURN NEW; END';
		CREATE TRIGGER audit AFTER INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION audit()`)
	ok(t, err)
	check("a trigger", inTx(false), "")
}

// A transaction whose Begin failed is nil, of one type or another.
func TestWriterRefusesNil(t *testing.T) {
	t.Parallel()
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "test"})
	ok(t, err)
	for _, tx := range []pgx.Tx{nil, (*pgxpool.Tx)(nil)} {
		if err := w.Write(t.Context(), tx, event("refused")); !errors.Is(err, outbox.ErrNoTransaction) ||
			!strings.Contains(err.Error(), "nil") {
			t.Errorf("%T: %v, want ErrNoTransaction", tx, err)
		}
	}
}

// TestSQLWriterTakesTransactions writes through what has the methods of a transaction, and refuses
// what would commit each event by itself.
func TestSQLWriterTakesTransactions(t *testing.T) {
	pool := newPool(t, newDatabase(t))
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	conn, err := db.Conn(t.Context())
	ok(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	for _, duplicates := range []bool{false, true} {
		w, err := postgres.NewSQLWriter(outbox.WriterConfig{Source: "test", Strict: true, RefuseDuplicates: duplicates})
		ok(t, err)
		for name, pooled := range map[string]outbox.SQLTx{"*sql.DB": db, "*sql.Conn": conn, "nil": nil,
			"*sql.Tx is nil": (*sql.Tx)(nil)} {
			if err := w.Write(t.Context(), pooled, event("refused")); !errors.Is(err, outbox.ErrNoTransaction) ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v, want ErrNoTransaction", name, err)
			}
		}
		tx, err := db.BeginTx(t.Context(), nil)
		ok(t, err)
		ok(t, w.Write(t.Context(), twoMethods{tx}, event("taken")))
		ok(t, w.Write(t.Context(), twoMethods{tx}, event("taken"), event("taken")))
		ok(t, tx.Commit())
		if err := w.Write(t.Context(), tx, event("late")); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("a transaction that has ended: %v, want sql.ErrTxDone", err)
		}
	}
	if n := one[int](t, pool, "SELECT count(*) FROM outbox_events WHERE event_topic = 'taken'"); n != 6 {
		t.Errorf("%d events, want 6", n)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM outbox_events WHERE event_topic <> 'taken'"); n != 0 {
		t.Errorf("%d events that were refused are there", n)
	}
}
