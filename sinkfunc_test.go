package outbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A function's calls share the time of their batch: what would be cut is not begun, and what is cut
// costs no attempt unless the call had all of the time.
func TestSinkFuncAndItsTime(t *testing.T) {
	hang := time.Hour
	for _, tt := range []struct {
		name  string
		takes []time.Duration // of each call
		calls int
		want  []Class // of the answers; -1: delivered
	}{
		{"slow", []time.Duration{3 * time.Second, 3 * time.Second, 3 * time.Second}, 1,
			[]Class{-1, ClassNotAttempted, ClassNotAttempted}},
		{"quick", []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, 3, []Class{-1, -1, -1}},
		{"too slow", []time.Duration{hang, 1, 1}, 1, []Class{ClassRetryable, ClassNotAttempted, ClassNotAttempted}},
		{"hangs", []time.Duration{time.Millisecond, hang, 1}, 2, []Class{-1, ClassRetryable, ClassNotAttempted}},
		{"cut", []time.Duration{time.Second, hang, 1}, 2, []Class{-1, ClassNotAttempted, ClassNotAttempted}},
		{"growing", []time.Duration{time.Second, 2 * time.Second, 2 * time.Second}, 2, []Class{-1, -1, ClassNotAttempted}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				sink := SinkFunc(func(ctx context.Context, _ Delivery) error {
					calls++
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(tt.takes[calls-1]):
						return nil
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				batch := make([]Delivery, len(tt.takes))
				for i := range batch {
					batch[i].Record = &Record{OrderKey: int64(i), Keyed: true}
				}
				for i, res := range sink.Publish(ctx, batch) {
					class := Class(-1)
					if res.Err != nil {
						class, _ = Classify(res.Err)
					}
					if class != tt.want[i] {
						t.Errorf("delivery %d is answered %v, of class %d, want %d", i, res.Err, class, tt.want[i])
					}
				}
				if calls != tt.calls {
					t.Errorf("%d calls, want %d", calls, tt.calls)
				}
			})
		})
	}
}

// What is behind a failed event in its key is not published; what has no key is.
func TestSinkFuncKeepsOrderBehindAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []int
		sink := SinkFunc(func(_ context.Context, d Delivery) error {
			order = append(order, d.Attempts)
			time.Sleep(time.Second)
			if d.Attempts == 1 {
				return errors.New("no")
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var batch []Delivery
		for n := range 4 { // events 0, 1 and 3 have a key in common; Attempts is their number
			id, err := NewID()
			if err != nil {
				t.Fatal(err)
			}
			event := Event{ID: id}
			batch = append(batch, Delivery{Record: &Record{Event: event, Attempts: n, Keyed: n != 2}})
		}
		results := sink.Publish(ctx, batch)
		if len(order) != 3 || order[2] != 2 || !errors.Is(results[3].Err, ErrNotAttempted) {
			t.Errorf("called for %v, the last is answered %v", order, results[3].Err)
		}
	})
}
