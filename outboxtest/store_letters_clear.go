package outboxtest

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func clearTests() []storeTest {
	return []storeTest{
		{name: "a discarded letter is replayed only by its id", run: discards},
		{name: "a purge deletes what was replayed or discarded long ago", run: purges},
		{name: "every action is on the record", run: records},
		{name: "a failed job has one letter for its attempts", run: recordsJobs},
		{name: "a consumer records an event with a reason of events", run: recordsEvents},
	}
}

func discards(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	s.rows.PlaceOrders(t, 2, "a", "b")
	u.Settle(tabletest.DieAt("t"))
	d := s.letters(t)
	a := deadletter.Selection{Filter: deadletter.Filter{Key: "a"}}
	for _, reason := range []string{"", " \n"} {
		n, err := deadletter.Discard(t.Context(), d, a, deadletter.Operator{Actor: "me", Reason: reason})
		if !errors.Is(err, deadletter.ErrNoReason) || n != 0 {
			t.Errorf("reason %q: discarded %d, error %v, want ErrNoReason", reason, n, err)
		}
	}
	if n, err := deadletter.Discard(t.Context(), d, a, operator); err != nil || n != 2 {
		t.Fatalf("discarded %d, error %v", n, err)
	}
	if n, err := deadletter.Discard(t.Context(), d, a, operator); err != nil || n != 0 {
		t.Errorf("discarded %d again, error %v", n, err)
	}
	if sum := replay(t, d, everyLetter); sum.Letters != 2 || sum.Skipped != 0 {
		t.Errorf("replayed %+v, want the two that are not discarded", sum)
	}
	discarded, _, err := d.List(t.Context(), deadletter.Filter{State: deadletter.StateDiscarded})
	if err != nil || len(discarded) != 2 || discarded[0].DiscardReason != "because" ||
		time.Since(*discarded[0].DiscardedAt).Abs() > time.Minute {
		t.Fatalf("got %+v, error %v", discarded, err)
	}
	o := choose(discarded[0].ID)
	if sum := replay(t, d, o); sum.Letters != 0 || !strings.Contains(whys(sum), "--discarded") {
		t.Errorf("without --discarded: %+v", sum)
	}
	o.Selection.Discarded = true
	if sum := replay(t, d, o); sum.Letters != 1 {
		t.Errorf("with --discarded: %+v", sum)
	}
	if l, err := d.Show(t.Context(), discarded[0].ID, ""); err != nil || l[0].State != deadletter.StateReplayed {
		t.Errorf("discarded and replayed after all: %+v, error %v", l, err)
	}
	if _, err := deadletter.Replay(t.Context(), d,
		deadletter.ReplayOptions{Selection: deadletter.Selection{Discarded: true, All: true}}); !errors.Is(err,
		deadletter.ErrFilter) {
		t.Errorf("all that were discarded: got %v, want ErrFilter", err)
	}
}

const day = 24 * time.Hour

func purges(t *testing.T, s *storeSuite) {
	s.rows.MakeApp(t, "acme")
	for _, tenant := range []string{"default", "acme"} {
		for _, age := range []time.Duration{day, 29 * day, 31 * day} {
			at, long := time.Now().Add(-age), time.Now().Add(-100*day)
			for _, l := range []letter{{kind: "pending"}, {kind: "replayed", replayed: at}, {kind: "discarded", discarded: long},
				{kind: "both", replayed: at, discarded: long}} {
				l.source, l.tenant, l.reason, l.history = "job", tenant, "Panic", "[]"
				s.put(t, l)
			}
		}
	}
	d := s.letters(t)
	for _, c := range []struct {
		purge deadletter.Purge
		want  int
	}{
		{deadletter.Purge{OlderThan: 30 * day, Tenant: "default"}, 2},
		{deadletter.Purge{OlderThan: 30 * day}, 2},
		{deadletter.Purge{OlderThan: 30 * day}, 0},
		{deadletter.Purge{OlderThan: 30 * day, Discarded: true}, 6},
		{deadletter.Purge{OlderThan: 0, Discarded: true}, 8},
	} {
		if n, err := d.Purgeable(t.Context(), c.purge); err != nil || n != c.want {
			t.Errorf("%+v: would delete %d, error %v, want %d", c.purge, n, err, c.want)
		}
		if n, err := c.purge.Run(t.Context(), d, operator); err != nil || n != c.want {
			t.Errorf("%+v: deleted %d, error %v, want %d", c.purge, n, err, c.want)
		}
	}
	left, _, err := d.List(t.Context(), deadletter.Filter{State: deadletter.StateAll})
	if err != nil || len(left) != 6 || left[0].Type != "pending" || left[5].Type != "pending" {
		t.Errorf("%d letters are left, error %v, want the six that are pending", len(left), err)
	}
	if n := s.Value(t, "SELECT sum(letters) FROM outbox_audit WHERE action = 'purge'"); n != "18" {
		t.Errorf("the record has %s purged letters, want 18", n)
	}
	// A page deletes at most its limit.
	for range 3 {
		s.put(t, letter{source: "job", tenant: "default", kind: "t", reason: "Panic", history: "[]",
			replayed: time.Now().Add(-day)})
	}
	for _, want := range []int{2, 1, 0} {
		if n, err := d.PurgePage(t.Context(), deadletter.Purge{}, operator, 2); err != nil || n != want {
			t.Errorf("a page of two deleted %d, error %v, want %d", n, err, want)
		}
	}
}

