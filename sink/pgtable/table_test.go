package pgtable

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// A row that the table refuses is found among a thousand whatever refuses it. The others go in, but
// for those behind it.
func TestRefusedRow(t *testing.T) {
	t.Parallel()
	const secret = "4111111111111111"
	for name, tt := range map[string]struct {
		sql   string
		class outbox.Class
		says  string
	}{
		"constraint": {`ALTER TABLE inbox ADD CONSTRAINT total_is_small CHECK ((payload->>'total')::numeric < 10)`,
			outbox.ClassRetryable, "total_is_small"},
		"trigger": {`CREATE FUNCTION say_no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (NEW.payload->>'total')::numeric > 10 THEN RAISE 'not this one'; END IF; RETURN NEW; END $$;
			CREATE TRIGGER say_no BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION say_no()`,
			outbox.ClassRetryable, "not this one"},
		"trigger with a mistake": {`CREATE FUNCTION wrong() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF (NEW.payload->>'total')::numeric > 10 THEN INSERT INTO nowhere VALUES (1); END IF; RETURN NEW; END $$;
			CREATE TRIGGER wrong BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION wrong()`,
			outbox.ClassRetryable, "nowhere"},
		"another unique index": {`CREATE UNIQUE INDEX one_each ON inbox ((payload->>'card'))`,
			outbox.ClassRetryable, "one_each"},
		"deferred constraint": {`CREATE TABLE orders (total numeric PRIMARY KEY); INSERT INTO orders VALUES (1);
			ALTER TABLE inbox ADD total numeric GENERATED ALWAYS AS ((payload->>'total')::numeric) STORED
			REFERENCES orders DEFERRABLE INITIALLY DEFERRED`,
			outbox.ClassRetryable, "foreign key"},
		"row-level security": {`ALTER TABLE inbox ENABLE ROW LEVEL SECURITY; ALTER TABLE inbox FORCE ROW LEVEL SECURITY;
			CREATE POLICY all_rows ON inbox FOR SELECT USING (true);
			CREATE POLICY small ON inbox FOR INSERT WITH CHECK ((payload->>'total')::numeric < 10)`,
			outbox.ClassRetryable, "row-level security"},
		"type":      {`ALTER TABLE inbox ALTER aggregate_type TYPE varchar(5)`, outbox.ClassPermanent, "too long"},
		"index row": {`CREATE INDEX ON inbox (aggregate_type)`, outbox.ClassPermanent, "index row"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := testenv.Database(t)
			admin := connectAdmin(t, url)
			makeTables(t, admin, "inbox")
			exec(t, admin, tt.sql)
			role := "plain_" + strings.NewReplacer(" ", "_", "-", "_").Replace(name) // roles are the server's
			exec(t, admin, "CREATE ROLE "+role+" LOGIN")
			t.Cleanup(func() {
				if _, err := admin.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
					t.Error(err)
				}
			})
			exec(t, admin, "GRANT ALL ON ALL TABLES IN SCHEMA public TO "+role)
			sink := openURL(t, strings.Replace(url, "postgres@", role+"@", 1), Config{})
			var batch []outbox.Delivery
			for i := range 1000 {
				batch = append(batch, event(t, "inbox", i%50))
			}
			bad := &batch[700]
			bad.Record = new(outbox.Record)
			*bad.Record = *batch[0].Record
			bad.ID, bad.OrderKey = event(t, "", 0).ID, batch[700%50].OrderKey
			bad.Payload = []byte(`{"total": 12, "card": "` + secret + `"}`)
			if name == "type" {
				bad.AggregateType = "longer"
			}
			if name == "index row" {
				bad.AggregateType = noise(9000)
			}
			if name == "another unique index" {
				batch[10].Payload = []byte(`{"total":1,"card":"` + secret + `"}`)
			}
			sent := 0
			for i, res := range sink.Publish(t.Context(), batch) {
				switch {
				case i == 700:
					sinktest.WantClass(t, res.Err, tt.class, tt.says)
					if res.Err != nil && strings.Contains(res.Err.Error(), secret) {
						t.Errorf("the error has the payload: %v", res.Err)
					}
				case i > 700 && batch[i].OrderKey == bad.OrderKey:
					if !errors.Is(res.Err, outbox.ErrNotAttempted) {
						t.Errorf("delivery %d, behind it, is answered %+v", i, res)
					}
				case res != (outbox.Result{}):
					t.Fatalf("delivery %d is answered %+v", i, res)
				default:
					sent++
				}
			}
			if rows := len(received(t, admin, "inbox")); rows != sent || sent != 1000-1-5 {
				t.Errorf("%d rows of %d that were answered so, want 994", rows, sent)
			}
		})
	}
}

// noise is text that does not compress.
func noise(n int) string {
	text, state := make([]byte, n), uint32(1)
	for i := range text {
		state = state*1664525 + 1013904223
		text[i] = 'a' + byte(state>>24)%26
	}
	return string(text)
}

