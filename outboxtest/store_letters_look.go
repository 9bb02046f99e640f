package outboxtest

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
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func lookTests() []storeTest {
	return []storeTest{
		{name: "letters are found by every filter, page by page", run: findsLetters},
		{name: "a letter is shown by its id and by its event's", run: showsLetters},
		{name: "letters are counted by state and grouped by their error", run: groupsLetters},
		{name: "errors that differ only in numbers, ids and quoted text have one fingerprint", run: fingerprints},
		{name: "an event that dies leaves a letter that says everything", run: leavesLetter},
		{name: "letters of tenants whose names differ in case only stay apart", run: keepsTenantsApart},
		{name: "a preview tells which keys a replay puts out of order", run: previews},
	}
}

// letter is a row of job_dlq; empty texts are NULL, but for history.
type letter struct {
	id, source, tenant, kind, reason, history, destination, table, key string
	replayed, discarded                                                time.Time
}

// put stores a letter and returns the id of its job or event.
func (s *storeSuite) put(t *testing.T, l letter) uuid.UUID {
	t.Helper()
	original := tabletest.NewID(t)
	text := func(v string) any {
		if v == "" {
			return nil
		}
		return v
	}
	at := func(v time.Time) any {
		if v.IsZero() {
			return nil
		}
		return v
	}
	if l.id == "" {
		l.id = tabletest.NewID(t).String()
	}
	s.Exec(t, `INSERT INTO job_dlq (id, source, original_job_id, app_id, type, payload, error_reason, attempts, error_history, destination, outbox_table, event_key, replayed_at, discarded_at)
		VALUES (?1, ?2, ?3, (SELECT id FROM apps WHERE namespace = ?4), ?5, '{}', ?6, 1, ?7, ?8, ?9, ?10, ?11, ?12)`,
		l.id, l.source, original.String(), l.tenant, l.kind, l.reason, l.history, text(l.destination), text(l.table),
		text(l.key), at(l.replayed), at(l.discarded))
	return original
}

// fixtures are six letters whose ids end in 1 to 6, two of which are settled.
func (s *storeSuite) fixtures(t *testing.T) (originals []uuid.UUID) {
	t.Helper()
	s.rows.MakeApp(t, "acme")
	for _, l := range []letter{
		{"01900000-0000-7000-8000-000000000001", "event", "default", "order.placed", "DeliveryFailed",
			`[{"error": "first TIMEOUT"}, {"error": "refused 10.0.0.3:6379"}]`, "a", "outbox_events", "42", time.Time{},
			time.Time{}},
		{"01900000-1000-7000-8000-000000000002", "event", "acme", "order.placed", "DeliveryFailed",
			`[{"error": "refused 10.0.0.4:6379"}]`, "b", "outbox_events", "42", time.Time{}, time.Time{}},
		{"01900000-2000-7000-8000-000000000003", "event", "acme", "order.paid", "HandlerMissing", `[]`, "", "crawl_outbox",
			"43", time.Time{}, time.Time{}},
		{"01900000-3000-7000-8000-000000000004", "job", "acme", "send_mail", "Panic", `[{"error": "nil pointer"}]`, "", "",
			"", time.Time{}, time.Time{}},
		{"01900000-4000-7000-8000-000000000005", "job", "default", "send_mail", "Timeout", `[{"error": "nil pointer"}]`, "",
			"", "", time.Now(), time.Time{}},
		{"01900000-5000-7000-8000-000000000006", "job", "default", "send_mail", "Timeout", `[{"error": "nil pointer"}]`, "",
			"", "", time.Time{}, time.Now()},
	} {
		originals = append(originals, s.put(t, l))
	}
	return originals
}

// tails are the last digits of the letters' ids.
func tails(letters []deadletter.Letter) string {
	var b strings.Builder
	for _, l := range letters {
		b.WriteString(l.ID.String()[35:])
	}
	return b.String()
}

