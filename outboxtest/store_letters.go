package outboxtest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
)

// letterTests are what people see of a table and of what could not arrive, what they do about it, and how old rows go.
func letterTests() []storeTest {
	return slices.Concat(browseTests(), skipTests(), againTests(), lookTests(), replayTests(), clearTests(),
		collectTests(),
		retentionTests(), mappedTests())
}

// operator is who acts in the tests.
var operator = deadletter.Operator{Actor: "test@here", Reason: "because"}

// seedLayouts are those of the tables that come with the store.
func seedLayouts() []outbox.Layout {
	return []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox()}
}

func (s *storeSuite) letters(t *testing.T) deadletter.Store {
	t.Helper()
	return s.Letters(t, seedLayouts()...)
}

// crawlRun is the run that the rows of crawl_outbox belong to.
const crawlRun = "00000000-0000-0000-0000-000000000001"

func (s *storeSuite) makeRun(t *testing.T) {
	t.Helper()
	s.Exec(t, "INSERT INTO crawl_runs (id, app_package) VALUES (?1, 'shop')", crawlRun)
}

func (s *storeSuite) makeApp(t *testing.T, namespace string) {
	t.Helper()
	s.Exec(t, "INSERT INTO apps (name, namespace) VALUES (?1, ?2)", namespace, namespace)
}

// newID is later than all before it.
func newID(t *testing.T) uuid.UUID {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// place inserts one undelivered row into one of the seeds' tables by plain SQL, and returns its event id.
func (s *storeSuite) place(t *testing.T, table, topic, key string) uuid.UUID {
	t.Helper()
	id := newID(t)
	switch table {
	case "outbox_events":
		s.Exec(t,
			`INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, payload) VALUES (?1, ?2, ?3, 'Order', ?4, 'shop', '{"n": 1}')`,
			id.String(), topic, time.Now(), key)
	case "event_outbox":
		s.Exec(t,
			`INSERT INTO event_outbox (id, app_id, event_id, event_type, event_key, payload) VALUES (?1, (SELECT id FROM apps WHERE namespace = 'default'), ?2, ?3, ?4, '{"n": 1}')`,
			newID(t).String(), id.String(), topic, key)
	case "crawl_outbox":
		s.Exec(t,
			`INSERT INTO crawl_outbox (crawl_id, event_id, event_type, payload, seq) VALUES (?1, ?2, ?3, '{"n": 1}', 7)`,
			crawlRun, id.String(), topic)
	default:
		t.Fatalf("no way to fill %s", table)
	}
	return id
}

// orders writes n events for each key, round robin.
func (s *storeSuite) orders(t *testing.T, n int, keys ...string) {
	t.Helper()
	for i := range n {
		for _, key := range keys {
			s.place(t, "outbox_events", fmt.Sprintf("order.%d", i), key)
		}
	}
}

// undertaker serves a table and lets its events die, or arrive.
type undertaker struct {
	t     *testing.T
	store outbox.Store
	owner uuid.UUID
	lanes []outbox.Lane
}

func (s *storeSuite) burying(t *testing.T, layout outbox.Layout) undertaker {
	t.Helper()
	u := undertaker{t: t, store: s.Table(t, layout), owner: newID(t)}
	leased, err := u.store.Lease(t.Context(), outbox.LeaseRequest{Owner: u.owner, Name: "undertaker", TTL: time.Minute})
	if err != nil || len(leased.Lanes) != outbox.Lanes {
		t.Fatalf("leased %d lanes of %s, error %v", len(leased.Lanes), layout.Table, err)
	}
	u.lanes = leased.Lanes
	return u
}

// settle claims everything there is, settles it as dead at the destinations that fails names, or as delivered if it
// names none, and returns it in the order of positions.
func (u undertaker) settle(fails func(*outbox.Record) []string) []*outbox.Record {
	u.t.Helper()
	records, err := u.store.Claim(u.t.Context(), u.lanes, outbox.ClaimLimit{Records: 1000, Bytes: 8 << 20})
	if err != nil {
		u.t.Fatal(err)
	}
	var outcomes []outbox.Outcome
	for _, r := range records {
		o := outbox.Outcome{Record: r, State: outbox.Delivered, Attempts: r.Attempts + 1}
		for _, d := range fails(r) {
			o.State = outbox.Dead
			o.Failures = append(o.Failures,
				outbox.Failure{Destination: d, Reason: outbox.ReasonDeliveryFailed, Error: "connection refused by " + d})
		}
		outcomes = append(outcomes, o)
	}
	if got, err := u.store.Settle(u.t.Context(), u.owner, u.lanes, outcomes); err != nil ||
		got.Delivered+got.Dead != len(records) {
		u.t.Fatalf("settled %+v of %d, error %v", got, len(records), err)
	}
	slices.SortFunc(records, func(a, b *outbox.Record) int { return int(a.Position - b.Position) })
	return records
}

func dieAt(destinations ...string) func(*outbox.Record) []string {
	return func(*outbox.Record) []string { return destinations }
}

func arrive(*outbox.Record) []string { return nil }

// sameJSON tells whether two texts are the same JSON value.
func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
