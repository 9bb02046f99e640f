package outboxtest

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/retention"
	"github.com/outboxrelay/outbox/tables"
)

func mappedTests() []storeTest {
	return []storeTest{
		{name: "a table of another shape is browsed", run: browsesMapped},
		{name: "a table of another shape gets its dead rows back", run: replaysMapped},
		{name: "a table of another shape loses its old rows", run: cleansMapped},
	}
}

// legacy inserts a row into the table that Mapped has made.
func (s *storeSuite) legacy(t *testing.T, kind, customer string) uuid.UUID {
	t.Helper()
	id := newID(t)
	s.Exec(t,
		`INSERT INTO legacy (uid, kind, body, customer, region, goes, version, tries) VALUES (?1, ?2, '{"b":1, "a":[2]}', ?3, 'eu', '["x", "y"]', 4, 0)`, id.String(), kind, customer)
	return id
}

func browsesMapped(t *testing.T, s *storeSuite) {
	layout := s.Mapped(t)
	for i := range 3 {
		s.legacy(t, fmt.Sprintf("t.%d", i), "k")
	}
	bare := newID(t)
	s.Exec(t, "INSERT INTO legacy (uid, kind, tries, done_at) VALUES (?1, 'done', NULL, ?2)", bare.String(), time.Now())
	b := s.Browser(t, layout)
	if rows, next, err := b.List(t.Context(),
		tables.Filter{Statuses: []string{"pending"}, Key: "k", Tenant: "eu", Topic: "t.1"}); err != nil || len(rows) != 1 ||
		next != "" || rows[0].Topic != "t.1" || *rows[0].Key != "k" || *rows[0].Tenant != "eu" {
		t.Errorf("got %+v, %q, error %v", rows, next, err)
	}
	if rows, _, err := b.List(t.Context(), tables.Filter{Statuses: []string{"delivered"}}); err != nil || len(rows) != 1 ||
		rows[0].ID != bare || rows[0].Key != nil || rows[0].Attempts != 0 ||
		time.Since(*rows[0].WrittenAt).Abs() > time.Minute {
		t.Errorf("delivered: %+v, error %v", rows, err)
	}
	if r, err := b.Lanes(t.Context(), 100); err != nil || r.Counted != 3 {
		t.Errorf("counted %d, error %v", r.Counted, err)
	}
}

func replaysMapped(t *testing.T, s *storeSuite) {
	layout := s.Mapped(t)
	u, d := s.burying(t, layout), s.Letters(t, layout)
	id := s.legacy(t, "paid", "k")
	before, err := s.Browser(t, layout).Show(t.Context(), id.String(), "")
	if err != nil {
		t.Fatal(err)
	}
	u.settle(dieAt("x"))
	if n := s.count(t, "legacy", "1 = 1"); n != 0 {
		t.Fatalf("%d rows are left", n)
	}
	if p, err := d.Preview(t.Context(), deadletter.Selection{All: true}, time.Minute); err != nil || p.Letters != 1 ||
		p.Tables[0].Table != "legacy" || p.Tables[0].Stuck != 0 {
		t.Errorf("preview %+v, error %v", p, err)
	}
	if sum := replay(t, d, everyLetter); sum.Letters != 1 || sum.Skipped != 0 {
		t.Fatalf("got %+v", sum)
	}
	after, err := s.Browser(t, layout).Show(t.Context(), id.String(), "")
	if err != nil {
		t.Fatal(err)
	}
	was, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := json.Marshal(after); err != nil || !sameJSON(is, was) {
		t.Errorf("got\n%s\nwant\n%s\nerror %v", is, was, err)
	}
	if again := u.settle(arrive); len(again) != 1 || again[0].SchemaVersion != 4 || again[0].TenantID != "eu" ||
		again[0].AggregateID != "k" {
		t.Errorf("came back as %+v", again)
	}
}

func cleansMapped(t *testing.T, s *storeSuite) {
	layout := s.Mapped(t)
	var old []uuid.UUID
	for range 12 {
		old = append(old, s.legacy(t, "old", "k"))
	}
	s.Exec(t, "UPDATE legacy SET done_at = ?1", time.Now().Add(-10*day))
	for range 3 {
		s.legacy(t, "waits", "k")
	}
	s.Exec(t, "UPDATE legacy SET done_at = ?1 WHERE n = (SELECT max(n) FROM legacy)", time.Now())
	k := keeper(t, s.Retention(t, layout), "legacy", retention.Config{Batch: 5})
	if report, err := k.Purge(t.Context(), 0, nil); err != nil || report.Rows != 12 {
		t.Errorf("got %+v, error %v, want 12 rows", report, err)
	}
	if n := s.count(t, "legacy", "1 = 1"); n != 3 {
		t.Errorf("%d rows are left, want the three that wait or came now", n)
	}
	var row struct {
		UID     uuid.UUID
		Body    json.RawMessage
		Version int
	}
	text := s.Value(t, "SELECT row FROM outbox_archive WHERE id = ?1", old[0].String())
	if err := json.Unmarshal([]byte(text), &row); err != nil || row.UID != old[0] || row.Version != 4 ||
		!sameJSON(row.Body, []byte(`{"a":[2],"b":1}`)) {
		t.Errorf("archived as %s, error %v", text, err)
	}
}