// A table that is unfit fails its own events with what to do about it. Those of other tables go in.
func TestUnfitTable(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	admin := connectAdmin(t, url)
	exec(t, admin, "CREATE ROLE unfit LOGIN")
	t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "DROP OWNED BY unfit; DROP ROLE unfit") })
	makeTables(t, admin, "well", "short", "bare", "private", "odd")
	exec(t, admin, "ALTER TABLE short DROP COLUMN metadata; ALTER TABLE bare DROP CONSTRAINT bare_pkey")
	exec(t, admin, "ALTER TABLE odd ALTER topic TYPE integer USING 0; CREATE VIEW look AS SELECT DISTINCT * FROM well")
	exec(t, admin, "GRANT INSERT, SELECT ON well, short, bare, odd, look TO unfit")
	sink := openURL(t, strings.Replace(url, "postgres@", "unfit@", 1), Config{})
	for destination, says := range map[string]string{
		"missing": "create=true", "nowhere.missing": "create=true", "short": "add the column", "bare": "primary key",
		"private": "GRANT INSERT, SELECT", "odd": "topic", "look": "look",
	} {
		batch := []outbox.Delivery{event(t, "well", 1), event(t, destination, 2), event(t, "well", 2), event(t, "well", 3)}
		also := batch[1]
		also.Destination = "well" // the event's other destination is served
		batch = append(batch, also)
		got := sink.Publish(t.Context(), batch)
		sinktest.WantClass(t, got[1].Err, outbox.ClassRetryable, says)
		if !strings.Contains(got[1].Err.Error(), destination) {
			t.Errorf("the error does not name %s: %v", destination, got[1].Err)
		}
		if !errors.Is(got[2].Err, outbox.ErrNotAttempted) {
			t.Errorf("%s: the event behind it is answered %+v", destination, got[2])
		}
		for _, i := range []int{0, 3, 4} {
			if got[i] != (outbox.Result{}) {
				t.Errorf("%s: delivery %d is answered %+v", destination, i, got[i])
			}
		}
	}
}

// Tables are made when asked, by several sinks at once too, and only then.
func TestCreate(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	admin := connectAdmin(t, url)
	exec(t, admin, `CREATE SCHEMA "Shop"`)
	var all sync.WaitGroup
	for range 4 {
		sink := openURL(t, url+"&create=true", Config{})
		batch := []outbox.Delivery{event(t, "inbox", 1), event(t, "Shop.Orders", 1), event(t, "inbox", 1)}
		all.Go(func() { deliver(t, sink, batch...); wantCopies(t, sink, batch...) })
	}
	all.Wait()
	if n, m := len(received(t, admin, "inbox")), len(received(t, admin, "Shop.Orders")); n != 8 || m != 4 {
		t.Errorf("%d and %d rows, want 8 and 4", n, m)
	}
	got := openURL(t, url+"&create=true", Config{}).Publish(t.Context(), []outbox.Delivery{event(t, "nowhere.inbox", 1)})
	sinktest.WantClass(t, got[0].Err, outbox.ClassRetryable, "nowhere")
}

// One transaction for all tables of a batch: a reader never sees an event before an earlier one of
// its key.
func TestTablesOfABatchAreOneTransaction(t *testing.T) {
	t.Parallel()
	sink, admin := open(t, Config{})
	makeTables(t, admin, "a", "b", "c")
	var batch []outbox.Delivery
	for i := range 300 {
		batch = append(batch, event(t, []string{"a", "b", "c"}[i%3], i%10))
	}
	deliver(t, sink, batch...)
	wantCopies(t, sink, batch...)
	var transactions, rows int
	if err := admin.QueryRow(t.Context(), `SELECT count(DISTINCT x), count(*) FROM
		(SELECT xmin::text x FROM a UNION ALL SELECT xmin::text FROM b UNION ALL SELECT xmin::text FROM c) AS all_rows`).
		Scan(&transactions, &rows); err != nil {
		t.Fatal(err)
	}
	if transactions != 1 || rows != 300 {
		t.Errorf("%d rows in %d transactions, want 300 in one", rows, transactions)
	}
	for n, table := range []string{"a", "b", "c"} {
		var want []outbox.Delivery
		for i := n; i < len(batch); i += 3 {
			want = append(want, batch[i])
		}
		if !slices.Equal(received(t, admin, table), ids(want...)) {
			t.Errorf("table %s is out of order", table)
		}
	}
}

// What is a copy: the primary key says it, and nothing of the receiver's.
func TestIdentity(t *testing.T) {
	t.Parallel()
	sink, admin := open(t, Config{})
	makeTables(t, admin, "inbox")
	d := event(t, "inbox", 1)
	d.Origin = 1 << 63 // beyond a bigint
	other, again := d, d
	other.Origin = 2
	replayed := *d.Record
	replayed.Generation = 1
	again.Record = &replayed
	batch := []outbox.Delivery{d, other, again}
	deliver(t, sink, batch...)
	wantCopies(t, sink, batch...)
	if rows := received(t, admin, "inbox"); len(rows) != 3 {
		t.Errorf("%d rows, want 3", len(rows))
	}
}

