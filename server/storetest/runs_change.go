package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/crawl"
)

func changeTests() []test {
	return []test{
		{name: "takes a run through its states", run: takesRunThroughItsStates},
		{name: "ends a run once", run: endsRunOnce},
		{name: "keeps the appends of many in order", run: keepsAppendsInOrder},
		{name: "appends many events at once", run: appendsManyEvents},
		{name: "appends an event once", run: appendsEventOnce},
		{name: "leaves nothing of a refused change", run: leavesNothingOfRefusedChange},
		{name: "settles a status that plain SQL forgot", run: settlesForgottenStatus},
		{name: "makes one CloudEvent of the log's copy and the outbox's", run: makesOneCloudEvent},
	}
}

var runningOnly = []crawl.Status{crawl.Running}

// together runs fn n times at once and waits for all.
func together(n int, fn func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { fn(i) })
	}
	group.Wait()
}

// inOrder fails t unless each run's numbers begin with 1 and have no gap, in the order of
// positions, and the outbox has what the log has.
func (r runSuite) inOrder(t *testing.T) {
	t.Helper()
	for _, table := range []string{"crawl_events", "crawl_outbox"} {
		r.wants(t, "numbers of "+table+" that are not the next one", "0", `SELECT count(*)
			  FROM (SELECT coalesce(seq = lag(seq) OVER (PARTITION BY crawl_id ORDER BY id) + 1, seq = 1) AS later FROM `+table+`) AS t
			 WHERE NOT later`)
	}
	r.wants(t, "rows of the outbox that are those of the log",
		r.Value(t, "SELECT concat_ws(' ', count(*), count(*)) FROM crawl_events"),
		`SELECT concat_ws(' ', count(*), (SELECT count(*) FROM crawl_outbox)) FROM crawl_events e JOIN crawl_outbox o ON o.crawl_id = e.crawl_id AND o.seq = e.seq
		  WHERE e.event_id = o.event_id AND e.created_at = o.created_at AND e.payload = o.payload AND e.event_type = o.event_type AND e.tenant_id = o.tenant_id`)
}

func takesRunThroughItsStates(t *testing.T, s *suite) {
	r := s.runs(t)
	for _, c := range []struct {
		to       crawl.Status
		terminal string
	}{{crawl.Completed, crawl.RunCompleted}, {crawl.Failed, crawl.RunFailed}, {crawl.Cancelled, crawl.RunCancelled}} {
		run := r.create(t).ID
		refused := func(ch crawl.Change, status crawl.Status) {
			t.Helper()
			var state *crawl.StateError
			if _, err := r.Change(t.Context(), acme, run, ch); !errors.As(err, &state) || state.Status != status ||
				state.Run != run {
				t.Errorf("%+v: got %v, want a *StateError with %s", ch, err, status)
			}
		}
		end := crawl.Change{From: runningOnly, To: c.to, Error: "boom", Events: runEvents(c.terminal)}
		refused(end, crawl.Pending)
		start := r.change(t, run, crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running,
			Events: runEvents(crawl.RunStarted)})
		if got := start.Run; got.Status != crawl.Running || got.StartedAt == nil || got.LastSeq != 1 || start.First != 1 ||
			start.Last != 1 || start.Appended != 1 {
			t.Errorf("started: %+v", start)
		}
		refused(crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running, Events: runEvents(crawl.RunStarted)},
			crawl.Running)
		ended := r.change(t, run, end).Run
		if ended.Status != c.to || (ended.CompletedAt != nil) != (c.to != crawl.Cancelled) ||
			(ended.CancelledAt != nil) != (c.to == crawl.Cancelled) ||
			(ended.Error == "boom") != (c.to == crawl.Failed) || !ended.StartedAt.Equal(*start.Run.StartedAt) ||
			ended.LastSeq != 2 {
			t.Errorf("ended: %+v", ended)
		}
		got, err := r.GetRun(t.Context(), acme, run)
		if err != nil || got.Status != ended.Status || got.LastSeq != 2 || got.Error != ended.Error ||
			!got.StartedAt.Equal(*ended.StartedAt) {
			t.Errorf("read again: %+v, error %v", got, err)
		}
		refused(end, c.to)
		refused(crawl.Change{Events: runEvents("A")}, c.to) // in any status: but not behind the terminal event
		refused(crawl.Change{From: runningOnly, Events: runEvents("A")}, c.to)
	}
	r.inOrder(t)
	r.wants(t, "events", "6", "SELECT count(*) FROM crawl_events")
}

