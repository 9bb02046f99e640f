package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
)

// errFails is the answer for a destination called fails.
var errFails = errors.New("it fails")

// orderly is a batch of messages, each KEY/EVENT>DESTINATION or EVENT>DESTINATION, and how it was
// sent.
type orderly struct {
	batch []Delivery
	sent  []string // in the order of sending, ; where an answer was waited for
	most  int      // under way together
}

func newOrderly(messages ...string) *orderly {
	o := &orderly{}
	for _, m := range messages {
		rec := &Record{Event: Event{Topic: m}}
		if n, _ := fmt.Sscanf(m, "%d/", &rec.OrderKey); n == 1 {
			rec.Keyed = true
		}
		at := slices.Index([]byte(m), '>')
		rec.ID = uuid.NewSHA1(uuid.Nil, []byte(m[:at]))
		o.batch = append(o.batch, Delivery{Record: rec, Destination: m[at+1:]})
	}
	return o
}

// publish has each message answered a second after it was sent. A destination called never is not
// answered.
func (o *orderly) publish(ctx context.Context, s Sending) []Result {
	var pending atomic.Int64
	s.Send = func(i int, done func(Result)) {
		if d := o.batch[i].Destination; d != "never" {
			time.AfterFunc(time.Second, func() {
				pending.Add(-1)
				if d == "fails" {
					done(Result{Err: errFails})
				} else {
					done(Result{})
				}
			})
		}
		o.most = max(o.most, int(pending.Add(1)))
		o.sent = append(o.sent, fmt.Sprintf("%s@%d", o.batch[i].Topic, time.Now().Unix()%86400%60))
	}
	return InOrder(ctx, o.batch, s)
}

// lost judges that what is not answered is lost.
func lost(_ context.Context, _ int, r Result) Result {
	if errors.Is(r.Err, ErrNoAnswer) {
		r.Err = Permanent(r.Err)
	}
	return r
}

func TestInOrder(t *testing.T) {
	t.Parallel()
	var long, longSent []string // a chain of 18, of which 16 have their turn
	for i := range 18 {
		long = append(long, fmt.Sprintf("1/%d>x", i))
		if i < 16 {
			longSent = append(longSent, fmt.Sprintf("1/%d>x@%d", i, i))
		}
	}
	for _, tt := range []struct {
		name     string
		messages []string
		s        Sending
		sent     []string // message@second
		want     string   // of each answer: its class, or - for delivered
	}{
		{"an event of a key after the other, keys and what has none beside each other",
			[]string{"1/a>x", "1/b>x", "2/c>x", "d>x", "d>y"}, Sending{},
			[]string{"1/a>x@0", "2/c>x@0", "d>x@0", "d>y@0", "1/b>x@1"}, "-----"},
		{"an event with all of its destinations, one that it names twice at last",
			[]string{"1/a>x", "1/a>y", "1/a>x", "1/b>x"}, Sending{},
			[]string{"1/a>x@0", "1/a>y@0", "1/a>x@1", "1/b>x@2"}, "----"},
		{"nothing behind a failure but the event's own",
			[]string{"1/a>fails", "1/b>x", "1/a>y", "1/a>fails", "2/c>x"}, Sending{},
			[]string{"1/a>fails@0", "2/c>x@0", "1/a>y@1", "1/a>fails@1"}, "rn-r-"},
		{"in the order of the batch where there is room for one",
			[]string{"1/a>x", "1/b>x", "2/c>x", "2/d>x"}, Sending{Messages: 1},
			[]string{"1/a>x@0", "1/b>x@1", "2/c>x@2", "2/d>x@3"}, "----"},
		{"until the end of the time", []string{"1/a>never", "1/b>x", "2/c>x", "2/d>never", "3/e>x"}, Sending{Messages: 2},
			[]string{"1/a>never@0", "2/c>x@0", "2/d>never@1"}, "un-uu"},
		{"no longer than that what is under way has a quarter of the time for its answer", long, Sending{},
			longSent, strings.Repeat("-", 16) + "nn"},
		{"until a quarter of the time before, if somebody can say why there is no answer",
			[]string{"1/a>never", "1/b>x", "2/c>x", "2/d>never"}, Sending{Judge: lost},
			[]string{"1/a>never@0", "2/c>x@0", "2/d>never@1"}, "pn-p"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now() // midnight
				ctx, cancel := context.WithTimeout(t.Context(), 21*time.Second)
				defer cancel()
				o := newOrderly(tt.messages...)
				got := ""
				for _, r := range o.publish(ctx, tt.s) {
					class, _ := Classify(r.Err)
					if r.Err == nil {
						got += "-"
					} else {
						got += string("rpaunw"[class])
					}
				}
				if !slices.Equal(o.sent, tt.sent) || got != tt.want {
					t.Errorf("sent %q, answered %s, want %q and %s", o.sent, got, tt.sent, tt.want)
				}
				if tt.s.Messages > 0 && o.most > tt.s.Messages {
					t.Errorf("%d were under way together, want %d at most", o.most, tt.s.Messages)
				}
				if took := time.Since(began); tt.s.Judge != nil && took != 15750*time.Millisecond {
					t.Errorf("it took %s, want three quarters of 21 s", took)
				}
			})
		})
	}
}

// What is large goes alone, and is not waited for in vain.
func TestInOrderBoundsBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOrderly("a>x", "b>x", "c>x", "d>x")
		for i, size := range []int{4, 4, 100, 4} {
			o.batch[i].Payload = make([]byte, size)
		}
		for i, r := range o.publish(t.Context(), Sending{Bytes: 8}) {
			if r.Err != nil {
				t.Errorf("delivery %d: %v", i, r.Err)
			}
		}
		if want := []string{"a>x@0", "b>x@0", "c>x@1", "d>x@2"}; !slices.Equal(o.sent, want) {
			t.Errorf("sent %q, want %q", o.sent, want)
		}
	})
}
