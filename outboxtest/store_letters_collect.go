package outboxtest

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func collectTests() []storeTest {
	return []storeTest{
		{name: "a row that is set dead by hand gets a letter, which is replayed", run: collects},
		{name: "a letter names the user and the request of the event's metadata", run: letterNames},
	}
}

func collects(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	died := s.rows.Place(t, "outbox_events", "t", "b")
	u.Settle(tabletest.DieAt("t"))
	byHand := s.rows.Place(t, "outbox_events", "t", "a")
	noted := s.rows.Place(t, "outbox_events", "t", "a")
	s.Exec(t, `UPDATE outbox_events SET status = 'DEAD', tenant_id = 'nobody' WHERE id = ?1`, byHand.String())
	s.Exec(t, `UPDATE outbox_events SET status = 'DEAD', error_message = 'wrong' WHERE id = ?1`, noted.String())
	d := s.letters(t)
	for _, want := range []int{2, 0} {
		if n, err := deadletter.Collect(t.Context(), d, "outbox_events", operator); err != nil || n != want {
			t.Fatalf("collected %d letters, error %v, want %d", n, err, want)
		}
	}
	for _, c := range []struct {
		event         uuid.UUID
		error, tenant string
	}{{byHand, "set dead by hand", "nobody"}, {noted, "wrong", "default"}} {
		found, err := d.Show(t.Context(), c.event, "")
		if err != nil || len(found) != 1 {
			t.Fatalf("letters of %s: %+v, error %v", c.event, found, err)
		}
		l := found[0]
		if l.Source != deadletter.SourceEvent || l.Type != "t" || l.Key != "a" || l.Tenant != c.tenant ||
			l.LastError != c.error ||
			l.Reason != "DeliveryFailed" || l.Attempts != 1 || string(l.Payload) == "" || l.Table != "outbox_events" {
			t.Errorf("letter of %s: %+v", c.event, l)
		}
	}
	ids := s.lettersOf(t, d, byHand)
	if sum := replay(t, d, choose(ids...)); sum.Letters != 1 {
		t.Errorf("replayed %+v, want the letter of the row that was set dead", sum)
	}
	s.Exec(t, `UPDATE outbox_events SET status = 'DEAD' WHERE id = ?1`, byHand.String())
	if n, err := deadletter.Collect(t.Context(), d, "outbox_events", operator); err != nil || n != 1 {
		t.Errorf("collected %d letters of a row that was put back and is dead again, error %v, want 1", n, err)
	}
	if found, err := d.Show(t.Context(), died, ""); err != nil || len(found) != 1 {
		t.Errorf("letters of the one that a relay buried: %+v, error %v, want its one", found, err)
	}
	actions, _, err := d.Actions(t.Context(), deadletter.ActionFilter{Action: "collect"})
	if err != nil || len(actions) != 2 || actions[1].Letters != 2 || actions[1].Actor != operator.Actor {
		t.Errorf("on the record: %+v, error %v, want two entries, of one letter and of two", actions, err)
	}
	for _, table := range []string{"crawl_outbox", "no_such_table"} {
		if n, err := deadletter.Collect(t.Context(), d, table, operator); err != nil || n != 0 {
			t.Errorf("%s: collected %d letters, error %v", table, n, err)
		}
	}
}

func letterNames(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	user, request := tabletest.NewID(t), tabletest.NewID(t)
	written := map[string]string{
		"both":   `{"user_id": "` + user.String() + `", "request_id": "` + request.String() + `"}`,
		"others": `{"user_id": 7, "request_id": "r-1"}`,
		"list":   `["user_id"]`,
	}
	for topic, metadata := range written {
		id := s.rows.Place(t, "outbox_events", topic, topic)
		s.Exec(t, `UPDATE outbox_events SET metadata = ?2 WHERE id = ?1`, id.String(), metadata)
	}
	u.Settle(tabletest.DieAt("t"))
	d := s.letters(t)
	found, _, err := d.List(t.Context(), deadletter.Filter{})
	if err != nil || len(found) != len(written) {
		t.Fatalf("letters: %+v, error %v, want %d", found, err, len(written))
	}
	for _, l := range found {
		named := l.UserID != nil && *l.UserID == user && l.RequestID != nil && *l.RequestID == request
		if none := l.UserID == nil && l.RequestID == nil; l.Type == "both" && !named || l.Type != "both" && !none {
			t.Errorf("%s: user %v, request %v", l.Type, l.UserID, l.RequestID)
		}
	}
	found, _, err = d.List(t.Context(), deadletter.Filter{RequestID: request})
	if err != nil || !slices.EqualFunc(found, []string{"both"},
		func(l deadletter.Letter, topic string) bool { return l.Type == topic }) {
		t.Errorf("letters of the request: %+v, error %v", found, err)
	}
	if sum := replay(t, d,
		deadletter.ReplayOptions{
			Selection: deadletter.Selection{Filter: deadletter.Filter{RequestID: request}},
		}); sum.Letters != 1 {
		t.Errorf("replayed %+v, want the letter of the request", sum)
	}
}