func records(t *testing.T, s *storeSuite) {
	s.fixtures(t)
	u := s.rows.Bury(t, outbox.OutboxEvents())
	event := s.rows.Place(t, "outbox_events", "t", "z")
	u.Settle(tabletest.DieAt("t"))
	d := s.letters(t)
	began := time.Now()
	if _, err := deadletter.Discard(t.Context(), d, deadletter.Selection{Filter: deadletter.Filter{Key: "42"}},
		operator); err != nil {
		t.Fatal(err)
	}
	letters := s.lettersOf(t, d, event)
	replay(t, d, choose(letters...))
	if _, err := (deadletter.Purge{Tenant: "default"}).Run(t.Context(), d,
		deadletter.Operator{Actor: "cron"}); err != nil {
		t.Fatal(err)
	}
	all, next, err := d.Actions(t.Context(), deadletter.ActionFilter{})
	if err != nil || len(all) != 3 || next != "" {
		t.Fatalf("got %+v, %q, error %v", all, next, err)
	}
	purged, replayed, discarded := all[0], all[1], all[2]
	if purged.Action != "purge" || purged.Actor != "cron" || purged.Letters != 2 || purged.Reason != nil ||
		!tabletest.SameJSON(purged.Filter, []byte(`{"older_than":0,"tenant":"default"}`)) ||
		!tabletest.SameJSON(purged.Detail, []byte(`{"state":"replayed"}`)) {
		t.Errorf("purge: %+v, filter %s, detail %s", purged, purged.Filter, purged.Detail)
	}
	var detail struct {
		Run     uuid.UUID
		Tables  map[string]int
		Skipped int
		Payload bool `json:"payload_replaced"`
	}
	if err := json.Unmarshal(replayed.Detail, &detail); err != nil || detail.Run == uuid.Nil ||
		detail.Tables["outbox_events"] != 1 || detail.Skipped != 0 || detail.Payload {
		t.Errorf("replay: detail %s, error %v", replayed.Detail, err)
	}
	if replayed.Action != "replay" || replayed.Actor != "test@here" || replayed.Letters != 1 ||
		*replayed.Reason != "because" || !strings.Contains(string(replayed.Filter), letters[0].String()) {
		t.Errorf("replay: %+v, filter %s", replayed, replayed.Filter)
	}
	if discarded.Action != "discard" || discarded.Letters != 2 || *discarded.Reason != "because" ||
		!tabletest.SameJSON(discarded.Filter, []byte(`{"key":"42"}`)) || discarded.At.Before(began.Add(-time.Minute)) ||
		discarded.At.After(time.Now().Add(time.Minute)) {
		t.Errorf("discard: %+v, filter %s", discarded, discarded.Filter)
	}
	first, next, err := d.Actions(t.Context(), deadletter.ActionFilter{Limit: 1})
	if err != nil || len(first) != 1 || first[0].ID != purged.ID {
		t.Fatalf("first page %+v, error %v", first, err)
	}
	if rest, next, err := d.Actions(t.Context(), deadletter.ActionFilter{After: next}); err != nil || len(rest) != 2 ||
		rest[0].ID != replayed.ID || next != "" {
		t.Errorf("after it %+v, %q, error %v", rest, next, err)
	}
	for f, want := range map[deadletter.ActionFilter]int{
		{Action: "discard", Actor: "test@here", Since: began.Add(-time.Hour), Until: time.Now().Add(time.Hour)}: 1,
		{Actor: "test@here"}: 2, {Action: "discard", Actor: "cron"}: 0, {Since: time.Now().Add(time.Hour)}: 0,
		{Until: began.Add(-time.Hour)}: 0,
	} {
		if found, _, err := d.Actions(t.Context(), f); err != nil || len(found) != want {
			t.Errorf("%+v: %d actions, error %v, want %d", f, len(found), err, want)
		}
	}
	if _, _, err := d.Actions(t.Context(), deadletter.ActionFilter{After: "x"}); !errors.Is(err, deadletter.ErrFilter) {
		t.Errorf("after nowhere: got %v, want ErrFilter", err)
	}
}

