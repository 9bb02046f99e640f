package outboxtest

import (
	"slices"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func mappedTests() []storeTest {
	return []storeTest{
		{name: "a table of another shape gets its dead rows back", run: replaysMapped},
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
