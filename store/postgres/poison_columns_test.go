package postgres_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// planted is a table that is filled with rows that have one value each that cannot be read,
// delivered or recorded. Every row has a key of its own, and another row with the same key behind it.
type planted struct {
	layout outbox.Layout
	create string // the table, if it is not one of a migration set
	good   string // an INSERT of one row with the key $1
	types  map[string]string
	dead   map[string]int // dead letters by what was planted, as expected
}

// every column that a mapped table can have, with the widest types.
const mapped = `CREATE TABLE queue (n bigserial PRIMARY KEY, id uuid NOT NULL DEFAULT gen_random_uuid(), kind text,
	body json, customer text, region text, owner text, agg text, src text, scheme text, gen smallint, version bigint,
	number bigint, goes json, meta json, happened timestamp, made timestamp, at_last timestamp, tries bigint,
	due timestamp, problem varchar(50), served jsonb, past jsonb`

func mappedLayout() outbox.Layout {
	return outbox.Layout{Table: "queue", ID: "id", Position: "n", Topic: "kind", Payload: "body", Key: "customer",
		KeyScope: []string{"region"}, Tenant: "owner", AggregateType: "agg", Source: "src", SchemaID: "scheme",
		Generation: "gen", SchemaVersion: "version", Sequence: "number", Destinations: "goes", Metadata: "meta",
		OccurredAt: "happened", WrittenAt: "made", DeliveredAt: "at_last", Attempts: "tries", NextRetryAt: "due",
		LastError: "problem", DeliveredTo: "served", ErrorHistory: "past"}
}

func plantedTables() map[string]*planted {
	const insertMapped = `INSERT INTO queue (kind, body, customer, made) VALUES ('t', '{}', $1, now())`
	marked := mappedLayout()
	marked.Status, marked.Pending, marked.Delivered, marked.Dead = "state", "new", "sent", "dead"
	const insert = ` (event_topic, occurred_at, source_bc, payload, aggregate_type, aggregate_id)
		VALUES ('t', now(), 's', '{}', 'a', left($1, 128))`
	return map[string]*planted{
		"mapped":        {layout: mappedLayout(), create: mapped + ")", good: insertMapped},
		"with status":   {layout: marked, create: mapped + ", state text DEFAULT 'new')", good: insertMapped},
		"outbox_events": {layout: outbox.OutboxEvents(), good: `INSERT INTO outbox_events` + insert},
		"outbox_log":    {layout: outbox.OutboxLog(), good: `INSERT INTO outbox_log` + insert},
		"event_outbox": {layout: outbox.EventOutbox(), good: `INSERT INTO event_outbox (event_id, app_id, event_type, payload, event_key)
			SELECT gen_random_uuid(), id, 't', '{}', $1 FROM apps WHERE namespace = 'default'`},
		"crawl_outbox": {layout: outbox.CrawlOutbox(), good: `WITH run AS (INSERT INTO crawl_runs (id, tenant_id, app_package)
			VALUES (md5($1)::uuid, 'default', 'app') ON CONFLICT (id) DO UPDATE SET tenant_id = 'default' RETURNING id)
			INSERT INTO crawl_outbox (crawl_id, tenant_id, event_type, payload) SELECT id, 'default', 't', '{}' FROM run`},
	}
}

// plant changes the row of a new key. dies is how many dead letters it gets.
func (p *planted) plant(t *testing.T, l *logged, name, column, value string, dies int) {
	t.Helper()
	key := fmt.Sprintf("%d: %s in %s", len(p.dead), name, column)
	_, err := l.pool.Exec(t.Context(), p.good, key)
	ok(t, err)
	_, err = l.pool.Exec(t.Context(), fmt.Sprintf(
		"UPDATE %[1]s SET %[2]s = %[3]s WHERE %[4]s = (SELECT max(%[4]s) FROM %[1]s)",
		p.layout.Table, column, value, p.layout.Position))
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "54000" {
		dies = 0 // an index of the table takes no such value
	} else if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	_, err = l.pool.Exec(t.Context(), p.good, key)
	ok(t, err)
	p.dead[key] = dies
}