func recordsJobs(t *testing.T, s *storeSuite) {
	jobs, d := s.Jobs(t), s.letters(t)
	job := deadletter.Job{ID: tabletest.NewID(t), Tenant: "newcomer", UserID: tabletest.NewID(t),
		RequestID: tabletest.NewID(t), Type: "mail",
		Payload: json.RawMessage(`{"to": "x"}`), Attempts: 3,
		Errors: []deadletter.Failure{{Error: "first", Timestamp: time.Now()}, {Error: "bad\x00 last", Timestamp: time.Now()}}}
	for _, reason := range []outbox.Reason{deadletter.JobValidation, outbox.ReasonHandlerMissing,
		deadletter.JobRunnerUnavailable, deadletter.JobTimeout, deadletter.JobPanic} {
		other := job
		other.ID, other.Reason, other.Tenant = tabletest.NewID(t), reason, ""
		other.UserID, other.RequestID = uuid.Nil, uuid.Nil
		id, err := deadletter.Add(t.Context(), jobs, other)
		if err != nil {
			t.Errorf("%s: %v", reason, err)
			continue
		}
		if shown, err := d.Show(t.Context(), id, ""); err != nil || shown[0].Tenant != "default" ||
			shown[0].Reason != string(reason) || shown[0].UserID != nil || shown[0].RequestID != nil {
			t.Errorf("%s: got %+v, error %v", reason, shown, err)
		}
	}
	job.Reason = "DeliveryFailed"
	if _, err := deadletter.Add(t.Context(), jobs, job); !errors.Is(err, deadletter.ErrInvalidJob) {
		t.Errorf("an event's reason: got %v, want ErrInvalidJob", err)
	}
	job.Reason = deadletter.JobMaxRetries
	first, err := deadletter.Add(t.Context(), jobs, job)
	if err != nil {
		t.Fatal(err)
	}
	// Its runner did not learn that it was recorded.
	if second, err := deadletter.Add(t.Context(), jobs, job); err != nil || second != first {
		t.Errorf("recorded again: letter %s, error %v, want %s", second, err, first)
	}
	job.Attempts = 4
	if third, err := deadletter.Add(t.Context(), jobs, job); err != nil || third == first {
		t.Errorf("after one more attempt: letter %s, error %v, want another", third, err)
	}
	shown, err := d.Show(t.Context(), first, "")
	if err != nil || len(shown) != 1 {
		t.Fatalf("%d letters, error %v", len(shown), err)
	}
	l := shown[0]
	if l.OriginalID != job.ID || l.Source != deadletter.SourceJob || l.Tenant != "newcomer" || *l.UserID != job.UserID ||
		*l.RequestID != job.RequestID || l.Reason != "MaxRetries" || l.Attempts != 3 ||
		l.LastError != "bad last" || !tabletest.SameJSON(l.Payload, job.Payload) || l.Position != nil || l.Table != "" {
		t.Errorf("got %+v", l)
	}
}

func recordsEvents(t *testing.T, s *storeSuite) {
	jobs, d := s.Jobs(t), s.letters(t)
	event := deadletter.Job{Source: deadletter.SourceEvent, ID: tabletest.NewID(t), Type: "order.placed",
		Payload: json.RawMessage("1"), Attempts: 3, Errors: []deadletter.Failure{{Error: "slow", Timestamp: time.Now()}}}
	for _, reason := range []outbox.Reason{outbox.ReasonDeliveryFailed, outbox.ReasonDeserializationFailed,
		outbox.ReasonDuplicateEvent, outbox.ReasonHandlerMissing} {
		other := event
		other.ID, other.Reason = tabletest.NewID(t), reason
		if _, err := deadletter.Add(t.Context(), jobs, other); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
	}
	event.Reason = outbox.ReasonHandlerTimeout
	first, err := deadletter.Add(t.Context(), jobs, event)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := deadletter.Add(t.Context(), jobs, event); err != nil || again != first {
		t.Errorf("recorded again: letter %s, error %v, want %s", again, err, first)
	}
	job := event
	job.Source, job.Reason = deadletter.SourceJob, deadletter.JobTimeout
	if other, err := deadletter.Add(t.Context(), jobs, job); err != nil || other == first {
		t.Errorf("a job with the id of the event: letter %s, error %v, want another", other, err)
	}
	shown, err := d.Show(t.Context(), event.ID, "")
	if err != nil || len(shown) != 2 {
		t.Fatalf("%d letters, error %v, want 2", len(shown), err)
	}
	for _, l := range shown {
		if l.ID == first && (l.Source != deadletter.SourceEvent || l.Reason != "HandlerTimeout" || l.Type != "order.placed" ||
			l.Attempts != 3 || l.LastError != "slow") {
			t.Errorf("got %+v", l)
		}
	}
	if sum := replay(t, d, choose(first)); sum.Letters != 0 || !strings.Contains(whys(sum), "a consumer recorded it") {
		t.Errorf("replayed %+v, want it skipped", sum)
	}
}