func findsLetters(t *testing.T, s *storeSuite) {
	s.fixtures(t)
	d := s.letters(t)
	third := uuid7.Time(uuid.MustParse("01900000-2000-7000-8000-000000000003"))
	all, _, err := d.List(t.Context(), deadletter.Filter{State: deadletter.StateAll})
	if err != nil || len(all) != 6 {
		t.Fatalf("%d letters, error %v", len(all), err)
	}
	refused := all[5].Fingerprint
	for _, c := range []struct {
		f    deadletter.Filter
		want string // newest first
	}{
		{deadletter.Filter{}, "4321"},
		{deadletter.Filter{State: deadletter.StatePending}, "4321"},
		{deadletter.Filter{State: deadletter.StateReplayed}, "5"},
		{deadletter.Filter{State: deadletter.StateDiscarded}, "6"},
		{deadletter.Filter{State: deadletter.StateAll}, "654321"},
		{deadletter.Filter{Source: deadletter.SourceJob}, "4"},
		{deadletter.Filter{Source: deadletter.SourceEvent}, "321"},
		{deadletter.Filter{Reason: "DeliveryFailed"}, "21"},
		{deadletter.Filter{Type: "order.paid"}, "3"},
		{deadletter.Filter{Tenant: "acme"}, "432"},
		{deadletter.Filter{Tenant: "ACME"}, ""}, // names of tenants are exact, and not ids of applications
		{deadletter.Filter{Tenant: " acme"}, ""},
		{deadletter.Filter{Tenant: s.Value(t, "SELECT id FROM apps WHERE namespace = 'acme'")}, ""},
		{deadletter.Filter{Tenant: "nobody"}, ""},
		{deadletter.Filter{Key: "42"}, "21"},
		{deadletter.Filter{Key: "42", Tenant: "acme"}, "2"},
		{deadletter.Filter{Table: "crawl_outbox"}, "3"},
		{deadletter.Filter{Destination: "b"}, "2"},
		{deadletter.Filter{Since: third}, "43"},
		{deadletter.Filter{Until: third}, "21"},
		{deadletter.Filter{Error: "timeout"}, "1"}, // any error of the history
		{deadletter.Filter{Error: "100%"}, ""},
		{deadletter.Filter{Error: "_"}, ""},
		{deadletter.Filter{Fingerprint: strings.ToUpper(refused)}, "21"},
		{deadletter.Filter{Fingerprint: refused, Tenant: "acme"}, "2"},
	} {
		found, _, err := d.List(t.Context(), c.f)
		if err != nil || tails(found) != c.want {
			t.Errorf("%+v: got %q, error %v, want %q", c.f, tails(found), err, c.want)
		}
		paged := ""
		for f, more := c.f, true; more; more = f.After != "" {
			f.Limit = 1
			var page []deadletter.Letter
			if page, f.After, err = d.List(t.Context(), f); err != nil {
				t.Fatalf("%+v: %v", f, err)
			}
			paged += tails(page)
		}
		if paged != c.want {
			t.Errorf("%+v: one by one %q, want %q", c.f, paged, c.want)
		}
		if c.f.State == "" {
			if n, err := d.Count(t.Context(), deadletter.Selection{Filter: c.f}); err != nil || n != len(c.want) {
				t.Errorf("%+v: a selection takes %d, error %v, want %d", c.f, n, err, len(c.want))
			}
		}
	}
	for f, says := range map[deadletter.Filter]string{{State: "dead"}: "dead", {Source: "x"}: "job, event",
		{After: "7"}: "after"} {
		if _, _, err := d.List(t.Context(), f); !errors.Is(err, deadletter.ErrFilter) ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%+v: got %v, want ErrFilter that says %q", f, err, says)
		}
	}
	if n, err := d.Count(t.Context(),
		deadletter.Selection{IDs: []uuid.UUID{all[5].ID, all[1].ID, tabletest.NewID(t)}}); err != nil || n != 1 {
		t.Errorf("of a pending, a replayed and an unknown letter a selection takes %d, error %v", n, err)
	}
	if _, err := d.Count(t.Context(),
		deadletter.Selection{Filter: deadletter.Filter{State: deadletter.StateReplayed}}); !errors.Is(err,
		deadletter.ErrFilter) {
		t.Errorf("a selection of replayed letters: got %v, want ErrFilter", err)
	}
}

