package outboxtest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func settleTests() []storeTest {
	return []storeTest{
		{name: "a delivered event is not claimed again", run: settlesDelivered},
		{name: "a delivered event that failed before waits for nothing", run: settlesDeliveredAtLast,
			notInLog: noState},
		{name: "a delivered row that a pending letter needs stays", run: keepsWhatLettersNeed, notInLog: noState},
		{name: "a delivered row that the application refers to is marked, and stays", run: keepsReferencedRows,
			notInLog: noState},
		{name: "a retry waits, and comes back with its attempts, its errors and what was served", run: settlesRetry,
			notInLog: noState},
		{name: "what was refused before is settled, whatever it is to become", run: settlesAgain, notInLog: noState},
		{name: "a dead event becomes a letter for each failed destination, with its history", run: settlesDead,
			notInLog: noState},
		{name: "a dead row leaves crawl_outbox for its letter, and is failed in event_outbox", run: settlesDeadRow,
			notInLog: noOther},
		{name: "a dead letter needs no registered tenant", run: settlesUnknownTenant},
		{name: "a dead event whose letters cannot all be kept has none, and waits; the others do not", run: settlesRefused,
			notInLog: noState},
		{name: "one settle may have all outcomes", run: settlesMixture, notInLog: noState},
		{name: "a settle under an old epoch changes nothing", run: settlesUnderOldEpoch, notInLog: noState},
		{name: "a settle that waits while its lanes go to another changes nothing", run: settlesAfterWaiting,
			notInLog: noState},
		{name: "a settle that is sent twice counts once", run: settlesTwice},
		{name: "a settle that comes after a replay changes nothing", run: ignoresSettleAfterReplay,
			notInLog: noState},
		{name: "a settle changes nothing of another event at the same position", run: settlesOtherEvent,
			notInLog: noState},
		{name: "an error of any text can be kept", run: keepsAnyError, notInLog: noState},
	}
}

func settlesDelivered(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, numbered(3, "a", "b")...)
	r.settles(outbox.Settled{Delivered: 2}, delivered(r.claim()[:2]...)...)
	r.wants("a/2", "b/2", "a/3", "b/3")
	s.wantsSent(t, 2, 6)
	r.settles(outbox.Settled{})
}

func settlesDeliveredAtLast(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, numbered(3, "a", "b")...)
	again := retried(r.claim()[0])
	again.RetryIn = 0
	r.settles(outbox.Settled{Retried: 1}, again)
	r.settles(outbox.Settled{Delivered: 1}, delivered(r.claim()[0])...)
	s.wantsSent(t, 1, 6)
}

// A letter is replayed into its event's row. As long as one is pending, the row is there.
func keepsWhatLettersNeed(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	e := keyed("a1", "a")
	e.Destinations = []string{"x", "y"}
	s.commits(t, e, keyed("a2", "a"))
	r.settles(outbox.Settled{Dead: 1}, buried(r.claim()[0], "x", "y"))
	revive := func(destination string) {
		t.Helper()
		s.Exec(t, "UPDATE job_dlq SET replayed_at = ?1 WHERE destination = ?2", time.Now(), destination)
		s.Exec(t, "UPDATE outbox_events SET status = 'NEW', generation = generation + 1 WHERE event_topic = 'a1'")
	}
	const kept = "SELECT status FROM outbox_events WHERE event_topic = 'a1'"
	revive("x")
	r.settles(outbox.Settled{Delivered: 1}, delivered(r.claim()[0])...)
	if got := s.Value(t, kept); got != "SENT" {
		t.Errorf("delivered to x, while the letter of y is pending: the row is %q, want it SENT", got)
	}
	r.wants("a2")
	revive("y")
	r.settles(outbox.Settled{Delivered: 2}, delivered(r.wants("a1", "a2")...)...)
	s.wantsSent(t, 2, 2)
}

