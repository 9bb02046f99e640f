package operatetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func browseTests() []behaviour {
	return []behaviour{
		{name: "events are listed newest first, page by page", run: listsNewestFirst},
		{name: "events are found by status, tenant, key and topic", run: findsEvents},
		{name: "applications are the tenants of the event bus", run: findsByApplication},
		{name: "an event is shown by its id and by its position", run: showsEvent},
		{name: "what a table cannot be asked for is refused", run: refusesFilters},
		{name: "an event tells what it waits behind", run: tellsWhatItWaitsBehind},
		{name: "lanes tell who serves them", run: reportsLanes},
		{name: "lanes tell their backlog", run: reportsBacklog},
		{name: "a table of another shape is browsed", run: browsesMapped},
	}
}

func listsNewestFirst(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	for _, layout := range tabletest.Layouts() {
		var want []string
		for i := range 7 {
			topic := fmt.Sprintf("t.%d", i)
			s.rows.Place(t, layout.Table, topic, "k")
			want = append([]string{topic}, want...)
			time.Sleep(time.Millisecond) // by id where that is the order: of one millisecond they are ordered by chance
		}
		b := s.Browser(t, layout)
		var topics []string
		var written []time.Time
		pages, f := 0, operate.Filter{Limit: 3}
		for more := true; more; more = f.After != "" {
			rows, next, err := b.List(t.Context(), f)
			if err != nil {
				t.Fatalf("%s: %v", layout.Table, err)
			}
			for _, r := range rows {
				topics = append(topics, r.Topic)
				if r.WrittenAt == nil || time.Since(*r.WrittenAt).Abs() > time.Minute {
					t.Fatalf("%s: written at %v", layout.Table, r.WrittenAt)
				}
				written = append(written, *r.WrittenAt)
			}
			pages, f.After = pages+1, next
		}
		if pages != 3 || !slices.Equal(topics, want) {
			t.Errorf("%s: got %v in %d pages, want %v in 3", layout.Table, topics, pages, want)
			continue
		}
		for _, c := range []struct {
			f    operate.Filter
			want []string
		}{
			{operate.Filter{Since: written[2]}, want[:3]},
			{operate.Filter{Until: written[2]}, want[3:]},
			{operate.Filter{Since: written[2], Until: written[1]}, want[2:3]},
		} {
			rows, _, err := b.List(t.Context(), c.f)
			var topics []string
			for _, r := range rows {
				topics = append(topics, r.Topic)
			}
			if err != nil || !slices.Equal(topics, c.want) {
				t.Errorf("%s, since %s until %s: got %v, error %v, want "+
					"%v", layout.Table, c.f.Since, c.f.Until, topics, err,
					c.want)
			}
		}
	}
}

func findsEvents(t *testing.T, s *suite) {
	for _, r := range [][4]string{{"order.placed", "acme", "42", "NEW"}, {"order.paid", "acme", "42", "FAILED"},
		{"order.placed", "acme", "43", "SENT"}, {"order.placed", "umbrella", "42", "DEAD"}} {
		s.Exec(t,
			`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, tenant_id, aggregate_id, status) VALUES (?1, ?2, 'shop', '1', ?3, ?4, ?5)`,
			r[0], time.Now(), r[1], r[2], r[3])
	}
	s.rows.MakeRun(t)
	for topic, at := range map[string][2]any{"A": {nil, nil}, "B": {time.Now(), nil}, "C": {nil, time.Now()}} {
		s.Exec(t,
			"INSERT INTO crawl_outbox (crawl_id, event_type, payload, published_at, next_retry_at) VALUES (?1, ?2, "+
				"'1', ?3, ?4)",
			tabletest.CrawlRun, topic, at[0], at[1])
	}
	events, crawl := s.Browser(t, outbox.OutboxEvents()), s.Browser(t, outbox.CrawlOutbox())
	for _, c := range []struct {
		b    *operate.Browser
		f    operate.Filter
		want int
	}{
		{events, operate.Filter{}, 4},
		{events, operate.Filter{Limit: 2}, 2},
		{events, operate.Filter{Statuses: []string{"new", "Failed"}}, 2},
		{events, operate.Filter{Statuses: []string{"SENT", "dead", "new"}}, 3},
		{events, operate.Filter{Tenant: "acme"}, 3},
		{events, operate.Filter{Tenant: "acme", Key: "42"}, 2},
		{events, operate.Filter{Topic: "order.placed", Key: "42"}, 2},
		{events, operate.Filter{Topic: "order.placed", Statuses: []string{"DEAD"}}, 1},
		{events, operate.Filter{Key: "no such"}, 0},
		{crawl, operate.Filter{}, 3},
		{crawl, operate.Filter{Tenant: "default"}, 3},
		{crawl, operate.Filter{Tenant: "acme"}, 0},
		{crawl, operate.Filter{Statuses: []string{"pending"}}, 1},
		{crawl, operate.Filter{Statuses: []string{"retry"}}, 1},
		{crawl, operate.Filter{Statuses: []string{"delivered", "RETRY"}}, 2},
		{crawl, operate.Filter{Key: tabletest.CrawlRun, Topic: "B"}, 1},
	} {
		rows, _, err := c.b.List(t.Context(), c.f)
		if err != nil || len(rows) != c.want {
			t.Errorf("%+v: got %d rows, error %v, want %d", c.f, len(rows), err, c.want)
		}
		for _, r := range rows {
			if !slices.Contains(c.b.Statuses(), r.Status) {
				t.Errorf("status %q is none of %v", r.Status, c.b.Statuses())
			}
			if c.b == events && (*r.Source != "shop" || r.AggregateType != nil) {
				t.Errorf("got %+v", r)
			}
		}
	}
}