func showsLetters(t *testing.T, s *storeSuite) {
	originals := s.fixtures(t)
	d := s.letters(t)
	first := uuid.MustParse("01900000-0000-7000-8000-000000000001")
	for _, id := range []uuid.UUID{first, originals[0]} {
		shown, err := d.Show(t.Context(), id, "")
		if err != nil || len(shown) != 1 {
			t.Fatalf("show %s: %d letters, error %v", id, len(shown), err)
		}
		l := shown[0]
		if l.ID != first || l.OriginalID != originals[0] || l.State != deadletter.StatePending || l.Tenant != "default" ||
			l.LastError != "refused 10.0.0.3:6379" || l.Destination != "a" || l.Table != "outbox_events" ||
			l.Key != "42" || l.Type != "order.placed" || l.Reason != "DeliveryFailed" || !l.At.Equal(uuid7.Time(first)) ||
			l.Position != nil || l.ReplayedAt != nil || string(l.Payload) != "{}" ||
			!tabletest.SameJSON(l.ErrorHistory, []byte(`[{"error":"first TIMEOUT"},{"error":"refused 10.0.0.3:6379"}]`)) {
			t.Errorf("show %s: got %+v", id, l)
		}
	}
	s.Exec(t, "UPDATE job_dlq SET original_job_id = ?1 WHERE id = ?2", originals[0].String(),
		"01900000-4000-7000-8000-000000000005")
	if shown, err := d.Show(t.Context(), originals[0], ""); err != nil || tails(shown) != "51" ||
		shown[0].State != deadletter.StateReplayed || time.Since(*shown[0].ReplayedAt).Abs() > time.Minute {
		t.Errorf("both letters of one event: got %q, error %v", tails(shown), err)
	}
	if _, err := d.Show(t.Context(), originals[0], "nobody"); !errors.Is(err, deadletter.ErrNoLetter) {
		t.Errorf("of another tenant: error %v", err)
	}
	if _, err := d.Show(t.Context(), tabletest.NewID(t), ""); !errors.Is(err, deadletter.ErrNoLetter) {
		t.Errorf("unknown letter: got %v, want ErrNoLetter", err)
	}
}

func groupsLetters(t *testing.T, s *storeSuite) {
	s.fixtures(t)
	d := s.letters(t)
	stats, err := d.Stats(t.Context(), deadletter.Filter{})
	if err != nil || stats.Pending != 4 || stats.Replayed != 1 || stats.Discarded != 1 || len(stats.Groups) != 3 ||
		stats.AllGroups != 3 {
		t.Fatalf("stats %+v, error %v", stats, err)
	}
	oldest, newest := uuid7.Time(uuid.MustParse("01900000-0000-7000-8000-000000000001")),
		uuid7.Time(uuid.MustParse("01900000-1000-7000-8000-000000000002"))
	g := stats.Groups[0]
	if g.Count != 2 || !g.Oldest.Equal(oldest) || !g.Newest.Equal(newest) || g.Sample != "refused 10.0.0.4:6379" ||
		!slices.Equal(g.Types, []deadletter.GroupType{
			{Source: deadletter.SourceEvent, Type: "order.placed", Reason: "DeliveryFailed", Count: 2}}) {
		t.Errorf("largest group %+v", g)
	}
	if found, _, err := d.List(t.Context(), deadletter.Filter{Fingerprint: g.Fingerprint}); err != nil ||
		tails(found) != "21" {
		t.Errorf("its letters are %q, error %v", tails(found), err)
	}
	stats, err = d.Stats(t.Context(),
		deadletter.Filter{Source: deadletter.SourceJob, State: deadletter.StateAll, Limit: 1})
	if err != nil || stats.Pending != 1 || stats.Replayed != 1 || stats.Discarded != 1 || len(stats.Groups) != 1 ||
		stats.Groups[0].Count != 3 || len(stats.Groups[0].Types) != 2 || stats.Groups[0].Types[0].Reason != "Timeout" ||
		stats.Groups[0].Types[0].Count != 2 || stats.AllGroups != 1 {
		t.Errorf("jobs, the largest group: %+v, error %v", stats, err)
	}
}

