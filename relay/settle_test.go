package relay

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// Whoever writes an event names its destinations. He must not reach the readers of another table
// with it.
func TestReservedDestinationsAreDead(t *testing.T) {
	t.Parallel()
	r, err := relayOf(nil, &panicky{}, Config{Tables: []Table{
		{Layout: outbox.OutboxEvents(), Reserved: func(d string) bool { return strings.HasPrefix(d, "run:") }},
	}})
	if err != nil {
		t.Fatal(err)
	}
	records := []*outbox.Record{
		{Keyed: true, OrderKey: 1, Event: outbox.Event{Topic: "a"}},
		{Keyed: true, OrderKey: 2, Event: outbox.Event{Topic: "b", Destinations: []string{"orders", "run:1"}}},
		{Keyed: true, OrderKey: 3, Event: outbox.Event{Topic: "run:2"}},
	}
	batch, owner, defects := r.route(records, outbox.HeldKeys{})
	if len(batch) != 1 || batch[0].Destination != "a" {
		t.Fatalf("routed %+v", batch)
	}
	v := r.verdict(records, batch, owner, make([]outbox.Result, 1), defects, false)
	for i, o := range v.outcomes[1:] {
		if o.State != outbox.Dead || len(o.Failures) != 1 ||
			!strings.Contains(o.Failures[0].Error, fmt.Sprintf(`destination "run:%d" is reserved`, i+1)) {
			t.Errorf("got %+v", o)
		}
	}
}

func TestJudge(t *testing.T) {
	r, err := relayOf(nil, nil, Config{MaxAttempts: 3, Backoff: Backoff{Base: time.Second, Jitter: -1}})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	ok, copied, fails, waits, never, down, heldBack := outbox.Result{}, outbox.Result{
		Duplicate: true,
	}, outbox.Result{
		Err: broken,
	},
		outbox.Result{
			Err: outbox.RetryAfter(broken, time.Minute),
		},
		outbox.Result{
			Err: outbox.Permanent(broken),
		}, outbox.Result{
			Err: outbox.Unavailable(broken),
		}, outbox.Result{
			Err: outbox.ErrNotAttempted,
		}
	none := outbox.Outcome{State: -1} // the record is left as it is

	for _, c := range []struct {
		name     string
		attempts int             // before
		served   []string        // before
		results  []outbox.Result // for destinations a and b
		want     outbox.Outcome
		failed   []string // destinations with a failure
		down     bool
	}{
		{name: "delivered", results: []outbox.Result{ok},
			want: outbox.Outcome{State: outbox.Delivered, DeliveredTo: []string{"a"}}},
		{name: "refused as a copy", results: []outbox.Result{copied},
			want: outbox.Outcome{State: outbox.Delivered, DeliveredTo: []string{"a"}}},
		{name: "delivered after failures", attempts: 2, results: []outbox.Result{ok},
			want: outbox.Outcome{State: outbox.Delivered, DeliveredTo: []string{"a"}}},
		{name: "first failure", results: []outbox.Result{fails},
			want:   outbox.Outcome{State: outbox.Retry, Attempts: 1, RetryIn: time.Second},
			failed: []string{"a"}},
		{name: "second failure", attempts: 1, results: []outbox.Result{fails},
			want: outbox.Outcome{State: outbox.Retry, Attempts: 2, RetryIn: 2 * time.Second}, failed: []string{"a"}},
		{name: "last failure", attempts: 2, results: []outbox.Result{fails},
			want:   outbox.Outcome{State: outbox.Dead, Attempts: 3},
			failed: []string{"a"}},
		{name: "permanent", results: []outbox.Result{never},
			want: outbox.Outcome{State: outbox.Dead, Attempts: 1}, failed: []string{"a"}},
		{name: "the receiver asks for longer", results: []outbox.Result{waits},
			want: outbox.Outcome{State: outbox.Retry, Attempts: 1, RetryIn: time.Minute}, failed: []string{"a"}},
		{name: "asking does not save from the last", attempts: 2, results: []outbox.Result{waits},
			want: outbox.Outcome{State: outbox.Dead, Attempts: 3}, failed: []string{"a"}},
		{name: "unavailable burns nothing", attempts: 2, results: []outbox.Result{down}, want: none, down: true},
		{name: "not attempted burns nothing", attempts: 2, results: []outbox.Result{heldBack}, want: none},

		{name: "one of two failed", results: []outbox.Result{ok, fails},
			want:   outbox.Outcome{State: outbox.Retry, Attempts: 1, RetryIn: time.Second, DeliveredTo: []string{"a"}},
			failed: []string{"b"}},
		{name: "what was served before is kept", attempts: 1, served: []string{"z"}, results: []outbox.Result{ok, fails},
			want:   outbox.Outcome{State: outbox.Retry, Attempts: 2, RetryIn: 2 * time.Second, DeliveredTo: []string{"z", "a"}},
			failed: []string{"b"}},
		{name: "one of two died", attempts: 2, results: []outbox.Result{ok, fails},
			want: outbox.Outcome{State: outbox.Dead, Attempts: 3, DeliveredTo: []string{"a"}}, failed: []string{"b"}},
		{name: "permanent beside retryable gets its retries", results: []outbox.Result{never, fails},
			want: outbox.Outcome{State: outbox.Retry, Attempts: 1, RetryIn: time.Second}, failed: []string{"a", "b"}},
		{name: "all permanent", results: []outbox.Result{never, never}, want: outbox.Outcome{State: outbox.Dead, Attempts: 1},
			failed: []string{"a", "b"}},
		{name: "one served, one down", attempts: 2, results: []outbox.Result{ok, down},
			want: outbox.Outcome{State: outbox.Retry, Attempts: 2, DeliveredTo: []string{"a"}}, down: true},
		{name: "nobody dies while a destination is down", attempts: 2, results: []outbox.Result{never, down},
			want: outbox.Outcome{State: outbox.Retry, Attempts: 3, RetryIn: 4 * time.Second}, failed: []string{"a"}, down: true},
		{name: "nor while one was held back", attempts: 2, results: []outbox.Result{fails, heldBack},
			want: outbox.Outcome{State: outbox.Retry, Attempts: 3, RetryIn: 4 * time.Second}, failed: []string{"a"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rec := &outbox.Record{Attempts: c.attempts, DeliveredTo: c.served}
			var batch []outbox.Delivery
			for _, d := range []string{"a", "b"}[:len(c.results)] {
				rec.Destinations = append(rec.Destinations, d)
				batch = append(batch, outbox.Delivery{Record: rec, Destination: d})
			}
			rec.Destinations = append(rec.Destinations, c.served...)
			v := r.verdict([]*outbox.Record{rec}, batch, make([]int, len(batch)), c.results, nil, false)
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
				c.want.Failures = append(
					c.want.Failures,
					outbox.Failure{Destination: d, Reason: outbox.ReasonDeliveryFailed, Error: "broken"},
				)
			}
			if len(v.outcomes) != 1 || !reflect.DeepEqual(v.outcomes[0], c.want) {
				t.Errorf("got  %+v\nwant %+v", v.outcomes, c.want)
			}
		})
	}
}

