package outboxtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// everything is a limit that the tests' tables stay below.
var everything = outbox.ClaimLimit{Records: 4000, Bytes: 64 << 20}

// server is a relay's hold on a table: its lanes, and what it does with them.
type server struct {
	outbox.Store
	t     *testing.T
	owner uuid.UUID
	lanes []outbox.Lane
}

// serve opens a table and takes all its lanes.
func (s *storeSuite) serve(t *testing.T, layout outbox.Layout) *server {
	t.Helper()
	r := s.relay(t, layout)
	r.lease(time.Minute)
	if len(r.lanes) != outbox.LaneCount {
		t.Fatalf("got %d lanes of a table that nobody serves, want %d", len(r.lanes), outbox.LaneCount)
	}
	return r
}

// succeed serves a table whose relay has vanished. A server may keep its lanes for it until it has
// been up for as long as a lease lasts.
func (s *storeSuite) succeed(t *testing.T, layout outbox.Layout) *server {
	t.Helper()
	r := s.relay(t, layout)
	for deadline := time.Now().Add(tier.Patience()); len(r.lanes) != outbox.LaneCount; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %d lanes of a relay that vanished, want %d", len(r.lanes), outbox.LaneCount)
		}
		r.lease(time.Second)
	}
	return r
}

// relay opens a table and takes nothing.
func (s *storeSuite) relay(t *testing.T, layout outbox.Layout) *server {
	t.Helper()
	return &server{Store: s.Table(t, layout), t: t, owner: tabletest.NewID(t)}
}

// lease asks once, and notes what is held then.
func (r *server) lease(ttl time.Duration) outbox.Leased {
	r.t.Helper()
	return r.ask(outbox.LeaseRequest{Owner: r.owner, Name: "test", TTL: ttl})
}

