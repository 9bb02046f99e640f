package outboxtest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func claimTests() []storeTest {
	return []storeTest{
		{name: "a committed event is claimed, a rolled-back one never", run: claimsWhatCommitted},
		{name: "an event is not claimed before its transaction commits", run: claimsNothingUncommitted},
		{name: "an event that commits late, behind later positions, is claimed", run: claimsLateCommit,
			needs: concurrentWriters},
		{name: "the oldest events are claimed first", run: claimsOldestFirst},
		{name: "a claim is limited in records and bytes, but for its first event", run: limitsClaims},
		{name: "a claim leaves out the events and the keys that it is told", run: leavesOut},
		{name: "a relay claims from its own lanes, and all lanes together bring every event once", run: claimsFromLanes},
		{name: "events of one key share a lane, and events without a key use all lanes", run: spreadsOverLanes},
		{name: "one key in two tenants, or of two types, is two keys", run: separatesScopes, notInLog: noState},
		{name: "events wait behind a key whose head waits, those of other keys do not", run: waitsBehindHead,
			notInLog: noState},
		{name: "events without a key are one sequence per scope if the layout says so", run: keepsKeylessSequence,
			notInLog: noOther},
		{name: "every field of an event comes back", run: bringsEveryField},
		{name: "rows of plain SQL are claimed in each of the three tables", run: claimsPlainSQL},
		{name: "destinations that are no list of names are a defect of their row", run: findsDefects},
		{name: "a table of another shape is served through its layout, with NULL wherever it may be", run: servesMappedTable,
			notInLog: noOther},
	}
}

func concurrentWriters(f StoreFeatures) (string, bool) {
	return "ConcurrentWriters", f.ConcurrentWriters
}

func claimsWhatCommitted(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	r.wants()
	s.commits(t, keyed("committed", "1"))
	if err := s.Write(t.Context(), outbox.WriterConfig{}, false, []outbox.Event{keyed("rolled back", "1")}); err != nil {
		t.Fatal(err)
	}
	s.commits(t, keyed("committed too", "1"))
	r.wants("committed", "committed too")
	r.wants("committed", "committed too") // a claim takes nothing away
}

func claimsNothingUncommitted(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	end := s.Hold(t, outbox.WriterConfig{}, keyed("open", "1"))
	r.wants()
	end(true)
	r.wants("open")
	end = s.Hold(t, outbox.WriterConfig{}, keyed("given up", "1"))
	end(false)
	r.wants("open")
}

// A claim that remembered the last position would never see the first event.
func claimsLateCommit(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	end := s.Hold(t, outbox.WriterConfig{}, keyed("first", "1"))
	s.commits(t, keyed("second", "2"))
	r.settles(outbox.Settled{Delivered: 1}, delivered(r.wants("second")...)...)
	end(true)
	r.wants("first")
}

func claimsOldestFirst(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	var want []string
	for i := range 30 {
		topic := strconv.Itoa(i)
		s.commits(t, keyed(topic, strconv.Itoa(i%7)))
		want = append(want, topic)
	}
	records := r.wants(want...)
	if !slices.IsSortedFunc(records, func(a, b *outbox.Record) int { return int(a.Position - b.Position) }) {
		t.Error("positions do not rise")
	}
}

func leavesOut(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, keyed("a1", "a"), keyed("a2", "a"), keyed("b1", "b"), keyed("free1", ""), keyed("free2", ""))
	all := r.wants("a1", "a2", "b1", "free1", "free2")
	for _, c := range []struct {
		without outbox.ClaimLimit
		want    []string
	}{
		{outbox.ClaimLimit{WithoutEvents: []uuid.UUID{all[0].ID, all[3].ID}}, []string{"a2", "b1", "free2"}},
		{outbox.ClaimLimit{WithoutKeys: []int64{all[0].OrderKey}}, []string{"b1", "free1", "free2"}},
	} {
		c.without.Records, c.without.Bytes = 100, 1<<20
		records, err := r.Claim(t.Context(), r.lanes, c.without)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rec := range records {
			got = append(got, rec.Topic)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("without %v and %v it claims %q, want %q", c.without.WithoutEvents, c.without.WithoutKeys, got, c.want)
		}
	}
}