// A foreign key of the application, checked at once or at the commit, keeps a row in the table. The
// event was delivered, so it must not be published again.
func keepsReferencedRows(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	for i, deferred := range []string{"", "DEFERRABLE INITIALLY DEFERRED"} {
		table := fmt.Sprintf("mail_log_%d", i)
		s.Exec(t, "CREATE TABLE "+table+" (event uuid REFERENCES outbox_events (id) "+deferred+")")
		for _, referenced := range []int{1, 12} {
			s.commits(t, numbered(8, "a", "b")...)
			records := r.claim()
			for _, rec := range records[:referenced] {
				s.Exec(t, "INSERT INTO "+table+" VALUES (?1)", rec.ID.String())
			}
			r.settles(outbox.Settled{Delivered: len(records)}, delivered(records...)...)
			r.wants()
			left := s.Value(t, "SELECT count(*) FROM outbox_events JOIN "+table+" ON event = id WHERE status = 'SENT'")
			if want := s.Value(t, "SELECT count(*) FROM "+table); left != want {
				t.Errorf("%s of %s referenced rows are marked as delivered", left, want)
			}
		}
	}
}

func settlesRetry(t *testing.T, s *storeSuite) {
	layout := outbox.OutboxEvents()
	r := s.serve(t, layout)
	e := keyed("a1", "a")
	e.Destinations = []string{"x", "y", "z"}
	s.commits(t, e, keyed("a2", "a"))
	rec := r.claim()[0]
	r.settles(outbox.Settled{Retried: 1},
		outbox.Outcome{Record: rec, State: outbox.Retry, Attempts: 1, RetryIn: time.Hour, DeliveredTo: []string{"x"},
			Failures: []outbox.Failure{
				{Destination: "y", Reason: outbox.ReasonDeliveryFailed, Error: "refused"},
				{Destination: "z", Reason: outbox.ReasonDeliveryFailed, Error: "no route"}}})
	r.wants()
	s.Age(t, layout, 59*time.Minute)
	r.wants()
	s.Age(t, layout, 2*time.Minute)
	rec = r.wants("a1", "a2")[0]
	if rec.Attempts != 1 || fmt.Sprint(rec.DeliveredTo) != "[x]" || len(rec.Destinations) != 3 {
		t.Errorf("got %d attempts, delivered to %v of %v", rec.Attempts, rec.DeliveredTo, rec.Destinations)
	}
	if got := s.Value(t,
		"SELECT error_message FROM outbox_events WHERE event_topic = 'a1'"); got != "y: refused; z: no route" {
		t.Errorf("the error is %q", got)
	}
	// What was not attempted, for the broker's sake, waits without an error and loses none.
	r.settles(outbox.Settled{Retried: 1},
		outbox.Outcome{Record: rec, State: outbox.Retry, Attempts: 1, DeliveredTo: []string{"x", "y"}})
	rec = r.claim()[0]
	if rec.Attempts != 1 || len(rec.DeliveredTo) != 2 {
		t.Errorf("got %d attempts, delivered to %v", rec.Attempts, rec.DeliveredTo)
	}
	if got := s.Value(t,
		"SELECT error_message FROM outbox_events WHERE event_topic = 'a1'"); got != "y: refused; z: no route" {
		t.Errorf("the error is now %q", got)
	}
	r.settles(outbox.Settled{Retried: 1},
		outbox.Outcome{Record: rec, State: outbox.Retry, Attempts: 2, Failures: []outbox.Failure{{Error: "again"}}})
	wantHistory(t, s.Value(t, "SELECT error_history FROM outbox_events WHERE event_topic = 'a1'"),
		"y: refused; z: no route", "again")
	if got := s.Value(t, "SELECT status FROM outbox_events WHERE event_topic = 'a1'"); got != "FAILED" {
		t.Errorf("status %s", got)
	}
}

// A store that passes over locked rows for an outcome that it refused before must not take its own
// change for one.
func settlesAgain(t *testing.T, s *storeSuite) {
	s.rows.MakeRun(t)
	for _, layout := range tabletest.Layouts() {
		r := s.serve(t, layout)
		for _, key := range []string{"a", "b", "c"} {
			s.rows.Place(t, layout.Table, "order.placed", key)
		}
		records := r.claim()
		if len(records) != 3 {
			t.Fatalf("%s: claimed %d, want 3", layout.Table, len(records))
		}
		failed := []outbox.Failure{{Reason: outbox.ReasonDeliveryFailed, Error: "no route"}}
		r.settles(outbox.Settled{Delivered: 1, Retried: 1, Dead: 1},
			outbox.Outcome{Record: records[0], State: outbox.Delivered, Refused: 1},
			outbox.Outcome{Record: records[1], State: outbox.Retry, Attempts: 1, RetryIn: time.Hour, Failures: failed,
				Refused: 2},
			outbox.Outcome{Record: records[2], State: outbox.Dead, Attempts: 5, Failures: failed, Refused: 1})
	}
}

