package outbox

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Whoever writes an event names its destinations. He must not reach the readers of another table with it.
func TestReservedDestinationsAreDead(t *testing.T) {
	t.Parallel()
	r, err := relayOf(nil, &panicky{}, RelayConfig{Tables: []Table{
		{Layout: OutboxEvents(), Reserved: func(d string) bool { return strings.HasPrefix(d, "run:") }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	records := []*Record{
		{Keyed: true, OrderKey: 1, Event: Event{Topic: "a"}},
		{Keyed: true, OrderKey: 2, Event: Event{Topic: "b", Destinations: []string{"orders", "run:1"}}},
		{Keyed: true, OrderKey: 3, Event: Event{Topic: "run:2"}},
	}
	batch, owner, defects := r.route(records, HeldKeys{})
	if len(batch) != 1 || batch[0].Destination != "a" {
		t.Fatalf("routed %+v", batch)
	}
	v := r.judge(records, batch, owner, make([]Result, 1), defects, false)
	for i, o := range v.outcomes[1:] {
		if o.State != Dead || len(o.Failures) != 1 ||
			!strings.Contains(o.Failures[0].Error, fmt.Sprintf(`destination "run:%d" is reserved`, i+1)) {
			t.Errorf("got %+v", o)
		}
	}
}

func TestJudge(t *testing.T) {
	r, err := relayOf(nil, nil, RelayConfig{MaxAttempts: 3, Backoff: Backoff{Base: time.Second, Jitter: -1}})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	ok, copied, fails, waits, never, down, heldBack := Result{}, Result{Duplicate: true}, Result{Err: broken},
		Result{Err: RetryAfter(broken, time.Minute)},
		Result{Err: Permanent(broken)}, Result{Err: Unavailable(broken)}, Result{Err: ErrNotAttempted}
	none := Outcome{State: -1} // the record is left as it is

	for _, c := range []struct {
		name     string
		attempts int      // before
		served   []string // before
		results  []Result // for destinations a and b
		want     Outcome
		failed   []string // destinations with a failure
		down     bool
	}{
		{name: "delivered", results: []Result{ok}, want: Outcome{State: Delivered, DeliveredTo: []string{"a"}}},
		{name: "refused as a copy", results: []Result{copied}, want: Outcome{State: Delivered, DeliveredTo: []string{"a"}}},
		{name: "delivered after failures", attempts: 2, results: []Result{ok},
			want: Outcome{State: Delivered, DeliveredTo: []string{"a"}}},
		{name: "first failure", results: []Result{fails}, want: Outcome{State: Retry, Attempts: 1, RetryIn: time.Second},
			failed: []string{"a"}},
		{name: "second failure", attempts: 1, results: []Result{fails},
			want: Outcome{State: Retry, Attempts: 2, RetryIn: 2 * time.Second}, failed: []string{"a"}},
		{name: "last failure", attempts: 2, results: []Result{fails}, want: Outcome{State: Dead, Attempts: 3},
			failed: []string{"a"}},
		{name: "permanent", results: []Result{never}, want: Outcome{State: Dead, Attempts: 1}, failed: []string{"a"}},
		{name: "the receiver asks for longer", results: []Result{waits},
			want: Outcome{State: Retry, Attempts: 1, RetryIn: time.Minute}, failed: []string{"a"}},
		{name: "asking does not save from the last", attempts: 2, results: []Result{waits},
			want: Outcome{State: Dead, Attempts: 3}, failed: []string{"a"}},
		{name: "unavailable burns nothing", attempts: 2, results: []Result{down}, want: none, down: true},
		{name: "not attempted burns nothing", attempts: 2, results: []Result{heldBack}, want: none},

		{name: "one of two failed", results: []Result{ok, fails},
			want: Outcome{State: Retry, Attempts: 1, RetryIn: time.Second, DeliveredTo: []string{"a"}}, failed: []string{"b"}},
		{name: "what was served before is kept", attempts: 1, served: []string{"z"}, results: []Result{ok, fails},
			want:   Outcome{State: Retry, Attempts: 2, RetryIn: 2 * time.Second, DeliveredTo: []string{"z", "a"}},
			failed: []string{"b"}},
		{name: "one of two died", attempts: 2, results: []Result{ok, fails},
			want: Outcome{State: Dead, Attempts: 3, DeliveredTo: []string{"a"}}, failed: []string{"b"}},
		{name: "permanent beside retryable gets its retries", results: []Result{never, fails},
			want: Outcome{State: Retry, Attempts: 1, RetryIn: time.Second}, failed: []string{"a", "b"}},
		{name: "all permanent", results: []Result{never, never}, want: Outcome{State: Dead, Attempts: 1},
			failed: []string{"a", "b"}},
		{name: "one served, one down", attempts: 2, results: []Result{ok, down},
			want: Outcome{State: Retry, Attempts: 2, DeliveredTo: []string{"a"}}, down: true},
		{name: "nobody dies while a destination is down", attempts: 2, results: []Result{never, down},
			want: Outcome{State: Retry, Attempts: 3, RetryIn: 4 * time.Second}, failed: []string{"a"}, down: true},
		{name: "nor while one was held back", attempts: 2, results: []Result{fails, heldBack},
			want: Outcome{State: Retry, Attempts: 3, RetryIn: 4 * time.Second}, failed: []string{"a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := &Record{Attempts: c.attempts, DeliveredTo: c.served}
			var batch []Delivery
			for _, d := range []string{"a", "b"}[:len(c.results)] {
				rec.Destinations = append(rec.Destinations, d)
				batch = append(batch, Delivery{Record: rec, Destination: d})
			}
			rec.Destinations = append(rec.Destinations, c.served...)
			v := r.judge([]*Record{rec}, batch, make([]int, len(batch)), c.results, nil, false)
			if (v.unavailable != nil) != c.down {
				t.Errorf("unavailable is %v", v.unavailable)
			}
			if c.want.State == none.State {
				if len(v.outcomes) != 0 {
					t.Errorf("got %+v, want no outcome", v.outcomes)
				}
				return
			}
			c.want.Record = rec
			for _, d := range c.failed {
				c.want.Failures = append(c.want.Failures, Failure{Destination: d, Reason: ReasonDeliveryFailed, Error: "broken"})
			}
			if len(v.outcomes) != 1 || !reflect.DeepEqual(v.outcomes[0], c.want) {
				t.Errorf("got  %+v\nwant %+v", v.outcomes, c.want)
			}
		})
	}
}

func TestJudgeKeepsRecordsApart(t *testing.T) {
	r, err := relayOf(nil, nil, RelayConfig{})
	if err != nil {
		t.Fatal(err)
	}
	keyed := func(key int64, e Event) *Record { return &Record{Event: e, OrderKey: key, Keyed: true} }
	records := []*Record{
		keyed(1, Event{Topic: "a"}),
		keyed(2, Event{Topic: "b", Destinations: []string{"x", "y"}}),
		keyed(3, Event{}), // no topic, so no destination: dead
		keyed(3, Event{Topic: "behind it"}),
		keyed(4, Event{Topic: "c"}),
		keyed(5, Event{Topic: "d", Destinations: []string{"x", "x"}}),
	}
	records[5].DeliveredTo = []string{"x"} // nothing is left to do
	batch, owner, defects := r.route(records, HeldKeys{})
	var to []string
	results := make([]Result, len(batch))
	for i, d := range batch {
		to = append(to, d.Destination)
		if d.Destination == "y" {
			results[i].Err = errors.New("broken")
		}
	}
	if want := []string{"a", "x", "y", "c"}; !slices.Equal(to, want) {
		t.Fatalf("routed to %v, want %v", to, want)
	}
	v := r.judge(records, batch, owner, results, defects, false)
	states := map[*Record]State{}
	for _, o := range v.outcomes {
		states[o.Record] = o.State
		if o.State == Dead && (len(o.Failures) != 1 || o.Failures[0].Reason != ReasonHandlerMissing || o.Attempts != 1) {
			t.Errorf("the record without a destination: %+v", o)
		}
	}
	want := map[*Record]State{records[0]: Delivered, records[1]: Retry, records[2]: Dead, records[4]: Delivered,
		records[5]: Delivered}
	if !reflect.DeepEqual(states, want) || len(v.outcomes) != len(want) {
		t.Errorf("got %v, want %v", states, want)
	}
}

// What waits because a part of the sink is down keeps its attempts; a destination that was reached is remembered, and
// one that failed for its own sake counts.
func TestJudgeIsolates(t *testing.T) {
	t.Parallel()
	r, err := relayOf(nil, nil, RelayConfig{MaxAttempts: 3, Backoff: Backoff{Base: time.Second, Jitter: -1}})
	if err != nil {
		t.Fatal(err)
	}
	ok, away, later, broken := Result{}, Result{Err: Unavailable(errDown)}, Result{Err: ErrNotAttempted},
		Result{Err: errors.New("broken")}
	for _, c := range []struct {
		results  []Result
		left     bool // as it is
		attempts int
		wait     time.Duration
		served   []string
	}{
		{results: []Result{away}, attempts: 2, wait: partRetry},
		{results: []Result{later}, left: true},
		{results: []Result{away, later}, attempts: 2, wait: partRetry},
		{results: []Result{ok, away}, attempts: 2, wait: partRetry, served: []string{"a"}},
		{results: []Result{broken, away}, attempts: 3, wait: 4 * time.Second},
	} {
		rec := &Record{Event: Event{Destinations: []string{"a", "b"}[:len(c.results)]}, Attempts: 2}
		batch, owner, _ := r.route([]*Record{rec}, HeldKeys{})
		v := r.judge([]*Record{rec}, batch, owner, c.results, nil, true)
		if c.left {
			if len(v.outcomes) > 0 {
				t.Errorf("%v: %+v, want it left as it is", c.results, v.outcomes)
			}
			continue
		}
		if len(v.outcomes) != 1 {
			t.Errorf("%v: %d outcomes", c.results, len(v.outcomes))
		} else if o := v.outcomes[0]; o.State != Retry || o.Attempts != c.attempts || o.RetryIn != c.wait ||
			!slices.Equal(o.DeliveredTo, c.served) {
			t.Errorf("%v: %+v", c.results, o)
		}
	}
}