func limitsClaims(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	events := numbered(10, "a")
	for i := range events {
		events[i].Payload = json.RawMessage(`"` + strings.Repeat("x", 998) + `"`)
	}
	s.commits(t, events...)
	for _, tt := range []struct {
		limit outbox.ClaimLimit
		want  int
	}{
		{outbox.ClaimLimit{Records: 3, Bytes: 1 << 20}, 3},
		{outbox.ClaimLimit{Records: 100, Bytes: 1 << 20}, 10},
		{outbox.ClaimLimit{Records: 100, Bytes: 4500}, 4},
		{outbox.ClaimLimit{Records: 100, Bytes: 10}, 1},
	} {
		if got := topics(r.claimLimited(r.lanes, tt.limit)); len(got) != tt.want || got[0] != "a/1" {
			t.Errorf("%+v: claimed %q, want the first %d", tt.limit, got, tt.want)
		}
	}
}

func claimsFromLanes(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	for i := range 200 {
		s.rows.Place(t, "outbox_events", strconv.Itoa(i), "key "+strconv.Itoa(i%90))
	}
	if got := r.claimLimited(nil, everything); len(got) != 0 {
		t.Errorf("%d records without a lane", len(got))
	}
	seen := map[string]bool{}
	for n := range r.lanes {
		for _, rec := range r.claimLimited(r.lanes[n:n+1], everything) {
			if rec.Lane != r.lanes[n].Number || seen[rec.Topic] {
				t.Fatalf("%s of lane %d came with lane %d, seen before: %t", rec.Topic, rec.Lane, r.lanes[n].Number,
					seen[rec.Topic])
			}
			seen[rec.Topic] = true
		}
	}
	if len(seen) != 200 {
		t.Errorf("64 lanes bring %d of 200 events", len(seen))
	}
}

func spreadsOverLanes(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	var events []outbox.Event
	for i := range 640 {
		events = append(events, keyed("keyless", ""), keyed("keyed", fmt.Sprintf("order-%d", i)),
			keyed("keyed", fmt.Sprintf("order-%d", i)))
	}
	s.commits(t, events...)
	ofKey, used := map[string]int16{}, map[string]map[int16]bool{"keyless": {}, "keyed": {}}
	for _, rec := range r.claim() {
		if rec.Keyed != (rec.Topic == "keyed") || rec.Lane < 0 || rec.Lane >= outbox.LaneCount {
			t.Fatalf("%s: keyed %t, lane %d", rec.Topic, rec.Keyed, rec.Lane)
		}
		used[rec.Topic][rec.Lane] = true
		if lane, again := ofKey[rec.AggregateID]; rec.Keyed && again && lane != rec.Lane {
			t.Fatalf("key %s is in lanes %d and %d", rec.AggregateID, lane, rec.Lane)
		}
		ofKey[rec.AggregateID] = rec.Lane
	}
	for topic, lanes := range used {
		if len(lanes) < 55 {
			t.Errorf("640 %s events use %d of 64 lanes", topic, len(lanes))
		}
	}
}

func separatesScopes(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	scoped := func(topic, tenant, aggregate, key string) outbox.Event {
		e := keyed(topic, key)
		e.TenantID, e.AggregateType = tenant, aggregate
		return e
	}
	s.commits(t, scoped("head", "t", "Order", "42"), scoped("tenant", "u", "Order", "42"),
		scoped("type", "t", "Invoice", "42"), scoped("no type", "t", "", "42"),
		scoped("runs together", "tO", "rder", "42"), scoped("behind", "t", "Order", "42"))
	records := r.claim()
	keys := map[int64]string{}
	for _, rec := range records[:5] {
		if other, taken := keys[rec.OrderKey]; taken || !rec.Keyed {
			t.Errorf("%s has the key of %s (keyed %t)", rec.Topic, other, rec.Keyed)
		}
		keys[rec.OrderKey] = rec.Topic
	}
	if records[5].OrderKey != records[0].OrderKey {
		t.Error("two events of one key have two keys")
	}
	r.settles(outbox.Settled{Retried: 1}, retried(records[0]))
	r.wants("tenant", "type", "no type", "runs together")
}

