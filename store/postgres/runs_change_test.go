package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/crawl"
)

func TestRunGoesThroughItsStates(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	running := []crawl.Status{crawl.Running}
	for _, c := range []struct {
		to       crawl.Status
		terminal string
	}{{crawl.Completed, crawl.RunCompleted}, {crawl.Failed, crawl.RunFailed}, {crawl.Cancelled, crawl.RunCancelled}} {
		run := newRun(t, r).ID
		refused := func(ch crawl.Change, status crawl.Status) {
			t.Helper()
			var state *crawl.StateError
			if _, err := r.Change(t.Context(), acme, run, ch); !errors.As(err, &state) || state.Status != status || state.Run != run {
				t.Errorf("%+v: got %v, want a *StateError with %s", ch, err, status)
			}
		}
		end := crawl.Change{From: running, To: c.to, Error: "boom", Events: of(c.terminal)}
		refused(end, crawl.Pending)
		start := changing(t, r, run, crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running, Events: of(crawl.RunStarted)})
		if s := start.Run; s.Status != crawl.Running || s.StartedAt == nil || s.LastSeq != 1 || start.First != 1 || start.Last != 1 || start.Appended != 1 {
			t.Errorf("started: %+v", start)
		}
		refused(crawl.Change{From: []crawl.Status{crawl.Pending}, To: crawl.Running, Events: of(crawl.RunStarted)}, crawl.Running)
		ended := changing(t, r, run, end).Run
		if ended.Status != c.to || (ended.CompletedAt != nil) != (c.to != crawl.Cancelled) || (ended.CancelledAt != nil) != (c.to == crawl.Cancelled) ||
			(ended.Error == "boom") != (c.to == crawl.Failed) || !ended.StartedAt.Equal(*start.Run.StartedAt) || ended.LastSeq != 2 {
			t.Errorf("ended: %+v", ended)
		}
		if got, err := r.GetRun(t.Context(), acme, run); err != nil || fmt.Sprint(got) == "" || got.Status != ended.Status || got.LastSeq != 2 {
			t.Errorf("read again: %+v, error %v", got, err)
		}
		refused(end, c.to)
		refused(crawl.Change{Events: of("A")}, c.to) // in any status: but not behind the terminal event
		refused(crawl.Change{From: running, Events: of("A")}, c.to)
	}
	if n := query[int](t, pool, `SELECT count(*) FROM crawl_runs r WHERE r.status IN ('PENDING', 'RUNNING') OR
		(SELECT count(*) FROM crawl_events WHERE crawl_id = r.id) <> 2 OR (SELECT count(*) FROM crawl_outbox WHERE crawl_id = r.id) <> 2`); n != 0 {
		t.Errorf("%d runs are not as they should be", n)
	}
}

// Whatever ends a run first, it ends once.
func TestOneOfManyEndsTheRun(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r).ID
	var won atomic.Int32
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			end := crawl.Change{From: []crawl.Status{crawl.Running}, To: crawl.Completed, Events: of(crawl.RunCompleted)}
			if i%2 == 1 {
				end.To, end.Events = crawl.Cancelled, of(crawl.RunCancelled)
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
	}
	group.Wait()
	const state = `SELECT concat_ws(' ', count(*), max(seq), count(*) FILTER (WHERE event_type IN ('RUN_COMPLETED', 'RUN_CANCELLED')), bool_and(seq < 2 OR event_type = 'RUN_' || (SELECT status::text FROM crawl_runs))) FROM `
	for _, table := range []string{"crawl_events", "crawl_outbox"} {
		if got := query[string](t, pool, state+table); won.Load() != 1 || got != "2 2 1 t" {
			t.Errorf("%s: %d ended it, the table says %s, want one and 2 2 1 t", table, won.Load(), got)
		}
	}
}