// wantHistory fails unless a history has these errors, each with a time of the last hours.
func wantHistory(t *testing.T, text string, errors ...string) {
	t.Helper()
	var history []deadletter.Failure
	if err := json.Unmarshal([]byte(text), &history); err != nil {
		t.Fatalf("history %s: %v", text, err)
	}
	var got []string
	for _, f := range history {
		got = append(got, f.Error)
		if age := time.Since(f.Timestamp); age < -time.Minute || age > 3*time.Hour {
			t.Errorf("an error is of %s", f.Timestamp)
		}
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", errors) {
		t.Errorf("the history has %q, want %q", got, errors)
	}
}

func settlesDead(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	e := keyed("a1", "a")
	e.ID, e.Destinations, e.Payload = tabletest.NewID(t), []string{"x", "y", "z"}, json.RawMessage(`{"n": 1.50}`)
	s.commits(t, e, keyed("a2", "a"))
	first := retried(r.claim()[0])
	first.RetryIn = 0
	r.settle(first)
	dead := buried(r.claim()[0], "x", "z")
	dead.Attempts, dead.DeliveredTo = 5, []string{"y"}
	r.settles(outbox.Settled{Dead: 1}, dead)
	r.wants("a2") // the key goes on
	if got := s.Value(t,
		"SELECT status || retry_count || error_message FROM outbox_events WHERE "+
			"event_topic = 'a1'"); got != "DEAD5refused by x; refused by z" {
		t.Errorf("the row is %s", got)
	}
	const letter = ` FROM job_dlq WHERE source = 'event' AND error_reason = 'DeliveryFailed' AND attempts = 5 AND outbox_table = 'outbox_events' AND event_key = 'a' AND type = 'a1'
		AND generation = 0 AND replayed_at IS NULL AND origin IS NULL AND position IS NOT NULL AND app_id = (SELECT id FROM apps WHERE namespace = 'default')`
	if got := s.Value(t, "SELECT count(DISTINCT destination)"+letter+" AND original_job_id = ?1",
		e.ID.String()); got != "2" {
		t.Errorf("%s letters, want one for x and one for z", got)
	}
	if got := s.Value(t, "SELECT payload"+letter+" AND destination = 'x'"); !s.sameContent([]byte(got), e.Payload) {
		t.Errorf("payload %s", got)
	}
	wantHistory(t, s.Value(t, "SELECT error_history"+letter+" AND destination = 'z'"), "connection refused",
		"refused by x; refused by z")
}

func settlesDeadRow(t *testing.T, s *storeSuite) {
	s.rows.MakeRun(t)
	id := s.rows.Place(t, "crawl_outbox", "NODE_START", "")
	s.rows.Place(t, "crawl_outbox", "NODE_COMPLETE", "")
	r := s.serve(t, outbox.CrawlOutbox())
	r.settles(outbox.Settled{Dead: 1}, buried(r.claim()[0], "run:1"))
	r.wants("NODE_COMPLETE")
	if got := s.Value(t, "SELECT count(*) FROM crawl_outbox"); got != "1" {
		t.Errorf("%s rows, want the other one", got)
	}
	wantHistory(t, s.Value(t, "SELECT error_history FROM job_dlq WHERE original_job_id = ?1", id.String()),
		"refused by run:1")
	var origin map[string]any
	if err := json.Unmarshal([]byte(s.Value(t, "SELECT origin FROM job_dlq")), &origin); err != nil {
		t.Fatal(err)
	}
	if origin["crawl_id"] != tabletest.CrawlRun || origin["event_type"] != "NODE_START" || origin["seq"] != 7.0 ||
		origin["payload"] != nil || origin["published_at"] != nil {
		t.Errorf("the letter remembers %v", origin)
	}
	s.rows.MakeApp(t, "acme")
	s.Exec(t, `INSERT INTO event_outbox (app_id, event_id, event_type, payload)
		VALUES ((SELECT id FROM apps WHERE namespace = 'acme'), ?1, 't', '1')`, tabletest.NewID(t).String())
	bus := s.serve(t, outbox.EventOutbox())
	bus.settles(outbox.Settled{Dead: 1}, buried(bus.only(), "x"))
	if got := s.Value(t, `SELECT concat((SELECT status FROM event_outbox), ' of ', a.namespace)
		FROM job_dlq l JOIN apps a ON a.id = l.app_id WHERE outbox_table = 'event_outbox'`); got != "failed of acme" {
		t.Errorf("the dead row of event_outbox is %q, want it failed, and its letter of its application", got)
	}
}

