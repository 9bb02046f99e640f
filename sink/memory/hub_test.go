package memory

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/outboxtest"
)

// All listeners of a channel hear the same messages in the same order, that of each batch, however
// many relays publish.
func TestOneOrder(t *testing.T) {
	t.Parallel()
	h := New(Config{Envelope: positionEnvelope})
	a, b, other := listen(t, h, "c"), listen(t, h, "c"), listen(t, h, "other")
	const relays, batches, size = 4, 20, 50
	var calls sync.WaitGroup
	for relay := range relays {
		calls.Go(func() {
			for n := range batches {
				var batch []outbox.Delivery
				for i := range size {
					d := event(t, "c", relay)
					d.Position = int64((relay*batches+n)*size + i)
					batch = append(batch, d)
				}
				deliver(t, h, batch...)
			}
		})
	}
	calls.Wait()
	heard := drain(a)
	if len(heard) != relays*batches*size || !slices.Equal(heard, drain(b)) || len(other) > 0 {
		t.Fatalf("one heard %d messages, want %d, the other the same, and nobody else any", len(heard), relays*batches*size)
	}
	last := make([]int, relays)
	for _, m := range heard {
		position, err := strconv.Atoi(m)
		if err != nil {
			t.Fatal(err)
		}
		relay := position / (batches * size)
		if position < last[relay] {
			t.Fatalf("of relay %d, %d came after %d", relay, position, last[relay])
		}
		last[relay] = position
	}
}

// Listeners come and go while messages do. Between Subscribe and stop each hears every message, and
// none after stop.
func TestComeAndGo(t *testing.T) {
	t.Parallel()
	h := New(Config{Envelope: positionEnvelope})
	var over atomic.Bool
	var relays, listeners sync.WaitGroup
	for relay := range 2 {
		channel := strconv.Itoa(relay)
		relays.Go(func() {
			for position := int64(0); !over.Load(); position++ {
				d := event(t, channel, relay)
				d.Position = position
				deliver(t, h, d)
			}
		})
		for range 4 {
			listeners.Go(func() {
				for range 100 {
					var e ear
					acknowledged, stop := h.Subscribe(t.Context(), channel, &e)
					for e.heard.Load() < 3 {
						time.Sleep(time.Microsecond)
					}
					stop()
					e.gone = true // a call now would be a data race
					stop()
					if !acknowledged || e.problem != "" {
						t.Errorf("acknowledged: %v; %s", acknowledged, e.problem)
					}
				}
			})
		}
	}
	listeners.Wait()
	over.Store(true)
	relays.Wait()
	if n := h.heard(); n != 0 {
		t.Errorf("%d channels are left", n)
	}
}

// ear expects positions without a gap.
type ear struct {
	heard   atomic.Int64
	last    int64
	gone    bool
	problem string
	lost    int
}

func (e *ear) Message(m []byte) {
	position, err := strconv.ParseInt(string(m), 10, 64)
	if err != nil || e.gone || e.heard.Load() > 0 && position != e.last+1 {
		e.problem = "heard " + string(m) + " after " + strconv.FormatInt(e.last, 10)
	}
	e.last = position
	e.heard.Add(1)
}

func (e *ear) Lost() {
	if e.lost++; e.gone {
		e.problem = "was told after stop"
	}
}

func (e *ear) Resumed() { e.problem = "resumed" }

// A message that nobody hears is delivered: its copy is refused, even to somebody who listens now.
func TestNobodyListens(t *testing.T) {
	t.Parallel()
	h := New(Config{})
	d := event(t, "c", 1)
	deliver(t, h, d)
	messages := listen(t, h, "c")
	wantCopy(t, h, d)
	if len(messages) > 0 {
		t.Error("the copy arrived")
	}
}

// A message is the listener's to keep: later ones do not overwrite it.
func TestMessageIsKept(t *testing.T) {
	t.Parallel()
	h := New(Config{Envelope: outbox.PayloadOnly})
	messages := listen(t, h, "c")
	batch := []outbox.Delivery{event(t, "c", 1), event(t, "c", 1)}
	batch[0].Payload, batch[1].Payload = json.RawMessage(`"first"`), json.RawMessage(`"second"`)
	deliver(t, h, batch...)
	if got := drain(messages); !slices.Equal(got, []string{`"first"`, `"second"`}) {
		t.Errorf("heard %q", got)
	}
}