func (r *server) ask(request outbox.LeaseRequest) outbox.Leased {
	r.t.Helper()
	leased, err := r.Lease(r.t.Context(), request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.lanes = leased.Lanes
	return leased
}

// release gives lanes up and forgets them.
func (r *server) release(lanes []outbox.Lane) {
	r.t.Helper()
	if err := r.Release(r.t.Context(), r.owner, lanes); err != nil {
		r.t.Fatal(err)
	}
}

// claim brings everything that is due in the lanes held.
func (r *server) claim() []*outbox.Record {
	r.t.Helper()
	return r.claimLimited(r.lanes, everything)
}

func (r *server) claimLimited(lanes []outbox.Lane, limit outbox.ClaimLimit) []*outbox.Record {
	r.t.Helper()
	records, err := r.Claim(r.t.Context(), lanes, limit)
	if err != nil {
		r.t.Fatal(err)
	}
	return records
}

// only brings the one record that is due.
func (r *server) only() *outbox.Record {
	r.t.Helper()
	records := r.claim()
	if len(records) != 1 {
		r.t.Fatalf("claimed %d records, want one: %v", len(records), topics(records))
	}
	return records[0]
}

// wants fails unless exactly these topics are due, in this order.
func (r *server) wants(want ...string) []*outbox.Record {
	r.t.Helper()
	records := r.claim()
	if got := topics(records); !slices.Equal(got, want) {
		r.t.Fatalf("claimed %q, want %q", got, want)
	}
	return records
}

func (r *server) settle(outcomes ...outbox.Outcome) outbox.Settled {
	r.t.Helper()
	return r.settleHolding(r.lanes, outcomes...)
}

func (r *server) settleHolding(lanes []outbox.Lane, outcomes ...outbox.Outcome) outbox.Settled {
	r.t.Helper()
	settled, err := r.Settle(r.t.Context(), r.owner, lanes, outcomes)
	if err != nil {
		r.t.Fatal(err)
	}
	return settled
}

// settles fails unless the outcomes come to this.
func (r *server) settles(want outbox.Settled, outcomes ...outbox.Outcome) {
	r.t.Helper()
	if got := r.settle(outcomes...); got != want {
		r.t.Errorf("settled %+v, want %+v", got, want)
	}
}

func delivered(records ...*outbox.Record) (outcomes []outbox.Outcome) {
	for _, r := range records {
		outcomes = append(outcomes, outbox.Outcome{Record: r, State: outbox.Delivered})
	}
	return outcomes
}

// retried is a first failure, to be tried again in an hour.
func retried(r *outbox.Record) outbox.Outcome {
	return outbox.Outcome{Record: r, State: outbox.Retry, Attempts: r.Attempts + 1, RetryIn: time.Hour,
		Failures: []outbox.Failure{{Destination: r.Topic, Reason: outbox.ReasonDeliveryFailed, Error: "connection refused"}}}
}

func buried(r *outbox.Record, destinations ...string) outbox.Outcome {
	o := outbox.Outcome{Record: r, State: outbox.Dead, Attempts: r.Attempts + 1}
	for _, d := range destinations {
		o.Failures = append(o.Failures,
			outbox.Failure{Destination: d, Reason: outbox.ReasonDeliveryFailed, Error: "refused by " + d})
	}
	return o
}

func topics(records []*outbox.Record) []string {
	all := make([]string, len(records))
	for i, r := range records {
		all[i] = r.Topic
	}
	return all
}

// keyed is an event of a key; each of the tests' events has its own topic, by which it is told.
func keyed(topic, key string) outbox.Event {
	return outbox.Event{Topic: topic, Source: "shop", AggregateType: "Order", AggregateID: key,
		Payload: json.RawMessage(`{"n": 1}`)}
}

// commits writes events in one transaction with one call.
func (s *storeSuite) commits(t *testing.T, events ...outbox.Event) {
	t.Helper()
	if err := s.Write(t.Context(), outbox.WriterConfig{}, true, events); err != nil {
		t.Fatal(err)
	}
}

// wantsSent fails unless n of the events that were written into outbox_events are delivered:
// marked, deleted or archived, as the settle mode says; in a log, they are no backlog.
func (s *storeSuite) wantsSent(t *testing.T, n, written int) {
	t.Helper()
	count := func(from string) (rows int) {
		if _, err := fmt.Sscan(s.Value(t, "SELECT count(*) FROM "+from), &rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	if !s.events.KeepsState() {
		b, err := s.Table(t, s.events).Backlog(t.Context(), written+1)
		if err != nil {
			t.Fatal(err)
		}
		rows, dead := count("outbox_events"), count("job_dlq WHERE outbox_table = 'outbox_log'")
		if got, want := [2]int{rows, b.Count}, [2]int{written, written - n - dead}; got != want {
			t.Errorf("%d events, of which %d are a backlog, want %v", rows, b.Count, want)
		}
		return
	}
	marked := count("outbox_events WHERE status = 'SENT' AND processed_at >= created_at AND next_retry_at IS NULL")
	archived := count(`outbox_archive WHERE table_name = 'outbox_events' AND row ->> 'status' = 'SENT' AND
		row ->> 'processed_at' >= row ->> 'created_at' AND row ->> 'next_retry_at' IS NULL AND row ->> 'payload' <> ''`)
	gone := written - count("outbox_events")
	got, want := [3]int{marked, archived, gone}, [3]int{n, 0, 0}
	switch s.mode {
	case outbox.SettleDelete:
		want = [3]int{0, 0, n}
	case outbox.SettleArchive:
		want = [3]int{0, n, n}
	}
	if got != want {
		t.Errorf("of %d events %d are marked as sent, %d archived and %d gone, want %v", written, got[0], got[1], got[2],
			want)
	}
}

// numbered makes n events for each key, round robin: topics 1, 2, …
func numbered(n int, keys ...string) (events []outbox.Event) {
	for i := range n {
		for _, key := range keys {
			events = append(events, keyed(fmt.Sprintf("%s/%d", key, i+1), key))
		}
	}
	return events
}

// sameContent compares what was written with what came back, as far as the store promises.
func (s *storeSuite) sameContent(a, b []byte) bool {
	if s.features.StoresBytes {
		return bytes.Equal(a, b)
	}
	return tabletest.SameJSON(a, b)
}