// Whatever ends a run first, it ends once.
func endsRunOnce(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t).ID
	var won atomic.Int32
	together(20, func(i int) {
		end := crawl.Change{From: runningOnly, To: crawl.Completed, Events: runEvents(crawl.RunCompleted)}
		if i%2 == 1 {
			end.To, end.Events = crawl.Cancelled, runEvents(crawl.RunCancelled)
		}
		_, err := r.Change(t.Context(), acme, run, end)
		var state *crawl.StateError
		switch {
		case err == nil:
			won.Add(1)
		case !errors.As(err, &state) || !state.Status.Ended():
			t.Errorf("got %v, want a *StateError with the status it has ended with", err)
		}
	})
	if won.Load() != 1 {
		t.Errorf("%d ended it", won.Load())
	}
	r.inOrder(t)
	r.wants(t, "events, and ends as the run's status says", "2 1",
		"SELECT concat_ws(' ', count(*), count(CASE WHEN event_type = concat('RUN_', (SELECT status FROM crawl_runs)) THEN "+
			"1 END)) FROM crawl_events")
}

func keepsAppendsInOrder(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t).ID
	together(8, func(writer int) {
		for i := range 25 {
			events := runEvents("A", "B", "C")[:1+i%3]
			for n := range events {
				events[n].Payload = fmt.Appendf(nil, `{"n": %d, "i": %d, "writer": %d}`, n, i, writer)
			}
			c, err := r.Change(t.Context(), acme, run, crawl.Change{From: runningOnly, Events: events})
			if err != nil || c.Appended != len(events) || int(c.Last-c.First) != len(events)-1 || c.Run.LastSeq != c.Last {
				t.Errorf("got %+v, error %v", c, err)
			}
		}
	})
	r.inOrder(t)
	r.wants(t, "events", fmt.Sprint(1+8*(9*1+8*2+8*3)), "SELECT count(*) FROM crawl_events")
	r.wants(t, "events that do not follow the one before them in their call", "0", `SELECT count(*) FROM crawl_events e JOIN crawl_events b ON b.seq = e.seq - 1
		WHERE CAST(e.payload->>'n' AS integer) > 0
		  AND (CAST(b.payload->>'n' AS integer) <> CAST(e.payload->>'n' AS integer) - 1 OR b.payload->>'writer' <> e.payload->>'writer')`)
}

func appendsManyEvents(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t).ID
	events := make([]crawl.NewEvent, 2000)
	for i := range events {
		events[i] = crawl.NewEvent{ID: uuid.New(), Type: "A", Payload: fmt.Appendf(nil, "%d", i+2)}
	}
	r.change(t, run, crawl.Change{Events: events})
	r.inOrder(t)
	r.wants(t, "events", "2001", "SELECT count(*) FROM crawl_events")
	r.wants(t, "events out of their order", "0",
		"SELECT count(*) FROM crawl_events WHERE seq > 1 AND CAST(CAST(payload AS text) AS integer) <> seq")
	// The longest type and numbers of the largest and smallest exponents are valid for every store.
	r.change(t, r.start(t).ID, crawl.Change{Events: []crawl.NewEvent{{ID: uuid.New(),
		Type: strings.Repeat("A_9", 16) + "ZZ", Payload: json.RawMessage(`{"é": "😀", "n": 1e131071, "m": 0.1e-16000}`)}}})
}