func TestAppendsOfManyStayInOrder(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r).ID
	var group sync.WaitGroup
	for writer := range 8 {
		group.Go(func() {
			for i := range 25 {
				events := of("A", "B", "C")[:1+i%3]
				for n := range events {
					events[n].Payload = fmt.Appendf(nil, `{"n": %d, "i": %d, "writer": %d}`, n, i, writer)
				}
				c, err := r.Change(t.Context(), acme, run, crawl.Change{From: []crawl.Status{crawl.Running}, Events: events})
				if err != nil || c.Appended != len(events) || int(c.Last-c.First) != len(events)-1 || c.Run.LastSeq != c.Last {
					t.Errorf("got %+v, error %v", c, err)
				}
			}
		})
	}
	group.Wait()
	const want = 1 + 8*(9*1+8*2+8*3)
	for table, order := range map[string]string{"crawl_events": "id", "crawl_outbox": "id"} {
		got := query[string](t, pool, `SELECT concat_ws(' ', count(*), min(seq), max(seq), bool_and(later)) FROM (SELECT seq, coalesce(seq = lag(seq) OVER (ORDER BY `+order+`) + 1, true) AS later FROM `+table+`) AS t`)
		if got != fmt.Sprintf("%d 1 %d t", want, want) {
			t.Errorf("%s: got %s, want %d without a gap, in the order of %s", table, got, want, order)
		}
	}
	if n := query[int](t, pool, `SELECT count(*) FROM crawl_events e JOIN crawl_outbox o USING (crawl_id, seq)
		WHERE e.event_id = o.event_id AND e.created_at = o.created_at AND e.payload = o.payload AND e.event_type = o.event_type AND e.tenant_id = 'acme' AND o.tenant_id = 'acme'`); n != want {
		t.Errorf("%d of %d rows of the outbox are those of the log", n, want)
	}
	// Those of one call stand together and in their order.
	if n := query[int](t, pool, `SELECT count(*) FROM crawl_events e JOIN crawl_events b ON b.seq = e.seq - 1
		WHERE (e.payload->>'n')::int > 0 AND ((b.payload->>'n')::int <> (e.payload->>'n')::int - 1 OR b.payload->>'writer' <> e.payload->>'writer')`); n != 0 {
		t.Errorf("%d events do not follow the one before them in their call", n)
	}
}

func TestAppendAgain(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r).ID
	running := []crawl.Status{crawl.Running}
	events := of("A", "B", "C", "D")
	changing(t, r, run, crawl.Change{From: running, Events: events[:2]})
	same := func(e crawl.NewEvent, payload string) crawl.NewEvent {
		e.Payload = json.RawMessage(payload)
		return e
	}
	again := changing(t, r, run, crawl.Change{From: running, Events: []crawl.NewEvent{events[1], same(events[0], `{"n":1.0}`)}})
	if again.First != 2 || again.Last != 3 || again.Appended != 0 || again.Run.LastSeq != 3 {
		t.Errorf("again: %+v", again)
	}
	mixed := changing(t, r, run, crawl.Change{From: running, Events: []crawl.NewEvent{events[0], events[2], events[1], events[3]}})
	if mixed.First != 2 || mixed.Last != 5 || mixed.Appended != 2 || mixed.Run.LastSeq != 5 {
		t.Errorf("mixed: %+v", mixed)
	}
	other := events[0]
	other.Type = "X"
	for name, reused := range map[string]crawl.NewEvent{"payload": same(events[0], `{"n": 2}`), "type": other} {
		if _, err := r.Change(t.Context(), acme, run, crawl.Change{From: running, Events: []crawl.NewEvent{of("E")[0], reused}}); !errors.Is(err, crawl.ErrEventReused) {
			t.Errorf("another %s: got %v, want ErrEventReused", name, err)
		}
	}
	if _, err := r.Change(t.Context(), acme, run, crawl.Change{From: running, Events: []crawl.NewEvent{events[0], events[0]}}); !errors.Is(err, crawl.ErrInvalid) {
		t.Errorf("twice in one call: got %v, want ErrInvalid", err)
	}
	elsewhere := changing(t, r, started(t, r).ID, crawl.Change{Events: events[:1]}) // an id belongs to its run
	if elsewhere.Appended != 1 {
		t.Errorf("in another run: %+v", elsewhere)
	}

	changing(t, r, run, crawl.Change{From: running, To: crawl.Completed, Events: of(crawl.RunCompleted)})
	if late := changing(t, r, run, crawl.Change{From: running, Events: events[:2]}); late.First != 2 || late.Last != 3 || late.Appended != 0 || late.Run.Status != crawl.Completed {
		t.Errorf("after the end: %+v", late)
	}
	var state *crawl.StateError
	if _, err := r.Change(t.Context(), acme, run, crawl.Change{From: running, Events: append(of("E"), events[0])}); !errors.As(err, &state) || state.Status != crawl.Completed {
		t.Errorf("after the end, with a new one: got %v", err)
	}
	if _, err := r.Change(t.Context(), acme, run, crawl.Change{From: running, To: crawl.Cancelled, Events: events[:1]}); !errors.As(err, &state) {
		t.Errorf("after the end, another status: got %v", err)
	}
	if got := query[string](t, pool, "SELECT string_agg(event_type, ' ' ORDER BY seq) FROM crawl_events WHERE crawl_id = $1", run); got != "RUN_STARTED A B C D RUN_COMPLETED" {
		t.Errorf("the log is %s", got)
	}
}