func fingerprints(t *testing.T, s *storeSuite) {
	d := s.letters(t)
	of := map[string]string{}
	same := [][]string{
		{"connection refused 10.0.0.3:6379", "connection refused 10.0.0.4:6380", "Connection refused 10.10.0.4:6380"},
		{`no channel "a b"`, `no channel "c"`},
		{"key 'x' is taken", "key 'it1' is taken"},
		{"order 6fa459ea-ee8a-3ca4-894e-db77e160355e", "order 7d444840-9dc0-11d1-b245-5ffdce74fad2"},
		{"at 0xc000012ab0", "at 0xdeadbeef"},
		{"commit 9fceb02d0ae598e95dc970b74767f19372d61af8", "commit 0a0b0c0d"},
		{"timeout after 1m30s", "timeout after 500ms", "timeout after 2"},
	}
	different := []string{"", "connection refused 10.0.0.3:6379", "connection reset 10.0.0.3:6379", `no channel "a"`,
		"no channel a", "defaced", "can't send to host's port", "can't send", "5 messages", "5 minutes", "5minutes"}
	for _, text := range append(different, "é 'x'y'") {
		same = append(same, []string{text})
	}
	for _, group := range same {
		for _, text := range group {
			history, err := json.Marshal([]deadletter.Failure{{Error: text}})
			if err != nil {
				t.Fatal(err)
			}
			id := s.put(t, letter{source: "job", tenant: "default", kind: "t", reason: "Panic", history: string(history)})
			shown, err := d.Show(t.Context(), id, "")
			if err != nil || len(shown) != 1 || shown[0].LastError != text || len(shown[0].Fingerprint) != 12 {
				t.Fatalf("%q: got %+v, error %v", text, shown, err)
			}
			of[text] = shown[0].Fingerprint
			if of[text] != of[group[0]] {
				t.Errorf("%q and %q differ", group[0], text)
			}
		}
	}
	seen := map[string]string{}
	for _, text := range different {
		if other, taken := seen[of[text]]; taken {
			t.Errorf("%q has the fingerprint of %q", text, other)
		}
		seen[of[text]] = text
	}
	// The same in every store: the first twelve digits of the SHA-256 of "connection refused ?:?"
	// and "timeout after ?".
	for text, want := range map[string]string{"connection refused 10.0.0.3:6379": "e282bcc33dbc",
		"timeout after 1m30s": "30ab13e927c2"} {
		if of[text] != want {
			t.Errorf("%q has the fingerprint %s, want %s", text, of[text], want)
		}
	}
}

func leavesLetter(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	s.Exec(t, `INSERT INTO outbox_events (id, event_topic, occurred_at, aggregate_type, aggregate_id, source_bc, tenant_id, payload, destination_topics, retry_count, error_history)
		VALUES (?1, 'order.placed', ?2, 'Order', '42', 'shop', 'newcomer', '{"n": 1}', '["a", "b", "c"]', 2, '[{"error": "slow", "timestamp": "2025-01-01T00:00:00Z"}]')`, tabletest.NewID(t).String(), time.Now())
	died := u.Settle(tabletest.DieAt("a", "c"))
	d := s.letters(t)
	shown, err := d.Show(t.Context(), died[0].ID, "")
	if err != nil || len(shown) != 2 {
		t.Fatalf("%d letters, error %v, want one a failed destination", len(shown), err)
	}
	seen := map[string]bool{}
	for _, l := range shown {
		seen[l.Destination] = true
		var history []deadletter.Failure
		if err := json.Unmarshal(l.ErrorHistory, &history); err != nil || len(history) < 2 || history[0].Error != "slow" ||
			time.Since(history[len(history)-1].Timestamp).Abs() > time.Minute {
			t.Errorf("history %s, error %v", l.ErrorHistory, err)
		}
		if l.Source != deadletter.SourceEvent || l.State != deadletter.StatePending || l.Tenant != "newcomer" ||
			l.Type != "order.placed" || l.Reason != "DeliveryFailed" || l.Attempts != 3 || l.Table != "outbox_events" ||
			l.Key != "42" || *l.Position != died[0].Position || l.Generation != 0 ||
			!strings.Contains(l.LastError, "refused by "+l.Destination) || !tabletest.SameJSON(l.Payload, []byte(`{"n":1}`)) ||
			time.Since(l.At).Abs() > time.Minute {
			t.Errorf("got %+v", l)
		}
	}
	if !seen["a"] || !seen["c"] {
		t.Errorf("letters for %v", seen)
	}
}