func findsByApplication(t *testing.T, s *suite) {
	s.rows.MakeApp(t, "Acme")
	s.rows.Place(t, "event_outbox", "default.happened", "k")
	s.Exec(t,
		"INSERT INTO event_outbox (app_id, event_id, event_type, payload) VALUES ((SELECT id FROM apps WHERE "+
			"namespace = "+
			"'Acme'), ?1, 'acme.happened', '{}')", tabletest.NewID(t).String())
	b := s.Browser(t, outbox.EventOutbox())
	rows, _, err := b.List(t.Context(), operate.Filter{Tenant: "Acme"})
	if err != nil || len(rows) != 1 || rows[0].Topic != "acme.happened" || *rows[0].Tenant != "Acme" ||
		rows[0].Status != "pending" {
		t.Errorf("tenant Acme: got %+v, error %v", rows, err)
	}
	id := s.Value(t, "SELECT id FROM apps WHERE namespace = 'Acme'")
	for _, tenant := range []string{"nobody", "acme", "Acme ", id} {
		if rows, _, err := b.List(t.Context(), operate.Filter{Tenant: tenant}); err != nil || len(rows) != 0 {
			t.Errorf("unknown tenant %q: got %v, error %v", tenant, rows, err)
		}
	}
}

func showsEvent(t *testing.T, s *suite) {
	id := tabletest.NewID(t)
	at := time.Date(2025, 1, 2, 3, 4, 5, 678901000, time.UTC)
	s.Exec(t,
		`INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload, metadata, destination_topics, status, retry_count, error_message, error_history, schema_id, schema_version,
		aggregate_id, next_retry_at) VALUES (?1, 'order.placed', ?2, 'shop', '{"n": 1}', '{"trace_id": "t"}', '["a",
			"b"]', 'FAILED', 2, 'no such channel', '[{"error": "no such channel"}]', 'order/1', 3, '42', ?3)`,
		id.String(), at, at)
	b := s.Browser(t, outbox.OutboxEvents())
	for _, by := range []string{id.String(), strings.ToUpper(id.String()),
		s.Value(t, "SELECT position FROM outbox_events")} {
		d, err := b.Show(t.Context(), by, "")
		if err != nil {
			t.Fatalf("%s: %v", by, err)
		}
		if d.ID != id || d.Status != "FAILED" || *d.Key != "42" || d.Attempts != 2 || *d.LastError != "no such channel" ||
			*d.SchemaID != "order/1" || *d.SchemaVersion != 3 || d.Generation != 0 ||
			!d.OccurredAt.Equal(at) || !d.NextRetryAt.Equal(at) || d.DeliveredAt != nil || d.Sequence != nil || d.Lane < 0 ||
			d.Lane >= outbox.LaneCount {
			t.Errorf("%s: got %+v", by, d)
		}
		for _, c := range [][2]string{{string(d.Payload), `{"n":1}`}, {string(d.Metadata), `{"trace_id":"t"}`},
			{string(d.Destinations), `["a","b"]`}, {string(d.ErrorHistory), `[{"error":"no such channel"}]`}} {
			if !tabletest.SameJSON([]byte(c[0]), []byte(c[1])) {
				t.Errorf("got %s, want %s", c[0], c[1])
			}
		}
		if d.DeliveredTo != nil {
			t.Errorf("delivered to %s", d.DeliveredTo)
		}
		text, err := json.Marshal(d)
		for _, want := range []string{`"id":"` + id.String(), `"destinations":`, `"attempts":2`, `"schemaId":"order/1"`} {
			if err != nil || !strings.Contains(string(text), want) {
				t.Errorf("the JSON of the event is %s, error %v, want %s in it", text, err, want)
			}
		}
	}
	trace := "4bf92f3577b34da6a3ce929d0e0e4736"
	s.Exec(t,
		`UPDATE outbox_events SET aggregate_type = 'Order', metadata = '{"trace_id": "t", "traceparent": "00-`+trace+
			`-00f067aa0ba902b7-01"}'`)
	for f, want := range map[[2]string]int{{"t", ""}: 1, {trace, "Ord*"}: 1, {trace[1:], ""}: 0, {"", "Order"}: 1,
		{"", "O"}: 0} {
		rows, _, err := b.List(t.Context(), operate.Filter{Trace: f[0], Type: f[1]})
		n, _, counted := b.Undelivered(t.Context(), operate.Selection{Filter: operate.Filter{Trace: f[0], Type: f[1],
			Statuses: []string{"failed"}}})
		if err != nil || counted != nil || len(rows) != want || n != want {
			t.Errorf("trace and type %v: got %d rows, error %v, and %d undelivered, error %v, want "+
				"%d", f, len(rows), err, n, counted, want)
		}
	}
	s.rows.MakeRun(t)
	row := s.rows.Place(t, "crawl_outbox", "NODE", "")
	if d, err := s.Browser(t, outbox.CrawlOutbox()).Show(t.Context(), row.String(),
		""); err != nil || *d.Sequence != 7 ||
		*d.Key != tabletest.CrawlRun {
		t.Errorf("got %+v, error %v", d, err)
	}
}