// What the database refuses leaves nothing, neither of the events before it nor of the status, and a session that can be used.
func TestRefusedChangeLeavesNothing(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r).ID
	const state = "SELECT concat_ws(' ', status, lease_epoch, (SELECT count(*) FROM crawl_events), (SELECT count(*) FROM crawl_outbox)) FROM crawl_runs"
	before := query[string](t, pool, state)
	bad := func(payload string) []crawl.NewEvent {
		return append(of("A"), crawl.NewEvent{Type: "B", Payload: json.RawMessage(payload)})
	}
	var ended *crawl.StateError
	for name, events := range map[string][]crawl.NewEvent{
		"NUL": bad(`"\u0000"`), "surrogate": bad(`"\ud800"`), "number": bad(`1e200000`), "no JSON": bad(`{`), "UTF-8": bad("\"\xff\""),
		"long type": {{Type: fmt.Sprintf("%051d", 0), Payload: json.RawMessage("1")}},
	} {
		if _, err := r.Change(t.Context(), acme, run, crawl.Change{To: crawl.Failed, Events: events}); !errors.Is(err, crawl.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
	}
	if _, err := r.Change(t.Context(), acme, run, crawl.Change{To: crawl.Failed, Events: of(crawl.RunFailed, "A")}); !errors.As(err, &ended) || ended.Status != crawl.Failed {
		t.Errorf("behind its own terminal event: got %v", err)
	}
	if after := query[string](t, pool, state); after != before {
		t.Errorf("got %s, want %s", after, before)
	}
	if open := query[int](t, pool, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"); open != 0 {
		t.Errorf("%d transactions were left open", open)
	}
	// The log ended by plain SQL: the database's word counts, not the status that was forgotten.
	exec(t, pool, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES ($1, 'RUN_CANCELLED', '{}')", run)
	if _, err := r.Change(t.Context(), acme, run, crawl.Change{From: []crawl.Status{crawl.Running}, Events: of("A")}); !errors.As(err, &ended) || ended.Status != crawl.Cancelled {
		t.Errorf("after a terminal event by plain SQL: got %v", err)
	}
	if got, err := r.GetRun(t.Context(), acme, run); err != nil || got.Status != crawl.Cancelled || got.CancelledAt == nil || got.LastSeq != 2 {
		t.Errorf("its status was not settled: %+v, error %v", got, err)
	}
}

// A change waits for plain SQL that appends, and numbers what it writes after it.
func TestChangeSeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r).ID
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO crawl_events (crawl_id, event_type, payload, event_id) VALUES ($1, 'A', '{\"n\": 1}', $2)"
	theirs := of("A")[0]
	if _, err := tx.Exec(t.Context(), insert, run, theirs.ID); err != nil {
		t.Fatal(err)
	}
	result := make(chan crawl.Changed)
	go func() {
		c, err := r.Change(t.Context(), acme, run, crawl.Change{Events: append(of("B"), theirs)})
		if err != nil {
			t.Error(err)
		}
		result <- c
	}()
	time.Sleep(100 * time.Millisecond)
	select {
	case <-result:
		t.Error("it did not wait")
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := <-result; c.First != 2 || c.Last != 3 || c.Appended != 1 || c.Run.LastSeq != 3 {
		t.Errorf("got %+v", c)
	}
}

func TestAppendOfManyEvents(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r).ID
	events := make([]crawl.NewEvent, 2000)
	for i := range events {
		events[i] = crawl.NewEvent{ID: uuid.New(), Type: "A", Payload: fmt.Appendf(nil, "%d", i+2)}
	}
	begun := time.Now()
	changing(t, r, run, crawl.Change{Events: events})
	t.Logf("2000 events in %v", time.Since(begun))
	if n := query[int](t, pool, "SELECT count(*) FROM crawl_events e JOIN crawl_outbox o USING (seq) WHERE seq > 1 AND (e.payload::int <> seq OR o.payload::int <> seq OR o.id - seq <> (SELECT min(id) - 1 FROM crawl_outbox))"); n != 0 {
		t.Errorf("%d are out of order", n)
	}
}