func waitsBehindHead(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, keyed("a1", "a"), keyed("b1", "b"), keyed("keyless", ""), keyed("a2", "a"), keyed("b2", "b"))
	r.settles(outbox.Settled{Retried: 2}, retried(r.claim()[0]), retried(r.claim()[2]))
	s.commits(t, keyed("a3", "a"), keyed("c1", "c"), keyed("keyless too", ""))
	r.wants("b1", "b2", "c1", "keyless too")
	s.Exec(t, "UPDATE outbox_events SET next_retry_at = ?1 WHERE event_topic = 'a1'", time.Now().Add(-time.Second))
	r.wants("a1", "b1", "a2", "b2", "a3", "c1", "keyless too")
}

// keepsKeylessSequence has events without a key of two applications. A failing one blocks the later
// ones of its application, and neither the other application nor an event with a key.
func keepsKeylessSequence(t *testing.T, s *storeSuite) {
	offer := func(app, topic string, key any) {
		s.Exec(t, `INSERT INTO event_outbox (app_id, event_id, event_type, payload, event_key)
			VALUES ((SELECT id FROM apps WHERE namespace = ?1), ?2, ?3, '1', ?4)`, app, tabletest.NewID(t).String(), topic, key)
	}
	s.rows.MakeApp(t, "acme")
	s.rows.MakeApp(t, "umbrella")
	for n := range 2 {
		offer("acme", fmt.Sprintf("a%d", n), nil)
		offer("umbrella", fmt.Sprintf("u%d", n), nil)
		offer("acme", fmt.Sprintf("k%d", n), "42")
	}
	r := s.serve(t, outbox.EventOutbox())
	as := func(layout outbox.Layout) *server {
		return &server{Store: s.Table(t, layout), t: t, owner: r.owner, lanes: r.lanes}
	}
	unkeyed := outbox.EventOutbox()
	unkeyed.Key, unkeyed.KeyScope = "", nil
	for _, layout := range []outbox.Layout{unkeyed, outbox.EventOutbox()} {
		sequence := map[string]*outbox.Record{}
		for _, rec := range as(layout).claim() {
			if want := s.Value(t, "SELECT id FROM apps WHERE namespace = ?1", rec.TenantID); rec.AppID.String() != want {
				t.Errorf("%s has application %s, want %s", rec.Topic, rec.AppID, want)
			}
			name := rec.Topic[:1]
			if layout.Key == "" && name == "k" {
				name = "a"
			}
			if first := sequence[name]; first == nil {
				sequence[name] = rec
			} else if !rec.Keyed || rec.OrderKey != first.OrderKey || rec.Lane != first.Lane {
				t.Errorf("%s has key %d (%t) and lane %d; the first of its sequence has %d and %d", rec.Topic, rec.OrderKey,
					rec.Keyed, rec.Lane, first.OrderKey, first.Lane)
			}
		}
	}
	parallel := outbox.EventOutbox()
	parallel.KeylessScope = ""
	for _, rec := range as(parallel).claim() {
		if rec.Keyed != (rec.Topic[0] == 'k') {
			t.Errorf("%s: keyed %t without a scope for events without a key", rec.Topic, rec.Keyed)
		}
	}
	r.settles(outbox.Settled{Retried: 1}, retried(r.claim()[0]))
	offer("acme", "a2", nil)
	r.wants("u0", "k0", "u1", "k1")
	s.Exec(t, "UPDATE event_outbox SET next_retry_at = ?1 WHERE event_type = 'a0'", time.Now().Add(-time.Second))
	r.wants("a0", "u0", "k0", "a1", "u1", "k1", "a2")
}