// keepsTenantsApart has events of two tenants die that share an application, because its namespace
// is unique without regard to case: by a settle and by a collect.
func keepsTenantsApart(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	write := func(status string) {
		for _, tenant := range []string{"north", "NORTH"} {
			s.Exec(t, `INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, tenant_id, payload, status)
				VALUES (?1, 'order.placed', ?2, 'shop', ?3, '{}', ?4)`, tabletest.NewID(t).String(), time.Now(), tenant, status)
		}
	}
	write("NEW")
	u.Settle(tabletest.DieAt("a"))
	write("DEAD")
	d := s.letters(t)
	n, err := deadletter.Collect(t.Context(), d, "outbox_events", deadletter.Operator{Actor: "ops", Reason: "x"})
	if err != nil || n != 2 {
		t.Fatalf("collected %d, error %v", n, err)
	}
	other := map[string]string{"north": "NORTH", "NORTH": "north"}
	for tenant, want := range map[string]int{"north": 2, "NORTH": 2, "North": 0} {
		found, _, err := d.List(t.Context(), deadletter.Filter{Tenant: tenant})
		if err != nil || len(found) != want {
			t.Errorf("tenant %s: %d letters, error %v, want %d", tenant, len(found), err, want)
		}
		for _, l := range found {
			if l.Tenant != tenant {
				t.Errorf("tenant %s has a letter of %s", tenant, l.Tenant)
			}
			if shown, err := d.Show(t.Context(), l.ID, other[tenant]); len(shown) != 0 {
				t.Errorf("the other tenant is shown %d letters, error %v", len(shown), err)
			}
		}
	}
}

func previews(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	crawl := s.rows.Bury(t, outbox.CrawlOutbox())
	s.rows.PlaceOrders(t, 2, "clean", "overtaken", "racing", "other")
	s.Exec(t, "UPDATE outbox_events SET tenant_id = 'acme' WHERE aggregate_id = 'other'")
	s.rows.MakeRun(t)
	for range 3 {
		s.rows.Place(t, "crawl_outbox", "NODE", "")
	}
	u.Settle(tabletest.DieAt("t"))
	second := s.Value(t, "SELECT event_id FROM crawl_outbox WHERE id = (SELECT min(id) + 1 FROM crawl_outbox)")
	rows := crawl.Settle(arriveOnly(second))
	s.rows.PlaceOrders(t, 1, "overtaken")
	u.Settle(tabletest.Arrive)
	s.rows.PlaceOrders(t, 1, "racing", "other") // the same key of another tenant is another key
	s.put(t, letter{id: "01900000-0000-7000-8000-000000000001", source: "job", tenant: "default", kind: "mail",
		reason: "Panic", history: "[]"})
	d := s.letters(t)
	check := func(s deadletter.Selection, want string) {
		t.Helper()
		p, err := d.Preview(t.Context(), s, 2*time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != want {
			t.Errorf("got  %s\nwant %s", text, want)
		}
	}
	const none = `{"count":0}`
	part := func(table string, letters, stuck int, overtaken, racing, behind string) string {
		return fmt.Sprintf(`{"table":%q,"letters":%d,"stuck":%d,"overtaken":%s,"racing":%s,"leftBehind":%s}`, table, letters,
			stuck, overtaken, racing, behind)
	}
	check(deadletter.Selection{All: true}, `{"letters":11,"tables":[`+strings.Join([]string{
		part("crawl_outbox", 2, 0, `{"count":1,"first":["`+tabletest.CrawlRun+`"]}`, none, none),
		part("outbox_events", 8, 0, `{"count":1,"first":["overtaken"]}`, `{"count":1,"first":["racing"]}`, none),
		part("", 1, 1, none, none, none),
	}, ",")+`],"outsideWindow":1}`)
	check(deadletter.Selection{IDs: s.lettersOf(t, d, rows[2].ID)},
		`{"letters":1,"tables":[`+part("crawl_outbox", 1, 0, none, none, `{"count":1,"first":["`+tabletest.CrawlRun+`"]}`)+
			`],"outsideWindow":0}`)
	later := uuid.MustParse(s.Value(t,
		"SELECT id FROM outbox_events WHERE position = (SELECT max(position) FROM outbox_events WHERE "+
			"aggregate_id = 'clean')"))
	check(deadletter.Selection{IDs: s.lettersOf(t, d, later)},
		`{"letters":1,"tables":[`+part("outbox_events", 1, 0, none, none, `{"count":1,"first":["clean"]}`)+
			`],"outsideWindow":0}`)
	s.Exec(t, "DELETE FROM outbox_events WHERE aggregate_id = 'clean'")
	check(deadletter.Selection{Filter: deadletter.Filter{Key: "clean"}},
		`{"letters":2,"tables":[`+part("outbox_events", 2, 2, none, none, none)+`],"outsideWindow":0}`)
}