// plants makes a row of every kind that the columns' types allow, and returns how many there are.
func (p *planted) plants(t *testing.T, l *logged) {
	t.Helper()
	p.dead, p.types = map[string]int{}, map[string]string{}
	rows, err := l.pool.Query(t.Context(), `SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
		WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped`, p.layout.Table)
	ok(t, err)
	for rows.Next() {
		var name, kind string
		ok(t, rows.Scan(&name, &kind))
		p.types[name] = kind
	}
	ok(t, rows.Err())
	columns := p.layout.Columns()
	maps.DeleteFunc(columns, func(part, column string) bool { // the tenant and the aggregate type are parts of their own
		return strings.HasPrefix(part, "key_scope") && column != "region"
	})
	ofClaim := []string{"topic", "payload", "aggregate_type", "tenant", "source", "schema_id", "metadata", "destinations"}
	long := `(SELECT string_agg(md5(g::text), '') FROM generate_series(1, 300) g)`
	for part, column := range columns {
		kind, dies := p.types[column], 0
		if slices.Contains(ofClaim, part) {
			dies = 1
		}
		if kind == "text" && part != "status" && !strings.HasPrefix(part, "key") || kind == "jsonb" || kind == "json" {
			_, err := l.pool.Exec(t.Context(), "ALTER TABLE "+p.layout.Table+" ALTER "+column+" SET STORAGE EXTERNAL")
			ok(t, err)
			value := map[string]string{"text": long, "json": "to_json(" + long + ")", "jsonb": "to_jsonb(" + long + ")"}[kind]
			lost := dies
			if part == "delivered_to" { // read by claims too
				lost = 1
			}
			p.plant(t, l, "lost", column, value, lost)
		}
	}
	// Take away the chunks of all that is stored outside of its row.
	_, err = l.pool.Exec(t.Context(), `CREATE EXTENSION IF NOT EXISTS pg_surgery`)
	ok(t, err)
	_, err = l.pool.Exec(t.Context(), fmt.Sprintf(`DO $$ DECLARE part regclass; BEGIN
		FOR part IN SELECT c.reltoastrelid FROM pg_class c WHERE c.reltoastrelid <> 0
				AND (c.oid = '%[1]s'::regclass OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = '%[1]s'::regclass)) LOOP
			EXECUTE format('SELECT heap_force_kill(%%L, ARRAY(SELECT ctid FROM %%s))', part, part);
		END LOOP; END $$`, p.layout.Table))
	ok(t, err)
	for part, column := range columns {
		dies := 0
		if slices.Contains(ofClaim, part) || part == "key" {
			dies = 1
		}
		switch kind := p.types[column]; {
		case part == "status":
		case kind == "text" || strings.HasPrefix(kind, "character"):
			p.plant(t, l, "not UTF-8", column, `('\x6fe9'::bytea)::text`, dies)
		case part == "destinations":
			for i, value := range []string{`'true'`, `'{"a": 1}'`, `'[1]'`, `'[""]'`} {
				p.plant(t, l, fmt.Sprint("value ", i), column, value, 1)
			}
		case part == "attempts":
			p.plant(t, l, "negative", column, "-1", 1)
		case strings.HasPrefix(kind, "timestamp") && (part == "written_at" || part == "occurred_at"):
			for _, value := range []string{"infinity", "-infinity", "294276-12-31 23:59:59.999999Z", "4713-01-01 BC"} {
				dies := 0 // delivered without a time
				if kind == "timestamp without time zone" && value[0] == '2' {
					dies = 1 // no timestamptz west of Greenwich
				}
				p.plant(t, l, value, column, "'"+value+"'", dies)
			}
		}
		if kind := p.types[column]; kind == "json" {
			p.plant(t, l, "U+0000", column, `'["\u0000"]'`, map[string]int{"destinations": 1}[part])
			if part != "destinations" { // the sink fails, and the letter has to hold it
				key := "failed U+0000"
				p.plant(t, l, key, p.layout.Topic+" = 'fails', "+column, `'["\u0000"]'`, 1)
			}
		}
		if kind := p.types[column]; kind == "bigint" && (part == "schema_version" || part == "attempts") {
			p.plant(t, l, "beyond int", column, "3000000000", 1)
		}
	}
	p.plant(t, l, "failed", p.layout.Topic, "'fails'", 1)
	if column := columns["error_history"]; column != "" {
		p.plant(t, l, "an object", p.layout.Topic+" = 'fails', "+column, `'{"a": 1}'`, 1)
	}
	for _, part := range []string{"topic", "tenant", "key"} {
		if column := columns[part]; p.types[column] == "text" {
			set, value := p.layout.Topic+" = 'fails', "+column, long
			if part == "topic" {
				set, value = column, "'fails' || "+long
			}
			p.plant(t, l, "longer than an index takes", set, strings.Replace(value, "300)", "2000)", 1), 1)
		}
	}
}