func appendsEventOnce(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t).ID
	events := runEvents("A", "B", "C", "D")
	r.change(t, run, crawl.Change{From: runningOnly, Events: events[:2]})
	same := func(e crawl.NewEvent, payload string) crawl.NewEvent {
		e.Payload = json.RawMessage(payload)
		return e
	}
	again := r.change(t, run, crawl.Change{From: runningOnly,
		Events: []crawl.NewEvent{events[1], same(events[0], `{"n":1.0}`)}})
	if again.First != 2 || again.Last != 3 || again.Appended != 0 || again.Run.LastSeq != 3 {
		t.Errorf("again: %+v", again)
	}
	mixed := r.change(t, run, crawl.Change{From: runningOnly,
		Events: []crawl.NewEvent{events[0], events[2], events[1], events[3]}})
	if mixed.First != 2 || mixed.Last != 5 || mixed.Appended != 2 || mixed.Run.LastSeq != 5 {
		t.Errorf("mixed: %+v", mixed)
	}
	other := events[0]
	other.Type = "X"
	for name, reused := range map[string]crawl.NewEvent{"payload": same(events[0], `{"n": 2}`), "type": other} {
		if _, err := r.Change(t.Context(), acme, run,
			crawl.Change{From: runningOnly, Events: append(runEvents("E"), reused)}); !errors.Is(err, crawl.ErrEventReused) {
			t.Errorf("another %s: got %v, want ErrEventReused", name, err)
		}
	}
	if _, err := r.Change(t.Context(), acme, run,
		crawl.Change{From: runningOnly, Events: []crawl.NewEvent{events[0], events[0]}}); !errors.Is(err, crawl.ErrInvalid) {
		t.Errorf("twice in one call: got %v, want ErrInvalid", err)
	}
	elsewhere := r.change(t, r.start(t).ID, crawl.Change{Events: events[:1]}) // an id belongs to its run
	if elsewhere.Appended != 1 {
		t.Errorf("in another run: %+v", elsewhere)
	}

	r.change(t, run, crawl.Change{From: runningOnly, To: crawl.Completed, Events: runEvents(crawl.RunCompleted)})
	if late := r.change(t, run, crawl.Change{From: runningOnly, Events: events[:2]}); late.First != 2 || late.Last != 3 ||
		late.Appended != 0 || late.Run.Status != crawl.Completed {
		t.Errorf("after the end: %+v", late)
	}
	var state *crawl.StateError
	if _, err := r.Change(t.Context(), acme, run,
		crawl.Change{From: runningOnly, Events: append(runEvents("E"), events[0])}); !errors.As(err, &state) ||
		state.Status != crawl.Completed {
		t.Errorf("after the end, with a new one: got %v", err)
	}
	if _, err := r.Change(t.Context(), acme, run,
		crawl.Change{From: runningOnly, To: crawl.Cancelled, Events: events[:1]}); !errors.As(err, &state) {
		t.Errorf("after the end, another status: got %v", err)
	}
	r.wants(t, "the log", "RUN_STARTED A B C D RUN_COMPLETED",
		"SELECT string_agg(event_type, ' ' ORDER BY seq) FROM crawl_events WHERE crawl_id = ?1", run)
	r.inOrder(t)
}

