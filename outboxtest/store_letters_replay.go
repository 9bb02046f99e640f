package outboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func replayTests() []storeTest {
	return []storeTest{
		{name: "a replay puts events back as they were, under their own ids", run: putsBack},
		{name: "an event that dies again is replayed again", run: replaysAgain},
		{name: "a replay keeps the order of a key, page by page", run: replaysInOrder},
		{name: "two replays at once replay each letter once", run: replaysOnce},
		{name: "a replay that is stopped goes on where it was", run: replayResumes},
		{name: "a replay serves the destinations that failed and no others", run: replaysDestinations},
		{name: "a replay can mend the payload", run: replaysMended},
		{name: "a dead row that left its table is put back at its position", run: putsRowsBack},
		{name: "what cannot be replayed says why, and the rest is replayed", run: replaySkips},
		{name: "a settle that is sent again after a replay changes nothing", run: settlesAfterReplay},
	}
}

// arriveOnly lets the event of an id tabletest.Arrive, and all others die.
func arriveOnly(id string) func(*outbox.Record) []string {
	return func(r *outbox.Record) []string {
		if r.ID.String() == id {
			return nil
		}
		return []string{"t"}
	}
}

func (s *storeSuite) lettersOf(
	t *testing.T, d deadletter.Store, event uuid.UUID, destinations ...string,
) (ids []uuid.UUID) {
	t.Helper()
	shown, err := d.Show(t.Context(), event, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range shown {
		if len(destinations) == 0 || slices.Contains(destinations, l.Destination) {
			ids = append(ids, l.ID)
		}
	}
	return ids
}

var everyLetter = deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}}

func choose(ids ...uuid.UUID) deadletter.ReplayOptions {
	return deadletter.ReplayOptions{Selection: deadletter.Selection{IDs: ids}}
}