// letters compares the dead letters with what was planted, and does with them what an operator can.
func (p *planted) letters(t *testing.T, l *logged, want map[string]int) {
	t.Helper()
	store, err := postgres.OpenDeadLetters(t.Context(), l.pool,
		postgres.DeadLettersConfig{Layouts: []outbox.Layout{p.layout}})
	ok(t, err)
	got := 0
	for f := (deadletter.Filter{Limit: 100}); ; {
		page, next, err := store.List(t.Context(), f)
		ok(t, err)
		got += len(page)
		for _, letter := range page {
			if _, err := store.Show(t.Context(), letter.ID, ""); err != nil {
				t.Errorf("show: %v", err)
			}
		}
		if f.After = next; next == "" {
			break
		}
	}
	total := 0
	for _, n := range want {
		total += n
	}
	if got != total {
		rows, err := l.pool.Query(t.Context(), "SELECT error_history->-1->>'error' FROM job_dlq ORDER BY 1")
		ok(t, err)
		for rows.Next() {
			var reason string
			ok(t, rows.Scan(&reason))
			t.Log(reason)
		}
		t.Errorf("%d dead letters, want %d: %v", got, total, slices.Sorted(maps.Keys(want)))
	}
	by := deadletter.Operator{Actor: "test", Reason: "test"}
	all := deadletter.Selection{All: true}
	sum, err := deadletter.Replay(t.Context(), store, deadletter.ReplayOptions{Operator: by, Selection: all})
	if err != nil || sum.Letters+sum.Skipped != got {
		t.Errorf("replayed %+v of %d, error %v", sum, got, err)
	}
	for left := sum.Skipped; left > 0; {
		n, err := store.DiscardPage(t.Context(), all, by, 50)
		ok(t, err)
		if left -= n; n == 0 {
			t.Errorf("%d dead letters were neither replayed nor discarded", left)
			break
		}
	}
}

// Every value that makes a row unreadable, or its outcome impossible to record, costs that row one
// dead letter. All other rows are delivered, also those of its key. The dead letter can be shown,
// replayed or refused, and discarded.
func TestEachUnreadableValueIsOneDeadLetter(t *testing.T) {
	t.Parallel()
	for name, p := range plantedTables() {
		t.Run(name, func(t *testing.T) {
			if name != "mapped" { // which has columns of every type
				tier.Full(t)
			}
			t.Parallel()
			l := p.prepare(t)
			p.plants(t, l)
			l.failing(func(d outbox.Delivery) error {
				if strings.HasPrefix(d.Topic, "fails") {
					return outbox.Permanent(fmt.Errorf("no\x00 \xff"))
				}
				return nil
			})
			stop := l.relay(func(c *relay.Config) { c.Tables = []relay.Table{{Layout: p.layout}} })
			delivered := 0
			for _, dies := range p.dead {
				delivered += 2 - dies
			}
			eventually(t, "the others are delivered", func() bool { return len(l.arrived()) >= delivered })
			total := len(p.dead)*2 - delivered
			eventually(t, "each of them is a dead letter", func() bool {
				return one[int](t, l.pool, "SELECT count(*) FROM job_dlq") >= total
			})
			stop()
			if n := len(l.arrived()); n != delivered {
				t.Errorf("%d were delivered, want %d", n, delivered)
				for _, d := range l.got {
					t.Log(d.AggregateID, d.Topic, d.Position)
				}
			}
			p.letters(t, l, p.dead)
		})
	}
}

// An operator can list and skip such rows before a relay has met them.
func TestUnreadableRowsCanBeSkipped(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, p := range plantedTables() {
		if !p.layout.KeepsState() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := p.prepare(t)
			p.plants(t, l)
			p.repair(t, l)
			b, err := operate.On(pgcold.DB{Pool: l.pool}).Browser(t.Context(), p.layout)
			ok(t, err)
			by := operate.Skip{Actor: "test", Reason: "test", Run: uuid.New()}
			n, err := b.Skip(t.Context(), operate.Selection{All: true}, by, 10_000)
			if err != nil || n != 2*len(p.dead) {
				t.Fatalf("skipped %d, error %v, want %d", n, err, 2*len(p.dead))
			}
			p.letters(t, l, map[string]int{"": 2 * len(p.dead)})
		})
	}
}

// repair gives a tenant to rows whose tenant cannot be read: a skip asks for the tenant, and is
// refused.
func (p *planted) repair(t *testing.T, l *logged) {
	t.Helper()
	if p.types[p.layout.Tenant] == "text" {
		_, err := l.pool.Exec(t.Context(), "UPDATE queue SET owner = NULL WHERE customer LIKE '%lost in owner'")
		ok(t, err)
	}
}

func (p *planted) prepare(t *testing.T) *logged {
	t.Helper()
	l := &logged{t: t, pool: newPool(t, newDatabase(t, "core", "events", "crawl", "log"))}
	for _, statement := range []string{p.create, "CREATE CAST (bytea AS text) WITHOUT FUNCTION",
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''America/New_York''', current_database()); END $$"} {
		_, err := l.pool.Exec(t.Context(), statement)
		ok(t, err)
	}
	l.pool.Reset()
	return l
}