// What is refused leaves nothing, neither of the events before it nor of the status, and nothing
// that the next change would wait for.
func leavesNothingOfRefusedChange(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t).ID
	before := r.Value(t, runState)
	bad := func(payload string) []crawl.NewEvent {
		return append(runEvents("A"), crawl.NewEvent{Type: "B", Payload: json.RawMessage(payload)})
	}
	for name, events := range map[string][]crawl.NewEvent{
		"NUL": bad(`"\u0000"`), "surrogate": bad(`"\ud800"`), "number": bad(`1e200000`), "no JSON": bad(`{`),
		"UTF-8":     bad("\"\xff\""),
		"long type": {{Type: fmt.Sprintf("%051d", 0), Payload: json.RawMessage("1")}},
	} {
		if _, err := r.Change(t.Context(), acme, run, crawl.Change{To: crawl.Failed, Events: events}); !errors.Is(err,
			crawl.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	var ended *crawl.StateError
	if _, err := r.Change(t.Context(), acme, run,
		crawl.Change{To: crawl.Failed, Events: runEvents(crawl.RunFailed, "A")}); !errors.As(err, &ended) ||
		ended.Status != crawl.Failed {
		t.Errorf("behind its own terminal event: got %v", err)
	}
	r.wants(t, "the run afterwards", before, runState)
	if next := r.change(t, run, crawl.Change{Events: runEvents("A")}); next.First != 2 {
		t.Errorf("the next change: %+v", next)
	}
}

// The log ended by plain SQL: it is the log's word that counts, not the status that was forgotten.
func settlesForgottenStatus(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t).ID
	r.Exec(t, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES (?1, 'RUN_CANCELLED', '{}')", run)
	var ended *crawl.StateError
	if _, err := r.Change(t.Context(), acme, run, crawl.Change{From: runningOnly, Events: runEvents("A")}); !errors.As(err,
		&ended) || ended.Status != crawl.Cancelled {
		t.Errorf("append: got %v", err)
	}
	if got, err := r.GetRun(t.Context(), acme, run); err != nil || got.Status != crawl.Cancelled ||
		got.CancelledAt == nil || got.LastSeq != 2 {
		t.Errorf("its status was not settled: %+v, error %v", got, err)
	}
}

// A subscriber cannot tell whether an event came from the relay or from the log.
func makesOneCloudEvent(t *testing.T, s *suite) {
	r := s.runs(t)
	run := r.start(t).ID
	events := runEvents("A", "B", "C")
	events[0].Payload = json.RawMessage(`{"ü": [1.50, 1e3, "\u00fc\n"], "a": {}}`)
	events[1].Payload = json.RawMessage(`"quoted \"text\" <&> "`)
	r.change(t, run, crawl.Change{Events: events})
	logged, err := r.ListEvents(t.Context(), acme, run, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	relay := s.serve(t)
	for _, fair := range []bool{false, true} {
		records := relay.claim(outbox.ClaimLimit{Records: 10, Bytes: 1 << 20, Fair: fair})
		if len(records) != 4 || len(logged) != 4 {
			t.Fatalf("%d claimed, %d in the log", len(records), len(logged))
		}
		for i, record := range records {
			d := logged[i].Delivery()
			got, want := string(outbox.CloudEvent(nil, &d)), string(outbox.CloudEvent(nil, &outbox.Delivery{Record: record}))
			if got != want || !strings.Contains(got, fmt.Sprintf(`"sequence":"%019d"`, i+1)) ||
				!strings.Contains(got, `"tenantid":"acme"`) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
	}
	// A row by plain SQL has no place in the run, and says none.
	r.Exec(t, "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES (?1, 'D', '{}')", run)
	records := relay.claim(outbox.ClaimLimit{Records: 4000, Bytes: 64 << 20})
	if len(records) != 5 || records[4].Sequence != 0 || records[4].Position == 0 {
		t.Fatalf("%d records", len(records))
	}
	if got := string(outbox.CloudEvent(nil, &outbox.Delivery{Record: records[4]})); strings.Contains(got, "sequence") ||
		!strings.Contains(got, `"tenantid":"acme"`) {
		t.Errorf("plain SQL: %s", got)
	}
}

// relayOfRuns is a relay's hold on the outbox of runs.
type relayOfRuns struct {
	outbox.Store
	t     *testing.T
	lanes []outbox.Lane
}

// serve opens the outbox of runs and takes all its lanes.
func (s *suite) serve(t *testing.T) relayOfRuns {
	t.Helper()
	r := relayOfRuns{Store: s.Outbox(t), t: t}
	leased, err := r.Lease(t.Context(), outbox.LeaseRequest{Owner: uuid.New(), Name: "test", TTL: time.Minute})
	if err != nil || len(leased.Lanes) != outbox.LaneCount {
		t.Fatalf("got %d lanes of a table that nobody serves, error %v, want %d", len(leased.Lanes), err, outbox.LaneCount)
	}
	r.lanes = leased.Lanes
	return r
}

func (r relayOfRuns) claim(limit outbox.ClaimLimit) []*outbox.Record {
	r.t.Helper()
	records, err := r.Claim(r.t.Context(), r.lanes, limit)
	if err != nil {
		r.t.Fatal(err)
	}
	return records
}