func replay(t *testing.T, d deadletter.Store, o deadletter.ReplayOptions) deadletter.Replayed {
	t.Helper()
	o.Operator = operator
	sum, err := deadletter.Replay(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// whys are the reasons for which letters were skipped.
func whys(r deadletter.Replayed) string {
	var all []string
	for _, s := range r.Reasons {
		all = append(all, s.Why)
	}
	return strings.Join(all, "; ")
}

func putsBack(t *testing.T, s *storeSuite) {
	s.rows.MakeRun(t)
	for _, layout := range tabletest.Layouts() {
		t.Run(layout.Table, func(t *testing.T) {
			u := s.rows.Bury(t, layout)
			for i := range 3 {
				s.rows.Place(t, layout.Table, fmt.Sprintf("t.%d", i), "k")
			}
			died := u.Settle(tabletest.DieAt("t"))
			d := s.letters(t)
			o := deadletter.ReplayOptions{Selection: deadletter.Selection{Filter: deadletter.Filter{Table: layout.Table}}}
			sum := replay(t, d, o)
			if sum.Letters != 3 || sum.Tables[layout.Table] != 3 || sum.Skipped != 0 {
				t.Fatalf("got %+v, want 3 letters", sum)
			}
			again := u.Settle(tabletest.Arrive)
			if len(again) != 3 {
				t.Fatalf("%d events are to be delivered, want 3", len(again))
			}
			for i, r := range again {
				was := died[i]
				if r.ID != was.ID || r.Position != was.Position || r.Sequence != was.Sequence || r.Topic != was.Topic ||
					r.AggregateID != was.AggregateID || r.TenantID != was.TenantID || r.Lane != was.Lane ||
					!r.OccurredAt.Equal(was.OccurredAt) || !r.WrittenAt.Equal(was.WrittenAt) ||
					string(r.Payload) != string(was.Payload) || r.Generation != 1 || r.Attempts != 0 || len(r.DeliveredTo) != 0 {
					t.Errorf("event %d came back as %+v, it was %+v", i, r, was)
				}
			}
			history := s.Value(t, "SELECT "+layout.ErrorHistory+" FROM "+layout.Table+" WHERE "+layout.DeliveredAt+
				" IS NOT NULL AND "+layout.ID+" = ?1", died[0].ID.String())
			if !strings.Contains(history, "connection refused by t") {
				t.Errorf("its row has the history %q, want it delivered, its history kept", history)
			}
			letters, err := d.Show(t.Context(), died[0].ID, "")
			if err != nil || len(letters) != 1 || letters[0].State != deadletter.StateReplayed ||
				time.Since(*letters[0].ReplayedAt).Abs() > time.Minute {
				t.Errorf("its letter is %+v, error %v", letters, err)
			}
			if sum := replay(t, d, o); sum.Letters+sum.Skipped != 0 {
				t.Errorf("a second replay did %+v", sum)
			}
		})
	}
}

func replaysAgain(t *testing.T, s *storeSuite) {
	u, d := s.rows.Bury(t, outbox.EventOutbox()), s.letters(t)
	s.rows.Place(t, "event_outbox", "t", "k")
	u.Settle(tabletest.DieAt("t"))
	replay(t, d, everyLetter)
	u.Settle(tabletest.DieAt("t"))
	replay(t, d, everyLetter)
	if last := u.Settle(tabletest.Arrive); len(last) != 1 || last[0].Generation != 2 {
		t.Errorf("after a second death: %+v", last)
	}
}

func replaysInOrder(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	s.rows.PlaceOrders(t, 5, "a", "b")
	died := u.Settle(tabletest.DieAt("t"))
	d := s.letters(t)
	var order []uuid.UUID
	pages := 0
	o := everyLetter
	o.Rate = 12 // three a page
	o.Progress = func(deadletter.Replayed, deadletter.ReplayPage) {
		pages++
		for _, r := range u.Settle(tabletest.Arrive) {
			order = append(order, r.ID)
		}
	}
	if sum := replay(t, d, o); sum.Letters != 10 || sum.Skipped != 0 || pages != 4 {
		t.Fatalf("got %+v in %d pages, want 10 letters in 4", sum, pages)
	}
	for i, id := range order {
		if id != died[i].ID {
			t.Fatalf("event %d to come back is %s, want %s", i, id, died[i].ID)
		}
	}
	if _, err := d.ReplayPage(t.Context(), deadletter.ReplayRequest{After: "there", Limit: 1}); !errors.Is(err,
		deadletter.ErrFilter) {
		t.Errorf("after nowhere: got %v, want ErrFilter", err)
	}
}

func replaysOnce(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	s.rows.PlaceOrders(t, 60, "a", "b")
	u.Settle(tabletest.DieAt("t"))
	sums := make([]deadletter.Replayed, 3)
	var running sync.WaitGroup
	for i := range sums {
		d := s.letters(t)
		running.Go(func() {
			o := everyLetter
			o.Operator, o.Rate = operator, 160 // forty a page
			var err error
			if sums[i], err = deadletter.Replay(t.Context(), d, o); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	if n := sums[0].Letters + sums[1].Letters + sums[2].Letters; n != 120 {
		t.Errorf("%d letters were replayed, want 120: %+v", n, sums)
	}
	again := u.Settle(tabletest.Arrive)
	for _, r := range again {
		if r.Generation != 1 {
			t.Errorf("event %s was put back %d times", r.ID, r.Generation)
		}
	}
	if n := s.Value(t, "SELECT sum(letters) FROM outbox_audit WHERE action = 'replay'"); len(again) != 120 || n != "120" {
		t.Errorf("%d came back, the record has %s", len(again), n)
	}
	if n := s.Value(t, `SELECT count(*) FROM (SELECT replayed_at < lag(replayed_at) OVER (PARTITION BY event_key ORDER BY position)
		AS early FROM job_dlq) l WHERE early`); n != "0" {
		t.Errorf("%s letters were replayed before an earlier one of their key", n)
	}
}

func replayResumes(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	s.rows.PlaceOrders(t, 20, "a", "b")
	u.Settle(tabletest.DieAt("t"))
	d := s.letters(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	sum, err := deadletter.Replay(ctx, d,
		deadletter.ReplayOptions{Selection: everyLetter.Selection, Operator: operator, Rate: 40,
			Progress: func(sum deadletter.Replayed, _ deadletter.ReplayPage) {
				if sum.Letters >= 20 {
					stop()
				}
			}})
	if !errors.Is(err, context.Canceled) || sum.Letters != 20 {
		t.Fatalf("stopped after %+v, error %v", sum, err)
	}
	if half := u.Settle(tabletest.Arrive); len(half) != 20 {
		t.Errorf("%d came back, want 20", len(half))
	}
	if rest := replay(t, d, everyLetter); rest.Letters != 20 || rest.Skipped != 0 {
		t.Errorf("the rest is %+v", rest)
	}
}

func replaysDestinations(t *testing.T, s *storeSuite) {
	u, d := s.rows.Bury(t, outbox.OutboxEvents()), s.letters(t)
	write := func() uuid.UUID {
		id := tabletest.NewID(t)
		s.Exec(t,
			`INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload, destination_topics) VALUES (?1, 't', ?2, 's', '1', '["a", "b", "c"]')`, id.String(), time.Now())
		return id
	}
	event := write()
	u.Settle(tabletest.DieAt("a", "c"))
	a, c := choose(s.lettersOf(t, d, event, "a")...), choose(s.lettersOf(t, d, event, "c")...)
	if sum := replay(t, d, a); sum.Letters != 1 {
		t.Fatalf("a: %+v", sum)
	}
	// A relay may have read it already, for a alone.
	if sum := replay(t, d, c); sum.Letters != 0 ||
		!strings.Contains(whys(sum), "outbox_events is NEW, not DEAD: it is being delivered") {
		t.Errorf("c while a is on its way: %+v", sum)
	}
	served := func(r *outbox.Record) []string { return slices.Sorted(slices.Values(r.DeliveredTo)) }
	if got := u.Settle(tabletest.Arrive); len(got) != 1 || !slices.Equal(served(got[0]), []string{"b", "c"}) ||
		got[0].Generation != 1 {
		t.Fatalf("for a came %+v", got)
	}
	if sum := replay(t, d, c); sum.Letters != 1 {
		t.Fatalf("c after a: %+v", sum)
	}
	if got := u.Settle(tabletest.Arrive); len(got) != 1 || !slices.Equal(served(got[0]), []string{"a", "b"}) ||
		got[0].Generation != 2 {
		t.Errorf("for c came %+v", got)
	}
	// All together are one event, also where a page would part them.
	write()
	u.Settle(tabletest.DieAt("a", "b", "c"))
	page, err := d.ReplayPage(t.Context(),
		deadletter.ReplayRequest{Selection: everyLetter.Selection, Operator: operator, Limit: 1})
	if err != nil || page.Replayed["outbox_events"] != 3 || len(page.Skipped) != 0 {
		t.Errorf("all of an event: %+v, error %v", page, err)
	}
	if got := u.Settle(tabletest.Arrive); len(got) != 1 || len(got[0].DeliveredTo) != 0 {
		t.Errorf("for all came %+v", got)
	}
}

func replaysMended(t *testing.T, s *storeSuite) {
	s.rows.MakeRun(t)
	d := s.letters(t)
	for _, layout := range tabletest.Layouts() {
		u := s.rows.Bury(t, layout)
		id := s.rows.Place(t, layout.Table, "t", "k")
		u.Settle(tabletest.DieAt("t"))
		o := choose(s.lettersOf(t, d, id)...)
		for payload, says := range map[string]string{`{`: "not valid JSON", `"\u0000"`: "u0000"} {
			o.Payload = json.RawMessage(payload)
			if _, err := deadletter.Replay(t.Context(), d, o); !errors.Is(err, outbox.ErrInvalidEvent) ||
				!strings.Contains(err.Error(), says) {
				t.Errorf("%s: payload %s: got %v, want ErrInvalidEvent that says %q", layout.Table, payload, err, says)
			}
		}
		o.Payload = json.RawMessage(`{"n": 2}`)
		if _, err := deadletter.Replay(t.Context(), d, deadletter.ReplayOptions{Payload: o.Payload}); !errors.Is(err,
			deadletter.ErrFilter) {
			t.Errorf("%s: one payload for all letters: got %v, want ErrFilter", layout.Table, err)
		}
		if sum := replay(t, d, o); sum.Letters != 1 {
			t.Fatalf("%s: %+v", layout.Table, sum)
		}
		if again := u.Settle(tabletest.Arrive); len(again) != 1 || again[0].ID != id ||
			!tabletest.SameJSON(again[0].Payload, o.Payload) {
			t.Errorf("%s: came back as %+v", layout.Table, again)
		}
		if shown, err := d.Show(t.Context(), id, ""); err != nil ||
			!tabletest.SameJSON(shown[0].Payload, []byte(`{"n": 1}`)) {
			t.Errorf("%s: the letter has %+v, error %v, want the payload that failed", layout.Table, shown, err)
		}
	}
	if n := s.Value(t, "SELECT count(*) FROM outbox_audit WHERE reason = 'because'"); n != "3" {
		t.Errorf("%s replays are on the record", n)
	}
}

// columns returns what a table, or those of its rows that follow WHERE, has in the columns, row by
// row in the order of the first.
func (s *storeSuite) columns(t *testing.T, rows string, names ...string) (values []string) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(s.Value(t, "SELECT count(*) FROM "+rows), &n); err != nil {
		t.Fatal(err)
	}
	for row := range n {
		for _, name := range names {
			values = append(values,
				s.Value(t, fmt.Sprintf("SELECT %s FROM %s ORDER BY %s LIMIT 1 OFFSET %d", name, rows, names[0], row)))
		}
	}
	return values
}

// sameValue compares two values of a column as texts, or as JSON if they are.
func sameValue(a, b string) bool { return a == b || tabletest.SameJSON([]byte(a), []byte(b)) }

func putsRowsBack(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.CrawlOutbox())
	s.rows.MakeRun(t)
	s.Exec(t, "INSERT INTO crawl_runs (id, app_package) VALUES ('00000000-0000-0000-0000-000000000002', 'gone')")
	at := time.Date(2025, 1, 2, 3, 4, 5, 678901000, time.UTC)
	for i, payload := range []string{`{"b": 1, "a": "é\n\u2028"}`, "null", `"text"`} {
		s.Exec(t,
			"INSERT INTO crawl_outbox (crawl_id, event_id, event_type, payload, seq, created_at) VALUES (?1, ?2, 'NODE', "+
				"?3, ?4, ?5)", tabletest.CrawlRun, tabletest.NewID(t).String(), payload, i+101, at.Add(time.Duration(i)*time.Hour))
	}
	s.Exec(t,
		"INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES ('00000000-0000-0000-0000-000000000002', "+
			"'NODE', '4')")
	d := s.letters(t)
	all := []string{"id", "crawl_id", "event_id", "event_type", "payload", "seq", "created_at", "published_at",
		"retry_count", "next_retry_at", "error_message", "delivered_to", "tenant_id"}
	before := s.columns(t, "crawl_outbox WHERE crawl_id = '"+tabletest.CrawlRun+"'", all...)
	if len(before) != 3*len(all) {
		t.Fatalf("%d columns of three rows", len(before))
	}
	u.Settle(tabletest.DieAt("run:" + tabletest.CrawlRun))
	if n := s.Value(t, "SELECT count(*) FROM crawl_outbox"); n != "0" {
		t.Fatalf("%s rows are left", n)
	}
	s.Exec(t, "DELETE FROM crawl_runs WHERE app_package = 'gone'")
	sum := replay(t, d, everyLetter)
	if sum.Letters != 3 || sum.Skipped != 1 || !strings.Contains(strings.ToLower(whys(sum)), "foreign key") {
		t.Fatalf("got %+v, want the three of the run that is there", sum)
	}
	after := s.columns(t, "crawl_outbox WHERE crawl_id = '"+tabletest.CrawlRun+"'", all...)
	if !slices.EqualFunc(after, before, sameValue) {
		t.Errorf("got\n%q\nwant\n%q", after, before)
	}
	s.Exec(t, "UPDATE job_dlq SET replayed_at = NULL") // as if somebody had meddled
	if sum := replay(t, d, everyLetter); sum.Letters != 0 ||
		!strings.Contains(whys(sum), "its row is in crawl_outbox again and is being delivered") {
		t.Errorf("rows that are there: %+v", sum)
	}
	if again := u.Settle(tabletest.Arrive); len(again) != 3 || again[1].Generation != 1 || again[2].Sequence != 103 {
		t.Errorf("came back as %+v", again)
	}
	if sum := replay(t, d, everyLetter); sum.Letters != 0 || !strings.Contains(whys(sum), "was delivered") {
		t.Errorf("rows that were delivered: %+v", sum)
	}
	s.Exec(t, "UPDATE job_dlq SET origin = NULL")
	if sum := replay(t, d, everyLetter); sum.Letters != 0 || !strings.Contains(whys(sum), "was not kept") {
		t.Errorf("letters that keep no row: %+v", sum)
	}
}

func replaySkips(t *testing.T, s *storeSuite) {
	u := s.rows.Bury(t, outbox.OutboxEvents())
	s.rows.PlaceOrders(t, 4, "a")
	died := u.Settle(tabletest.DieAt("t"))
	s.Exec(t, "UPDATE outbox_events SET status = 'SENT' WHERE id = ?1", died[0].ID.String())
	s.Exec(t, "DELETE FROM outbox_events WHERE id = ?1", died[1].ID.String())
	s.Exec(t, "UPDATE job_dlq SET outbox_table = 'elsewhere' WHERE original_job_id = ?1", died[2].ID.String())
	s.put(t, letter{source: "job", tenant: "default", kind: "mail", reason: "Panic", history: "[]"})
	d := s.letters(t)
	sum := replay(t, d, everyLetter)
	if sum.Letters != 1 || sum.Skipped != 4 {
		t.Errorf("got %+v, want 1 replayed and 4 skipped", sum)
	}
	for _, says := range []string{"is SENT, not DEAD", "no longer in outbox_events", "no table elsewhere", "--layouts",
		"DeadLettersConfig.Layouts", "program that runs the jobs"} {
		if !strings.Contains(whys(sum), says) {
			t.Errorf("%q is missing in: %s", says, whys(sum))
		}
	}
	fourth := s.lettersOf(t, d, died[3].ID)
	if sum := replay(t, d, choose(fourth[0], tabletest.NewID(t))); sum.Letters != 0 || sum.Skipped != 2 ||
		!strings.Contains(whys(sum), "replayed already; there is no letter") {
		t.Errorf("by id: %+v", sum)
	}
}

func settlesAfterReplay(t *testing.T, s *storeSuite) {
	s.rows.MakeRun(t)
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.CrawlOutbox()} {
		u := s.rows.Bury(t, layout)
		s.rows.Place(t, layout.Table, "t", "k")
		died := u.Settle(tabletest.DieAt("t"))
		if sum := replay(t, s.letters(t), everyLetter); sum.Letters != 1 {
			t.Fatalf("%s: %+v", layout.Table, sum)
		}
		for _, state := range []outbox.State{outbox.Dead, outbox.Retry, outbox.Delivered} {
			settled, err := u.Store.Settle(t.Context(), u.Owner, u.Lanes,
				[]outbox.Outcome{{Record: died[0], State: state, Attempts: 1, RetryIn: time.Hour,
					Failures: []outbox.Failure{{Destination: "t", Reason: outbox.ReasonDeliveryFailed, Error: "refused"}}}})
			if err != nil || settled.Lost != 1 {
				t.Errorf("%s: state %d: settled %+v, error %v, want it to change nothing", layout.Table, state, settled, err)
			}
		}
		if got := u.Settle(tabletest.Arrive); len(got) != 1 || got[0].Generation != 1 {
			t.Errorf("%s: %d records are to be delivered, want the one that was put back", layout.Table, len(got))
		}
	}
}