func bringsEveryField(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	full := outbox.Event{
		ID: tabletest.NewID(t), Topic: "order.placed", OccurredAt: time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC),
		SchemaID: "order", SchemaVersion: 3, AggregateType: "Order",
		AggregateID: "42 ü \U0001F600", TenantID: "acme", Source: "shop", Destinations: []string{"a", "b c"},
		Payload:  json.RawMessage(`{"b": 1.50, "a": ["ü", null, 12345678901234567890]}`),
		Metadata: map[string]any{"trace_id": "t", "n": 1.5},
	}
	least := outbox.Event{Topic: "least", Source: "shop", Payload: json.RawMessage("null")}
	before := time.Now().Add(-time.Second)
	s.commits(t, full, least)
	records := r.wants("order.placed", "least")
	got := *records[0]
	if !s.sameContent(full.Payload, got.Payload) ||
		!tabletest.SameJSON(got.RawMetadata, []byte(`{"trace_id": "t", "n": 1.5}`)) ||
		got.Metadata != nil {
		t.Errorf("payload %s, metadata %s", got.Payload, got.RawMetadata)
	}
	if !got.OccurredAt.Equal(full.OccurredAt) || got.WrittenAt.Before(before) ||
		got.WrittenAt.After(time.Now().Add(time.Second)) {
		t.Errorf("occurred %s, written %s", got.OccurredAt, got.WrittenAt)
	}
	if !got.Keyed || got.Position <= 0 || got.Sequence != got.Position || got.Attempts != 0 || got.Generation != 0 ||
		got.DeliveredTo != nil || got.Defect != "" {
		t.Errorf("got %+v", got)
	}
	got.OccurredAt, got.Payload, full.OccurredAt, full.Payload, full.Metadata = time.Time{}, nil, time.Time{}, nil, nil
	if have, want := fmt.Sprintf("%+v", got.Event), fmt.Sprintf("%+v", full); have != want {
		t.Errorf("got  %s\nwant %s", have, want)
	}
	if l := records[1]; l.ID == uuid.Nil || l.Keyed || l.TenantID != eventrow.DefaultTenant || l.SchemaVersion != 1 ||
		l.RawMetadata != nil || l.Destinations != nil || string(l.Payload) != "null" ||
		l.AggregateType+l.AggregateID+l.SchemaID != "" || time.Since(l.OccurredAt) > time.Minute {
		t.Errorf("the least event: got %+v", *l)
	}
}

// FR-005 and FR-007: plain SQL with the seeds' own columns is enough to be delivered.
func claimsPlainSQL(t *testing.T, s *storeSuite) {
	s.rows.MakeRun(t)
	s.rows.MakeApp(t, "Acme")
	id := tabletest.NewID(t)
	for _, tt := range []struct {
		layout         outbox.Layout
		insert         string
		args           []any
		topic, key     string
		tenant, source string
		sequence       int64
	}{
		{outbox.OutboxEvents(),
			"INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ('a.b', ?1, 'shop', '{}')",
			[]any{time.Now()}, "a.b", "", "default", "shop", 1},
		{outbox.EventOutbox(),
			"INSERT INTO event_outbox (app_id, event_id, event_type, payload) VALUES ((SELECT id FROM apps WHERE namespace = " +
				"'Acme'), ?1, 'c.d', '{}')",
			[]any{id.String()}, "c.d", "", "Acme", "event_outbox", 1},
		{outbox.CrawlOutbox(), "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES (?1, 'RUN_STARTED', '{}')",
			[]any{tabletest.CrawlRun}, "RUN_STARTED", tabletest.CrawlRun, "default", "crawl_outbox", 0},
		{outbox.CrawlOutbox(),
			"INSERT INTO crawl_outbox (crawl_id, event_type, payload, seq) VALUES (?1, 'NODE_START', '{}', 7)",
			[]any{tabletest.CrawlRun},
			"NODE_START", tabletest.CrawlRun, "default", "crawl_outbox", 7},
	} {
		s.Exec(t, tt.insert, tt.args...)
		r := s.serve(t, tt.layout)
		rec := r.only()
		keyed := tt.key != "" || tt.layout.KeylessScope != ""
		if rec.Topic != tt.topic || rec.AggregateID != tt.key || rec.Keyed != keyed || rec.TenantID != tt.tenant ||
			rec.Source != tt.source || rec.Sequence != tt.sequence ||
			string(rec.Payload) != "{}" || rec.ID == uuid.Nil || rec.WrittenAt.IsZero() || rec.OccurredAt.IsZero() {
			t.Errorf("%s: got %+v", tt.layout.Table, *rec)
		}
		r.settles(outbox.Settled{Delivered: 1}, delivered(rec)...)
		if err := r.Leave(t.Context(), r.owner); err != nil {
			t.Fatal(err)
		}
	}
}