func settlesUnknownTenant(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	for _, tenant := range []string{"Unheard of", "unheard OF", "default"} {
		e := keyed(tenant, "a")
		e.TenantID = tenant
		s.commits(t, e)
		r.settles(outbox.Settled{Dead: 1}, buried(r.only(), ""))
	}
	if got := s.Value(t,
		"SELECT count(*) FROM job_dlq d JOIN apps a ON a.id = d.app_id WHERE lower(a.namespace) = 'unheard of'"); got != "2" {
		t.Errorf("%s letters of the new tenant, want 2", got)
	}
	if got := s.Value(t, "SELECT count(*) FROM apps"); got != "2" {
		t.Errorf("%s applications, want default and one more", got)
	}
}

func settlesRefused(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.Exec(t, "CREATE UNIQUE INDEX once ON job_dlq (destination) WHERE destination = 'once'")
	s.commits(t, numbered(1, "a", "b", "c")...)
	rec := r.claim()
	r.settles(outbox.Settled{Delivered: 1, Dead: 1, Retried: 1}, buried(rec[0], "once"), buried(rec[1], "x", "once"),
		delivered(rec[2])[0])
	if got := s.Value(t, "SELECT count(*) FROM job_dlq"); got != "1" {
		t.Errorf("%s letters, want that of the first", got)
	}
	if got := s.Value(t,
		"SELECT count(*) FROM outbox_events WHERE event_topic = 'b/1' AND status = 'FAILED' AND error_message <> '' AND "+
			"next_retry_at > ?1", time.Now().Add(30*time.Minute)); got != "1" {
		t.Errorf("%s rows wait with the refusal as their error, want 1", got)
	}
}

func settlesMixture(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, numbered(1, "a", "b", "c", "d", "e", "f", "g")...)
	rec := r.claim()
	outcomes := []outbox.Outcome{buried(rec[4], "x", "y"), delivered(rec[0])[0], retried(rec[1]), buried(rec[2], ""),
		delivered(rec[3])[0], retried(rec[5])}
	r.settles(outbox.Settled{Delivered: 2, Retried: 2, Dead: 2}, outcomes...)
	r.wants("g/1")
	if got := s.Value(t, "SELECT count(*) FROM job_dlq"); got != "3" {
		t.Errorf("%s letters, want 3", got)
	}
}

func settlesUnderOldEpoch(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, numbered(2, "a", "b", "c")...)
	records, before := r.claim(), r.lanes
	old := append(append(delivered(records[:2]...), retried(records[2])), buried(records[3], ""))
	r.release(r.lanes)
	if got := r.settleHolding(before, old...); got != (outbox.Settled{Lost: 4}) {
		t.Errorf("nobody's lanes: settled %+v", got)
	}
	if err := r.Leave(t.Context(), r.owner); err != nil {
		t.Fatal(err)
	}
	other := s.serve(t, outbox.OutboxEvents())
	if got := r.settleHolding(before, old...); got != (outbox.Settled{Lost: 4}) {
		t.Errorf("another's lanes: settled %+v", got)
	}
	other.settles(outbox.Settled{Delivered: 1}, delivered(records[5])...)
	if err := other.Leave(t.Context(), other.owner); err != nil {
		t.Fatal(err)
	}
	r.lease(time.Minute)
	if got := r.settleHolding(before, old...); got != (outbox.Settled{Lost: 4}) {
		t.Errorf("its own lanes again, at a later epoch: settled %+v", got)
	}
	if err := r.Release(t.Context(), r.owner, before); err != nil {
		t.Error(err)
	}
	if got := s.Value(t, "SELECT count(*) FROM outbox_lanes WHERE owner IS NULL"); got != "0" {
		t.Errorf("a release under an old epoch gave %s lanes up", got)
	}
	r.settles(outbox.Settled{Delivered: 5}, delivered(r.wants("a/1", "b/1", "c/1", "a/2", "b/2")...)...)
}