// The columns have the event as it is, and NULL for what it has not.
func TestColumns(t *testing.T) {
	t.Parallel()
	sink, admin := open(t, Config{})
	makeTables(t, admin, "inbox")
	full, empty := event(t, "inbox", 1), event(t, "inbox", 2)
	full.OccurredAt = time.Date(2024, 2, 29, 23, 59, 59, 123456000, time.FixedZone("", 3600))
	full.SchemaID, full.SchemaVersion, full.Sequence = "order.v1", 2, 7
	full.Payload = []byte(`{"b":1.50,"a":["é \"€\"",12345678901234567890]}`)
	full.RawMetadata = []byte(`{"user_id":7}`)
	empty.Record = &outbox.Record{Event: outbox.Event{ID: empty.ID, Topic: "t", Payload: []byte("null")},
		RawMetadata: []byte("no\xffJSON")}
	deliver(t, sink, full, empty)
	for d, want := range map[*outbox.Delivery]string{
		&full: `("order.placed","Order","1","acme","orders","order.v1",2,7,"2024-02-29 22:59:59.123456",` +
			`"{""a"": [""é \\""€\\"""", 12345678901234567890], ""b"": 1.50}","{""user_id"": 7}")`,
		&empty: `("t",,,,,,,,,"null","""no�JSON""")`,
	} {
		var row string
		if err := admin.QueryRow(t.Context(), `SELECT (topic, aggregate_type, aggregate_id, tenant_id, source, schema_id,
			schema_version, sequence, occurred_at AT TIME ZONE 'UTC', payload, metadata)::text FROM inbox
			WHERE event_id = $1`, d.ID.String()).Scan(&row); err != nil {
			t.Fatal(err)
		}
		if strings.ReplaceAll(row, `"`, "") != strings.ReplaceAll(want, `"`, "") {
			t.Errorf("got  %s\nwant %s", row, want)
		}
	}
}

// madeBetween makes a table between the statement that does not find it and the next.
type madeBetween struct {
	testing.TB
	pool  *pgxpool.Pool
	found bool
}

func (*madeBetween) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*madeBetween) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*madeBetween) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (*madeBetween) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (m *madeBetween) TraceBatchEnd(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchEndData) {
	if code(data.Err) == undefinedTable {
		m.found = true
		makeTables(m, m.pool, "inbox")
	}
}

// A table that another relay makes just then is no fault of the row that did not find it.
func TestMadeByAnother(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	made := &madeBetween{TB: t, pool: connectAdmin(t, url)}
	cfg.ConnConfig.Tracer = made
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	sink, err := New(pool, Config{Create: true})
	deliver(t, sinktest.Closing(t, sink, err), event(t, "inbox", 1))
	if !made.found {
		t.Error("no statement missed the table")
	}
}

// Names are taken as they are written, and a statement cannot be got through one.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"inbox", "Shop.Orders", `a"b`, `x"; DROP TABLE inbox; --`, "é", "a b", "a.b.c", "", ".",
		"a\x00", "a\nb", strings.Repeat("é", 31), strings.Repeat("é", 32), "select", "\xff"} {
		f.Add(name)
	}
	sink, admin := open(f, Config{Create: true})
	f.Fuzz(func(t *testing.T, name string) {
		d := event(t, name, 1)
		got := sink.Publish(t.Context(), []outbox.Delivery{d})[0]
		if _, err := quote(name); err != nil {
			sinktest.WantClass(t, got.Err, outbox.ClassPermanent, "insert into table")
			return
		}
		if strings.Contains(name, ".") {
			sinktest.WantClass(t, got.Err, outbox.ClassRetryable, "what is before the dot is a schema")
			return
		}
		if rows := received(t, admin, name); got != (outbox.Result{}) || !slices.Contains(rows, d.ID.String()) {
			t.Errorf("%q: answered %+v, and the table has %v", name, got, rows)
		}
	})
}

// The primary key serves the statement, and the documents have the table as the sink makes it.
func TestStatements(t *testing.T) {
	t.Parallel()
	sink, admin := open(t, Config{})
	makeTables(t, admin, "inbox")
	insert, err := sink.table("inbox")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := admin.Query(t.Context(), "EXPLAIN "+insert.insert,
		append([]any{pgx.QueryExecModeExec}, newColumns("").arguments()...)...)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(plan, "\n"), "Conflict Arbiter Indexes: inbox_pkey") {
		t.Errorf("the plan is\n%s", strings.Join(plan, "\n"))
	}
	text, err := os.ReadFile("../../docs/reference/sinks.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(insert.create) {
		if line = strings.TrimSpace(line); !strings.Contains(string(text), line) {
			t.Errorf("docs/reference/sinks.md lacks %q", line)
		}
	}
}