func refusesFilters(t *testing.T, s *suite) {
	plain := outbox.CrawlOutbox()
	plain.Tenant, plain.Key, plain.KeyScope = "", "", nil
	events, nameless := s.Browser(t, outbox.OutboxEvents()), s.Browser(t, plain)
	for _, c := range []struct {
		b    *operate.Browser
		f    operate.Filter
		says string
	}{
		{events, operate.Filter{Statuses: []string{"SENT", "LOST"}},
			`status "LOST" is none of NEW, FAILED, SENT, DEAD`},
		{events, operate.Filter{After: "yesterday"}, "after"},
		{nameless, operate.Filter{After: uuid.NewString()}, "after"},
		{nameless, operate.Filter{Statuses: []string{"DEAD"}}, "pending, retry, delivered"},
		{nameless, operate.Filter{Tenant: "acme"}, "no tenants"},
		{nameless, operate.Filter{Key: "42"}, "no keys"},
		{nameless, operate.Filter{Trace: "t"}, "no metadata"},
		{nameless, operate.Filter{Type: "t"}, "no aggregate types"},
		{events, operate.Filter{Since: time.Unix(2, 0), Until: time.Unix(1, 0)}, "nothing is between"},
	} {
		if _, _, err := c.b.List(t.Context(), c.f); !errors.Is(err, operate.ErrFilter) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: got error %v, want ErrFilter that says %q", c.f, err, c.says)
		}
	}
	for what, want := range map[string]error{uuid.NewString(): operate.ErrNoEvent, "123456": operate.ErrNoEvent,
		"first": operate.ErrFilter} {
		if _, err := events.Show(t.Context(), what, ""); !errors.Is(err, want) {
			t.Errorf("show %s: got %v, want %v", what, err, want)
		}
	}
}

