package outboxtest

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/tabletest"
	"github.com/outboxrelay/outbox/retention"
)

func mappedTests() []storeTest {
	return []storeTest{
		{name: "a table of another shape gets its dead rows back", run: replaysMapped},
		{name: "a table of another shape loses its old rows", run: cleansMapped},
	}
}

func replaysMapped(t *testing.T, s *storeSuite) {
	layout := s.Mapped(t)
	u, d := s.rows.Bury(t, layout), s.Letters(t, layout)
	s.rows.PlaceLegacy(t, "paid", "k")
	all := []string{"n", "uid", "kind", "body", "customer", "region", "goes", "version", "done_at", "tries", "due",
		"problem"}
	before := s.columns(t, "legacy", all...)
	if len(before) != len(all) {
		t.Fatalf("%d columns of one row", len(before))
	}
	u.Settle(tabletest.DieAt("x"))
	if n := s.rows.Count(t, "legacy", "1 = 1"); n != 0 {
		t.Fatalf("%d rows are left", n)
	}
	if p, err := d.Preview(t.Context(), deadletter.Selection{All: true}, time.Minute); err != nil || p.Letters != 1 ||
		p.Tables[0].Table != "legacy" || p.Tables[0].Stuck != 0 {
		t.Errorf("preview %+v, error %v", p, err)
	}
	if sum := replay(t, d, everyLetter); sum.Letters != 1 || sum.Skipped != 0 {
		t.Fatalf("got %+v", sum)
	}
	if after := s.columns(t, "legacy", all...); !slices.EqualFunc(after, before, sameValue) {
		t.Errorf("got\n%q\nwant\n%q", after, before)
	}
	if again := u.Settle(tabletest.Arrive); len(again) != 1 || again[0].SchemaVersion != 4 || again[0].TenantID != "eu" ||
		again[0].AggregateID != "k" {
		t.Errorf("came back as %+v", again)
	}
}

func cleansMapped(t *testing.T, s *storeSuite) {
	layout := s.Mapped(t)
	var old []uuid.UUID
	for range 12 {
		old = append(old, s.rows.PlaceLegacy(t, "old", "k"))
	}
	s.Exec(t, "UPDATE legacy SET done_at = ?1", time.Now().Add(-10*day))
	for range 3 {
		s.rows.PlaceLegacy(t, "waits", "k")
	}
	s.Exec(t, "UPDATE legacy SET done_at = ?1 WHERE n = (SELECT max(n) FROM legacy)", time.Now())
	k := keeper(t, s.Retention(t, layout), "legacy", retention.Config{Batch: 5})
	if report, err := k.Purge(t.Context(), 0, nil); err != nil || report.Rows != 12 {
		t.Errorf("got %+v, error %v, want 12 rows", report, err)
	}
	if n := s.rows.Count(t, "legacy", "1 = 1"); n != 3 {
		t.Errorf("%d rows are left, want the three that wait or came now", n)
	}
	var row struct {
		UID     uuid.UUID
		Body    json.RawMessage
		Version int
	}
	text := s.Value(t, "SELECT row FROM outbox_archive WHERE id = ?1", old[0].String())
	if err := json.Unmarshal([]byte(text), &row); err != nil || row.UID != old[0] || row.Version != 4 ||
		!tabletest.SameJSON(row.Body, []byte(`{"a":[2],"b":1}`)) {
		t.Errorf("archived as %s, error %v", text, err)
	}
}