func findsDefects(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	for i, bad := range []string{`"a"`, `{"a": 1}`, `[1]`, `["a", ""]`, `["a", null]`} {
		// As a row from before the INSERT was refused.
		topic := fmt.Sprintf("bad.%d", i)
		s.Exec(t, "INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES (?1, ?2, 'shop', '{}')",
			topic, time.Now())
		s.Exec(t, "UPDATE outbox_events SET destination_topics = ?1 WHERE event_topic = ?2", bad, topic)
		if rec := r.only(); rec.Defect == "" {
			t.Errorf("%s: no defect, destinations %q", bad, rec.Destinations)
		} else {
			r.settles(outbox.Settled{Dead: 1}, buried(rec, ""))
		}
		if got := s.Value(t, "SELECT count(*) FROM job_dlq"); got != strconv.Itoa(i+1) {
			t.Errorf("%s: %s letters, want %d", bad, got, i+1)
		}
	}
	for _, good := range []string{"null", "[]"} {
		s.Exec(t,
			"INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, destination_topics) VALUES ('good', ?1, "+
				"'shop', '{}', ?2)", time.Now(), good)
		rec := r.only()
		if rec.Defect != "" || len(rec.Destinations) != 0 {
			t.Errorf("%s: defect %q, destinations %q", good, rec.Defect, rec.Destinations)
		}
		r.settles(outbox.Settled{Delivered: 1}, delivered(rec)...)
	}
}

func servesMappedTable(t *testing.T, s *storeSuite) {
	layout := s.Mapped(t)
	r := s.serve(t, layout)
	id := tabletest.NewID(t)
	s.Exec(t,
		`INSERT INTO legacy (uid, kind, body, customer, region, goes, version, tries) VALUES (?1, 'paid', '{"a": 1}', '7', 'north', '["x"]', 2, 0)`, id.String())
	rec := r.only()
	if rec.ID != id || rec.Topic != "paid" || string(rec.Payload) != `{"a": 1}` || rec.AggregateID != "7" ||
		rec.TenantID != "north" || !rec.Keyed || rec.SchemaVersion != 2 ||
		!slices.Equal(rec.Destinations, []string{"x"}) || rec.Source != "legacy" || rec.Defect != "" ||
		rec.WrittenAt.IsZero() {
		t.Errorf("got %+v", *rec)
	}
	r.settles(outbox.Settled{Retried: 1}, retried(rec))
	r.wants()
	if got := s.Value(t, "SELECT problem FROM legacy"); got != "connection refused" {
		t.Errorf("problem %q", got)
	}
	s.Exec(t, "UPDATE legacy SET due = NULL")
	if rec = r.only(); rec.Attempts != 1 {
		t.Errorf("%d attempts", rec.Attempts)
	}
	r.settles(outbox.Settled{Delivered: 1}, delivered(rec)...)
	r.wants()
	for _, settle := range []func(*outbox.Record) outbox.Outcome{
		retried,
		func(rec *outbox.Record) outbox.Outcome { return delivered(rec)[0] },
		func(rec *outbox.Record) outbox.Outcome { return buried(rec, "") },
	} {
		s.Exec(t, "DELETE FROM legacy")
		s.Exec(t, "INSERT INTO legacy (uid) VALUES (?1)", tabletest.NewID(t).String())
		rec := r.only()
		if string(rec.Payload) != "null" || rec.Topic != "" || rec.Keyed || rec.SchemaVersion != 1 || rec.Attempts != 0 ||
			rec.Defect != "" {
			t.Errorf("a row of NULLs: got %+v", *rec)
		}
		if got := r.settle(settle(rec)); got.Lost != 0 {
			t.Errorf("settled %+v", got)
		}
		r.wants()
	}
	if got := s.Value(t, "SELECT count(*) FROM legacy") + s.Value(t, "SELECT count(*) FROM job_dlq"); got != "01" {
		t.Errorf("rows and letters %s: a dead row of a table without a status leaves it, as a letter", got)
	}
}