// Who holds the lanes is asked when the settle may write, not when it begins to wait. A store whose
// settle does not wait here is done before the others have the lanes.
func settlesAfterWaiting(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, numbered(1, "warm", "a", "b", "c")...)
	// What a store does once it has done: that may wait too.
	r.settles(outbox.Settled{Delivered: 1}, delivered(r.claim()[0])...)
	records := r.claim()
	end := s.HoldExec(t, "UPDATE outbox_lanes SET owner = ?1, epoch = epoch + 1", tabletest.NewID(t).String())
	done := make(chan outbox.Settled, 1)
	go func() {
		settled, err := r.Settle(t.Context(), r.owner, r.lanes,
			[]outbox.Outcome{delivered(records[0])[0], retried(records[1]), buried(records[2], "")})
		if err != nil {
			t.Error(err)
		}
		done <- settled
	}()
	select {
	case got := <-done:
		if end(true); got != (outbox.Settled{Delivered: 1, Retried: 1, Dead: 1}) {
			t.Errorf("before the lanes went: settled %+v", got)
		}
		return
	case <-time.After(2 * time.Second): // long enough for one that does not wait, on any machine
	}
	end(true)
	if got := <-done; got != (outbox.Settled{Lost: 3}) {
		t.Errorf("settled %+v", got)
	}
	if got := s.Value(t, "SELECT count(*) FROM outbox_events WHERE status = 'NEW' AND retry_count = 0"); got != "3" {
		t.Errorf("%s rows are as they were, want 3", got)
	}
}

// A settle whose answer was lost is sent again.
func settlesTwice(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, numbered(1, "a", "b")...)
	records := r.claim()
	outcomes := []outbox.Outcome{delivered(records[0])[0], buried(records[1], "x")}
	r.settles(outbox.Settled{Delivered: 1, Dead: 1}, outcomes...)
	again := outbox.Settled{Lost: 2}
	switch {
	case !s.events.KeepsState():
		again = outbox.Settled{Delivered: 1, Dead: 1}
	case s.mode.Removes():
		again = outbox.Settled{Delivered: 1, Lost: 1}
	}
	r.settles(again, outcomes...)
	s.wantsSent(t, 1, 2)
	if got := s.Value(t, "SELECT count(*) FROM job_dlq"); got != "1" {
		t.Errorf("%s letters, want 1", got)
	}
}

// What was put back meanwhile has not been published.
func ignoresSettleAfterReplay(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, numbered(1, "a", "b", "c")...)
	records := r.claim()
	s.Exec(t, "UPDATE outbox_events SET generation = generation + 1")
	r.settles(outbox.Settled{Lost: 3}, delivered(records[0])[0], retried(records[1]), buried(records[2], ""))
	for _, rec := range r.wants("a/1", "b/1", "c/1") {
		if rec.Generation != 1 || rec.Attempts != 0 {
			t.Errorf("%s: generation %d, %d attempts", rec.Topic, rec.Generation, rec.Attempts)
		}
	}
	r.settles(outbox.Settled{Delivered: 3}, delivered(r.claim()...)...)
}

// After a failover to a standby that lags, new rows take positions that were claimed before.
func settlesOtherEvent(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	s.commits(t, keyed("a1", "a"))
	claimed := r.only()
	s.Exec(t, "UPDATE outbox_events SET id = ?1", tabletest.NewID(t).String())
	if got := r.settle(delivered(claimed)...); !s.mode.Removes() && got != (outbox.Settled{Lost: 1}) {
		t.Errorf("settled %+v, want it lost", got)
	}
	r.wants("a1")
}

func keepsAnyError(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	for i, text := range []string{"nul \x00 inside", "not \xff\xfe UTF-8", strings.Repeat("ü", 5000),
		"quotes ' \" \\ and \n\t\x01 controls", ""} {
		s.commits(t, keyed("a", "a"))
		again := retried(r.only())
		again.Failures[0].Error, again.RetryIn = text, 0
		r.settles(outbox.Settled{Retried: 1}, again)
		dead := buried(r.only(), "x")
		dead.Failures[0].Error = text
		r.settles(outbox.Settled{Dead: 1}, dead)
		if got := s.Value(t, "SELECT count(*) FROM job_dlq"); got != fmt.Sprint(i+1) {
			t.Errorf("%.20q: %s letters, want %d", text, got, i+1)
		}
	}
}
