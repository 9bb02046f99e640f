package tabletest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Layouts are those of the tables that come with a store.
func Layouts() []outbox.Layout {
	return []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox()}
}

// Legacy is the layout of a table of another shape than ours. A harness makes it: its columns are n
// (drawn by the database), uid, kind, body, customer, region, goes, version, done_at, tries, due,
// problem.
func Legacy() outbox.Layout {
	return outbox.Layout{
		Table: "legacy", ID: "uid", Position: "n", Topic: "kind", Payload: "body", Key: "customer",
		KeyScope: []string{"region"}, Tenant: "region",
		Destinations: "goes", SchemaVersion: "version", DeliveredAt: "done_at", Attempts: "tries", NextRetryAt: "due",
		LastError: "problem",
	}
}

// Aging names the columns that tell how old something is, by their tables.
func Aging(l outbox.Layout) map[string][]string {
	columns := map[string][]string{
		"job_dlq": {"replayed_at", "discarded_at"}, "outbox_maintenance": {"ran_at", "swept_at", "expires_at"},
	}
	for _, c := range []string{l.DeliveredAt, l.WrittenAt, l.NextRetryAt} {
		if c != "" {
			columns[l.Table] = append(columns[l.Table], c)
		}
	}
	return columns
}

// CrawlRun is the run that the rows of crawl_outbox belong to.
const CrawlRun = "00000000-0000-0000-0000-000000000001"

// Database is what a harness has of a store's database: its statements and its tables. Parameters
// are ?1, ?2 and so on.
type Database struct {
	Exec  func(t *testing.T, sql string, args ...any)
	Value func(t *testing.T, sql string, args ...any) string
	Open  func(t *testing.T, layout outbox.Layout) outbox.Store
}

// MakeRun inserts CrawlRun.
func (d Database) MakeRun(t *testing.T) {
	t.Helper()
	d.Exec(t, "INSERT INTO crawl_runs (id, app_package) VALUES (?1, 'shop')", CrawlRun)
}

// MakeApp inserts an application, which is a tenant.
func (d Database) MakeApp(t *testing.T, namespace string) {
	t.Helper()
	d.Exec(t, "INSERT INTO apps (name, namespace) VALUES (?1, ?2)", namespace, namespace)
}

// Place inserts one undelivered row into one of the seeds' tables by plain SQL, and returns its
// event id.
func (d Database) Place(t *testing.T, table, topic, key string) uuid.UUID {
	t.Helper()
	id := NewID(t)
	switch table {
	case "outbox_events":
		d.Exec(t,
			`INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload) VALUES (?1, ?2, ?3, 'Order', ?4, 'shop', '{"n": 1}')`,
			id.String(), topic, time.Now(), key)
	case "event_outbox":
		d.Exec(t,
			`INSERT INTO event_outbox (id, app_id, event_id, event_type, event_key, payload) VALUES (?1, (SELECT id FROM apps WHERE namespace = 'default'), ?2, ?3, ?4, '{"n": 1}')`,
			NewID(t).String(), id.String(), topic, key)
	case "crawl_outbox":
		d.Exec(t,
			`INSERT INTO crawl_outbox (crawl_id, event_id, event_type, payload, seq) VALUES (?1, ?2, ?3, '{"n": 1}', 7)`,
			CrawlRun, id.String(), topic)
	default:
		t.Fatalf("no way to fill %s", table)
	}
	return id
}

// PlaceLegacy inserts a row into the table of Legacy.
func (d Database) PlaceLegacy(t *testing.T, kind, customer string) uuid.UUID {
	t.Helper()
	id := NewID(t)
	d.Exec(t,
		`INSERT INTO legacy (uid, kind, body, customer, region, goes, version, tries) VALUES (?1, ?2, '{"b":1, "a":[2]}', ?3, 'eu', '["x", "y"]', 4, 0)`, id.String(), kind, customer)
	return id
}

// PlaceOrders writes n events for each key, round robin, of the topics order.0 and so on.
func (d Database) PlaceOrders(t *testing.T, n int, keys ...string) {
	t.Helper()
	for i := range n {
		for _, key := range keys {
			d.Place(t, "outbox_events", fmt.Sprintf("order.%d", i), key)
		}
	}
}

// Count returns how many rows of a table meet a condition.
func (d Database) Count(t *testing.T, table, where string, args ...any) int64 {
	t.Helper()
	var n int64
	if _, err := fmt.Sscan(d.Value(t, "SELECT count(*) FROM "+table+" WHERE "+where, args...), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// NewID is later than all before it.
func NewID(t *testing.T) uuid.UUID {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// SameJSON tells whether two texts are the same JSON value.
func SameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