// A panic, of the envelope or of a listener, reaches the relay, which knows what to do. What went
// out before it is known as a copy, the event itself and what is behind it are not, and the hub
// serves on.
func TestPanic(t *testing.T) {
	t.Parallel()
	for _, culprit := range []string{"envelope", "listener"} {
		t.Run(culprit, func(t *testing.T) {
			t.Parallel()
			var broken atomic.Bool
			fail := func(what, message string) {
				if broken.Load() && what == culprit && message == "1" {
					panic("broken")
				}
			}
			h := New(Config{Envelope: func(dst []byte, d *outbox.Delivery) []byte {
				fail("envelope", strconv.FormatInt(d.Position, 10))
				return positionEnvelope(dst, d)
			}})
			h.Subscribe(t.Context(), "c", Func(func(m []byte) { fail("listener", string(m)) }))
			messages := listen(t, h, "c")
			var batch []outbox.Delivery
			for position := range 3 {
				d := event(t, "c", 1)
				d.Position = int64(position)
				batch = append(batch, d)
			}
			broken.Store(true)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("no panic")
					}
				}()
				h.Publish(t.Context(), batch)
			}()
			broken.Store(false)
			got := h.Publish(t.Context(), batch)
			if want := []outbox.Result{{Duplicate: true}, {}, {}}; !slices.Equal(got, want) {
				t.Errorf("afterwards answered %+v, want %+v", got, want)
			}
			if got := drain(messages); !slices.Equal(got, []string{"0", "1", "2"}) {
				t.Errorf("heard %q", got)
			}
		})
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	h := New(Config{Envelope: positionEnvelope})
	var stays, left ear
	h.Subscribe(t.Context(), "c", &stays)
	_, stopStays := h.Subscribe(t.Context(), "c", &stays)
	_, stop := h.Subscribe(t.Context(), "c", &left)
	stop()
	if err := h.Abilities().Ping(t.Context()); err != nil || h.heard() != 1 {
		t.Errorf("Ping: %v, %d channels", err, h.heard())
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if stays.lost != 2 || left.lost != 0 {
		t.Errorf("who stayed, twice, was told %d times, and who had left %d", stays.lost, left.lost)
	}
	stopStays()
	for i, res := range h.Publish(t.Context(), []outbox.Delivery{event(t, "c", 1), event(t, "c", 1)}) {
		if class, _ := outbox.Classify(res.Err); !errors.Is(res.Err, errClosed) || class != outbox.ClassUnavailable {
			t.Errorf("delivery %d is answered %+v", i, res)
		}
	}
	if class, _ := outbox.Classify(h.Abilities().Ping(t.Context())); class != outbox.ClassUnavailable {
		t.Error("Ping says all is well")
	}
	acknowledged, stop := h.Subscribe(t.Context(), "c", &stays)
	stop()
	if acknowledged || h.heard() != 0 || stays.heard.Load() != 0 {
		t.Errorf("acknowledged: %v, %d channels, %d heard", acknowledged, h.heard(), stays.heard.Load())
	}
}

// Who leaves while the hub is being closed is told before stop returns, or not at all.
func TestCloseWhileLeaving(t *testing.T) {
	t.Parallel()
	for range 50 {
		h := New(Config{})
		ears := make([]ear, 50)
		var leaving sync.WaitGroup
		for i := range ears {
			_, stop := h.Subscribe(t.Context(), "c", &ears[i])
			leaving.Go(func() {
				stop()
				ears[i].gone = true
			})
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		leaving.Wait()
		for i := range ears {
			if ears[i].problem != "" || ears[i].lost > 1 {
				t.Fatalf("listener %d was told %d times: %s", i, ears[i].lost, ears[i].problem)
			}
		}
	}
}

// event returns a delivery of an event that was never published.
func event(t testing.TB, to string, key int) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Error(err)
	}
	return outbox.Delivery{Destination: to, Record: &outbox.Record{
		Event: outbox.Event{ID: id, Topic: "order.placed", AggregateType: "Order", AggregateID: strconv.Itoa(key),
			TenantID: "acme", Source: "orders",
			OccurredAt: time.Now(), SchemaVersion: 1, Payload: json.RawMessage(`{}`)},
		Keyed: true, OrderKey: int64(key), Lane: int16(key % outbox.LaneCount), Sequence: 1,
	}}
}

// deliver publishes and checks that all were delivered for the first time.
func deliver(t *testing.T, h *Hub, batch ...outbox.Delivery) {
	t.Helper()
	for i, res := range h.Publish(t.Context(), batch) {
		if res != (outbox.Result{}) {
			t.Errorf("delivery %d is answered %+v, want delivered", i, res)
		}
	}
}

// drain returns what has arrived: a delivery that is answered has been heard.
func drain(messages <-chan outboxtest.Arrived) (all []string) {
	for len(messages) > 0 {
		all = append(all, string((<-messages).Body))
	}
	return all
}

func positionEnvelope(dst []byte, d *outbox.Delivery) []byte {
	return strconv.AppendInt(dst, d.Position, 10)
}