func reportsLanes(t *testing.T, s *suite) {
	b := s.Browser(t, outbox.OutboxEvents())
	report := func() (r operate.LaneReport, states map[string]int) {
		t.Helper()
		r, err := b.Lanes(t.Context(), 100)
		if err != nil || len(r.Lanes) != outbox.LaneCount || r.Table != "outbox_events" {
			t.Fatalf("got %+v, error %v", r, err)
		}
		states = map[string]int{}
		for i, l := range r.Lanes {
			if l.Lane != i {
				t.Errorf("lane %d stands at %d", l.Lane, i)
			}
			states[l.State]++
		}
		return r, states
	}
	if r, states := report(); states["free"] != outbox.LaneCount || len(r.Relays) != 0 || r.Counted != 0 || r.Bounded {
		t.Errorf("before any relay: %+v", r)
	}
	first, second, vanished := tabletest.NewID(t), tabletest.NewID(t), tabletest.NewID(t)
	for i, relay := range []struct {
		id   uuid.UUID
		name string
		ends time.Duration
	}{{first, "one", time.Minute}, {second, "two", time.Hour}, {vanished, "three", -3 * time.Second}} {
		s.Exec(t,
			"INSERT INTO outbox_relays (table_name, owner, name, joined_at, expires_at, serves) "+
				"VALUES ('outbox_events', ?1, ?2, ?3, ?4, 'sinks of ' || ?2)",
			relay.id.String(), relay.name, time.Now(), time.Now().Add(relay.ends))
		for lane := i * 20; lane < i*20+20; lane++ {
			s.Exec(t,
				"INSERT INTO outbox_lanes (table_name, lane, owner, epoch, expires_at) VALUES ('outbox_events', ?1, "+
					"?2, 3, ?3)",
				lane, relay.id.String(), time.Now().Add(relay.ends))
		}
	}
	s.Exec(t,
		"INSERT INTO outbox_lanes (table_name, lane, epoch, crashes, trial_size, trial_event) VALUES "+
			"('outbox_events', 63, "+
			"9, 2, 1, ?1)", first.String())
	r, states := report()
	if states["held"] != 40 || states["lapsed"] != 20 || states["free"] != 4 {
		t.Errorf("got %v", states)
	}
	if len(r.Relays) != 3 || r.Relays[0].Owner != first || r.Relays[0].Name != "one" ||
		r.Relays[0].Serves != "sinks of one" || r.Relays[0].Share != 32 ||
		r.Relays[1].Share != 32 || r.Relays[2].Share != 0 ||
		r.Relays[1].Lanes != 20 || r.Relays[2].Lanes != 0 || r.Relays[2].ExpiresIn > -3 || r.Relays[2].ExpiresIn < -60 ||
		time.Since(r.Relays[0].JoinedAt).Abs() > time.Minute {
		t.Errorf("relays %+v", r.Relays)
	}
	if l := r.Lanes[20]; *l.Owner != second || *l.Name != "two" || l.Epoch != 3 || *l.ExpiresIn < 3500 ||
		*l.ExpiresIn > 3600 || l.Suspect {
		t.Errorf("lane 20: %+v", l)
	}
	if l := r.Lanes[63]; l.State != "free" || l.Epoch != 9 || !l.Suspect || l.Crashes != 2 || l.TrialSize != 1 ||
		*l.TrialEvent != first {
		t.Errorf("lane 63: %+v", l)
	}
}