func TestJudgeKeepsRecordsApart(t *testing.T) {
	r, err := relayOf(nil, nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	keyed := func(key int64, e outbox.Event) *outbox.Record {
		return &outbox.Record{Event: e, OrderKey: key, Keyed: true}
	}
	records := []*outbox.Record{
		keyed(1, outbox.Event{Topic: "a"}),
		keyed(2, outbox.Event{Topic: "b", Destinations: []string{"x", "y"}}),
		keyed(3, outbox.Event{}), // no topic, so no destination: dead
		keyed(3, outbox.Event{Topic: "behind it"}),
		keyed(4, outbox.Event{Topic: "c"}),
		keyed(5, outbox.Event{Topic: "d", Destinations: []string{"x", "x"}}),
	}
	records[5].DeliveredTo = []string{"x"} // nothing is left to do
	batch, owner, defects := r.route(records, outbox.HeldKeys{})
	var to []string
	results := make([]outbox.Result, len(batch))
	for i, d := range batch {
		to = append(to, d.Destination)
		if d.Destination == "y" {
			results[i].Err = errors.New("broken")
		}
	}
	if want := []string{"a", "x", "y", "c"}; !slices.Equal(to, want) {
		t.Fatalf("routed to %v, want %v", to, want)
	}
	v := r.verdict(records, batch, owner, results, defects, false)
	states := map[*outbox.Record]outbox.State{}
	for _, o := range v.outcomes {
		states[o.Record] = o.State
		if o.State == outbox.Dead &&
			(len(o.Failures) != 1 || o.Failures[0].Reason != outbox.ReasonHandlerMissing || o.Attempts != 1) {
			t.Errorf("the record without a destination: %+v", o)
		}
	}
	want := map[*outbox.Record]outbox.State{
		records[0]: outbox.Delivered,
		records[1]: outbox.Retry,
		records[2]: outbox.Dead,
		records[4]: outbox.Delivered,
		records[5]: outbox.Delivered,
	}
	if !reflect.DeepEqual(states, want) || len(v.outcomes) != len(want) {
		t.Errorf("got %v, want %v", states, want)
	}
}

// What waits because a part of the sink is down keeps its attempts; a destination that was reached
// is remembered, and one that failed for its own sake counts.
func TestJudgeIsolates(t *testing.T) {
	t.Parallel()
	r, err := relayOf(nil, nil, Config{MaxAttempts: 3, Backoff: Backoff{Base: time.Second, Jitter: -1}})
	if err != nil {
		t.Fatal(err)
	}
	ok, away, later, broken := outbox.Result{}, outbox.Result{
		Err: outbox.Unavailable(errDown),
	}, outbox.Result{
		Err: outbox.ErrNotAttempted,
	},
		outbox.Result{
			Err: errors.New("broken"),
		}
	for _, c := range []struct {
		results  []outbox.Result
		left     bool // as it is
		attempts int
		wait     time.Duration
		served   []string
	}{
		{results: []outbox.Result{away}, attempts: 2, wait: partRetry},
		{results: []outbox.Result{later}, left: true},
		{results: []outbox.Result{away, later}, attempts: 2, wait: partRetry},
		{results: []outbox.Result{ok, away}, attempts: 2, wait: partRetry, served: []string{"a"}},
		{results: []outbox.Result{broken, away}, attempts: 3, wait: 4 * time.Second},
	} {
		rec := &outbox.Record{Event: outbox.Event{Destinations: []string{"a", "b"}[:len(c.results)]}, Attempts: 2}
		batch, owner, _ := r.route([]*outbox.Record{rec}, outbox.HeldKeys{})
		v := r.verdict([]*outbox.Record{rec}, batch, owner, c.results, nil, true)
		if c.left {
			if len(v.outcomes) > 0 {
				t.Errorf("%v: %+v, want it left as it is", c.results, v.outcomes)
			}
			continue
		}
		if len(v.outcomes) != 1 {
			t.Errorf("%v: %d outcomes", c.results, len(v.outcomes))
		} else if o := v.outcomes[0]; o.State != outbox.Retry || o.Attempts != c.attempts || o.RetryIn != c.wait ||
			!slices.Equal(o.DeliveredTo, c.served) {
			t.Errorf("%v: %+v", c.results, o)
		}
	}
}