func reportsBacklog(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	for _, layout := range tabletest.Layouts() {
		for i := range 30 {
			s.rows.Place(t, layout.Table, "t", fmt.Sprint(i%7))
		}
	}
	s.Exec(t, "UPDATE outbox_events SET created_at = ?1 WHERE position = (SELECT min(position) FROM outbox_events)",
		time.Now().Add(-time.Hour))
	s.Exec(t, "UPDATE crawl_outbox SET created_at = ?1", time.Now().Add(-time.Minute))
	for table, oldest := range map[string]float64{"outbox_events": 3600, "event_outbox": 0, "crawl_outbox": 60} {
		layouts := tabletest.Layouts()
		layout := layouts[slices.IndexFunc(layouts, func(l outbox.Layout) bool { return l.Table == table })]
		want := map[int]int{}
		u := s.rows.Bury(t, layout)
		records, err := u.Store.Claim(t.Context(), u.Lanes, outbox.ClaimLimit{Records: 1000, Bytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			want[int(r.Lane)]++
		}
		b := s.Browser(t, layout)
		r, err := b.Lanes(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		got := 0.0
		for _, l := range r.Lanes {
			if l.Backlog != want[l.Lane] || (l.Backlog > 0) != (l.Oldest != nil) {
				t.Errorf("%s: lane %d has %d events, want %d", table, l.Lane, l.Backlog, want[l.Lane])
			}
			if l.Oldest != nil {
				got = max(got, *l.Oldest)
			}
		}
		if r.Counted != 30 || r.Bounded || r.Hidden || got < oldest || got > oldest+60 {
			t.Errorf("%s: counted %d, bounded %t, oldest %.1f s, want 30 and %.0f "+
				"s", table, r.Counted, r.Bounded, got, oldest)
		}
		if r, err := b.Lanes(t.Context(), 20); err != nil || r.Counted != 20 || !r.Bounded {
			t.Errorf("%s: counted %d of at most 20, bounded %t, error %v", table, r.Counted, r.Bounded, err)
		}
	}
}

func tellsWhatItWaitsBehind(t *testing.T, s *suite) {
	s.rows.MakeRun(t)
	soon, later := time.Now().Add(time.Minute).Truncate(time.Millisecond),
		time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for _, layout := range tabletest.Layouts() {
		for i := range 9 {
			s.rows.Place(t, layout.Table, fmt.Sprintf("t.%d", i), fmt.Sprint(i%3))
			time.Sleep(time.Millisecond)
		}
		// Of the keys 0, 1 and 2, which have three events each, one waits for its head, one for its
		// second and its head, and one for nothing.
		put := func(topic string, at any) {
			t.Helper()
			s.Exec(t, "UPDATE "+layout.Table+" SET "+layout.NextRetryAt+" = ?2 WHERE "+layout.Topic+" = ?1", topic, at)
		}
		put("t.0", later)
		put("t.1", soon)
		put("t.4", later)
		put("t.8", time.Now().Add(-time.Minute)) // due
		ids := map[string]uuid.UUID{}
		b := s.Browser(t, layout)
		rows, _, err := b.List(t.Context(), operate.Filter{})
		if err != nil || len(rows) != 9 {
			t.Fatalf("%s: %d rows, error %v", layout.Table, len(rows), err)
		}
		for _, r := range rows {
			ids[r.Topic] = r.ID
		}
		// A run has one key, which all nine wait for: the event that is tried last is named.
		behind := map[string]string{"t.3": "t.0", "t.6": "t.0", "t.7": "t.4"}
		if layout.Table == "crawl_outbox" {
			put("t.4", nil)
			behind = map[string]string{"t.2": "t.0", "t.3": "t.0", "t.4": "t.0", "t.5": "t.0", "t.6": "t.0",
				"t.7": "t.0",
				"t.8": "t.0"}
			if rows, _, err = b.List(t.Context(), operate.Filter{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, r := range rows {
			shown, err := b.Show(t.Context(), r.ID.String(), "")
			if err != nil {
				t.Fatal(err)
			}
			for what, got := range map[string]operate.EventRow{"list": r, "show": shown.EventRow} {
				head, waits := behind[r.Topic]
				if !waits {
					if got.WaitsBehind != nil {
						t.Errorf("%s, %s: %s waits behind %s", layout.Table, what, r.Topic, got.WaitsBehind)
					}
					continue
				}
				if got.WaitsBehind == nil || *got.WaitsBehind != ids[head] || got.NextRetryAt == nil ||
					got.NextRetryAt.Sub(later).Abs() > time.Millisecond {
					t.Errorf("%s, %s: %s waits behind %s until %v, want %s (%s) until %s",
						layout.Table, what, r.Topic, value(got.WaitsBehind), got.NextRetryAt, ids[head], head, later)
				}
			}
		}
		r, err := b.Lanes(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		var retrying, heldKeys, held int
		for _, l := range r.Lanes {
			retrying, heldKeys, held = retrying+l.Retrying, heldKeys+l.HeldKeys, held+l.Held
		}
		want := [3]int{3, 2, 3}
		if layout.Table == "crawl_outbox" {
			want = [3]int{2, 1, 7}
		}
		if got := [3]int{retrying, heldKeys, held}; got != want {
			t.Errorf("%s: lanes report %v events that are retried, keys and events that are held, want "+
				"%v", layout.Table, got,
				want)
		}
	}
}

func value(id *uuid.UUID) string {
	if id == nil {
		return "nothing"
	}
	return id.String()
}

func browsesMapped(t *testing.T, s *suite) {
	layout := s.Mapped(t)
	for i := range 3 {
		s.rows.PlaceLegacy(t, fmt.Sprintf("t.%d", i), "k")
	}
	bare := tabletest.NewID(t)
	s.Exec(t, "INSERT INTO legacy (uid, kind, tries, done_at) VALUES (?1, 'done', NULL, ?2)", bare.String(), time.Now())
	b := s.Browser(t, layout)
	if rows, next, err := b.List(t.Context(),
		operate.Filter{Statuses: []string{"pending"}, Key: "k", Tenant: "eu",
			Topic: "t.1"}); err != nil || len(rows) != 1 ||
		next != "" || rows[0].Topic != "t.1" || *rows[0].Key != "k" || *rows[0].Tenant != "eu" {
		t.Errorf("got %+v, %q, error %v", rows, next, err)
	}
	if rows, _, err := b.List(t.Context(), operate.Filter{Statuses: []string{"delivered"}}); err != nil ||
		len(rows) != 1 ||
		rows[0].ID != bare || rows[0].Key != nil || rows[0].Attempts != 0 ||
		time.Since(*rows[0].WrittenAt).Abs() > time.Minute {
		t.Errorf("delivered: %+v, error %v", rows, err)
	}
	if r, err := b.Lanes(t.Context(), 100); err != nil || r.Counted != 3 {
		t.Errorf("counted %d, error %v", r.Counted, err)
	}
}
