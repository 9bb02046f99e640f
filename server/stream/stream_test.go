package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// memory is a log and a broker. What is committed may be published late, twice, out of order or not
// at all.
type memory struct {
	mu        sync.Mutex
	log       map[uuid.UUID][]Message
	listeners map[string]map[int]outbox.Listener
	next      int
	down      bool // the broker
	logDown   bool
	pages     int
	tops      int
	ended     map[uuid.UUID]int64
	subscribe func() // called before a subscription is made
}

func newMemory() *memory {
	return &memory{log: map[uuid.UUID][]Message{}, listeners: map[string]map[int]outbox.Listener{}}
}

func (m *memory) Page(_ context.Context, _ string, run uuid.UUID, after int64, limit int) ([]Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logDown {
		return nil, errors.New("no answer")
	}
	m.pages++
	return m.after(run, after, limit), nil
}

func (m *memory) after(run uuid.UUID, after int64, limit int) []Message {
	log := m.log[run]
	if after >= int64(len(log)) {
		return nil
	}
	return log[after:min(int64(len(log)), after+int64(limit))]
}

func (m *memory) News(_ context.Context, _ string, run uuid.UUID, after int64, limit int) ([]Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logDown {
		return nil, errors.New("no answer")
	}
	return m.after(run, after, limit), nil
}

func (m *memory) Tops(_ context.Context, _ string, runs []uuid.UUID) (map[uuid.UUID]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logDown {
		return nil, errors.New("no answer")
	}
	m.tops++
	tops := map[uuid.UUID]int64{}
	for _, run := range runs {
		tops[run] = int64(len(m.log[run]))
	}
	return tops, nil
}

func (m *memory) Ended(context.Context, string, []uuid.UUID) (map[uuid.UUID]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.logDown {
		return nil, errors.New("no answer")
	}
	return maps.Clone(m.ended), nil
}

func (m *memory) Subscribe(_ context.Context, channel string, l outbox.Listener) (bool, func()) {
	if m.subscribe != nil {
		m.subscribe()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	id := m.next
	if m.listeners[channel] == nil {
		m.listeners[channel] = map[int]outbox.Listener{}
	}
	m.listeners[channel][id] = l
	return !m.down, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.listeners[channel], id)
	}
}

// commit appends an event to the log and returns it as the relay publishes it.
func (m *memory) commit(run uuid.UUID) Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	seq := int64(len(m.log[run]) + 1)
	event := fmt.Appendf(nil,
		`{"specversion":"1.0","id":"%s","type":"ACTION","sequence":"%d","partitionkey":"%s","tenantid":"a","data":{"n":%d}}`,
		uuid.New(), seq, run, seq)
	message, ok := decodeTopic(event, "a")
	if !ok {
		panic("the test's own event is not decoded")
	}
	message.Seq = seq
	m.log[run] = append(m.log[run], message)
	return message
}

func (m *memory) publish(channel string, event []byte) {
	m.mu.Lock()
	var to []outbox.Listener
	if !m.down {
		for _, l := range m.listeners[channel] {
			to = append(to, l)
		}
	}
	m.mu.Unlock()
	for _, l := range to {
		l.Message(event)
	}
}

func (m *memory) emit(run uuid.UUID) { m.publish("run:"+run.String(), m.commit(run).Event) }

func (m *memory) locked(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// inBubble runs a hub in a bubble of its own time.
func inBubble(t *testing.T, f func(t *testing.T, m *memory, h *Hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		h := New(m, m, Config{})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := h.Run(ctx); err != nil {
				t.Error(err)
			}
		}()
		f(t, m, h)
		stop()
		<-done
		if s := h.Stats(); s.Readers != 0 || s.Sources != 0 {
			t.Errorf("%d readers and %d sources are left", s.Readers, s.Sources)
		}
	})
}

func open(t *testing.T, h *Hub, starts ...Start) *Reader {
	t.Helper()
	r, err := h.Open(t.Context(), starts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func from(run uuid.UUID, after int64) Start {
	return Start{Source: Source{Tenant: "a", Run: run}, After: after}
}

// expect reads until the reader has n more events of a run, which must follow its cursor without a
// gap.
func expect(t *testing.T, r *Reader, n int) {
	t.Helper()
	next := r.Cursors()[0] + 1
	for n > 0 {
		b, err := r.Next(t.Context(), 5*time.Second)
		if err != nil || len(b.Messages) == 0 {
			t.Fatalf("nothing came (%v), want %d more", err, n)
		}
		for _, m := range b.Messages {
			if m.Seq != next {
				t.Fatalf("got event %d, want %d", m.Seq, next)
			}
			next++
			n--
		}
	}
	if n < 0 {
		t.Fatalf("got %d events more than were expected", -n)
	}
}

func nothing(t *testing.T, r *Reader) {
	t.Helper()
	if b, err := r.Next(t.Context(), time.Second); err != nil || len(b.Messages) > 0 || b.Reset {
		t.Fatalf("got %+v, %v, want nothing", b, err)
	}
}

func TestHistoryThenLive(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		run := uuid.New()
		for range 1234 {
			m.emit(run)
		}
		r := open(t, h, from(run, 0))
		defer r.Close()
		expect(t, r, 1234)
		for range 10 {
			m.emit(run)
		}
		expect(t, r, 10)
		if s := h.Stats(); s.FromLog != 1234 || s.FromLive != 10 || s.Gaps != 0 {
			t.Errorf("%+v: want 1234 from the log, 10 live", s)
		}
		late := open(t, h, from(run, 1240)) // the ring has it
		defer late.Close()
		expect(t, late, 4)
		if s := h.Stats(); s.FromLog != 1234 {
			t.Errorf("%+v: the log was read for what the ring had", s)
		}
	})
}

// An event that is committed while a reader subscribes is in the log or arrives live; it may be
// both.
func TestNothingIsLostWhileSubscribing(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		run := uuid.New()
		m.emit(run)
		m.subscribe = func() { m.emit(run) } // before the broker knows of the subscription
		r := open(t, h, from(run, 0))
		defer r.Close()
		m.emit(run)
		expect(t, r, 3)
	})
}

func TestLostAndRepeatedMessages(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		run := uuid.New()
		channel := "run:" + run.String()
		r := open(t, h, from(run, 0))
		defer r.Close()
		first := m.commit(run)
		m.publish(channel, first.Event)
		m.publish(channel, first.Event)
		expect(t, r, 1)
		m.commit(run) // lost
		m.commit(run) // lost
		t0 := time.Now()
		m.emit(run) // shows the gap
		expect(t, r, 3)
		if time.Since(t0) != 0 {
			t.Errorf("the gap was filled after %s, want at once", time.Since(t0))
		}
		m.publish(channel, first.Event)
		m.commit(run) // a lost tail: nothing follows
		t0 = time.Now()
		expect(t, r, 1)
		if took := time.Since(t0); took > 250*time.Millisecond {
			t.Errorf("a lost tail was found after %s, want 250 ms", took)
		}
		m.commit(run)
		m.publish(channel, []byte(`{"n": 1}`)) // no envelope: a sign to look
		t0 = time.Now()
		expect(t, r, 1)
		if time.Since(t0) != 0 {
			t.Errorf("a message without a number was followed after %s, want at once", time.Since(t0))
		}
		m.publish(channel, []byte("not JSON"))
		nothing(t, r)
	})
}

// Everything at once: a broker that loses, repeats, delays and goes away, a log that goes away,
// readers that are slow and come back.
func TestEveryReaderGetsEveryEvent(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T, m *memory, h *Hub) { storm(t, m, h, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func storm(t *testing.T, m *memory, h *Hub, rng *rand.Rand) {
	const events = 2000
	run := uuid.New()
	channel := "run:" + run.String()
	var all sync.WaitGroup
	for i := range 10 {
		rng := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		all.Go(func() {
			var cursor int64
			for cursor < events {
				r, err := h.Open(t.Context(), from(run, cursor))
				if err != nil {
					t.Error(err)
					return
				}
				for range rng.IntN(40) {
					b, err := r.Next(t.Context(), 100*time.Millisecond)
					if err != nil {
						t.Error(err)
					}
					for _, got := range b.Messages {
						if got.Seq != cursor+1 {
							t.Errorf("got event %d after %d", got.Seq, cursor)
						}
						cursor = got.Seq
					}
					time.Sleep(time.Duration(rng.IntN(2000*(i%3)+1)) * time.Microsecond)
				}
				r.Close()
			}
		})
	}
	for range events {
		message := m.commit(run)
		switch rng.IntN(12) {
		case 0: // lost
		case 1:
			m.publish(channel, message.Event)
			m.publish(channel, message.Event)
		case 2:
			time.AfterFunc(time.Duration(rng.IntN(5000))*time.Microsecond, func() { m.publish(channel, message.Event) })
		default:
			m.publish(channel, message.Event)
		}
		if rng.IntN(200) == 0 {
			m.locked(func() { m.down = !m.down })
		}
		if rng.IntN(300) == 0 {
			m.locked(func() { m.logDown = true })
			time.AfterFunc(time.Second, func() { m.locked(func() { m.logDown = false }) })
		}
		time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
	}
	all.Wait()
	if s := h.Stats(); s.FromLive == 0 || s.FromLog == 0 || s.Gaps == 0 || s.LogErrors == 0 {
		t.Errorf("%+v: something did not happen at all", s)
	}
	time.Sleep(time.Minute) // what was put off
}

// A reader that does not read is served from the log later, and another one from memory meanwhile.
func TestSlowReader(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		run := uuid.New()
		slow, quick := open(t, h, from(run, 0)), open(t, h, from(run, 0))
		defer slow.Close()
		defer quick.Close()
		for range 5000 {
			m.emit(run)
			expect(t, quick, 1)
		}
		if s := h.Stats(); s.FromLog != 0 || m.pages != 0 {
			t.Errorf("%+v: the log was read", s)
		}
		expect(t, slow, 5000)
		if s := h.Stats(); s.FromLog < 4000 {
			t.Errorf("%+v: the slow reader was not served from the log", s)
		}
	})
}

// The log is asked once for all readers of all runs.
func TestOnePollForAllReaders(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		var readers []*Reader
		for range 100 {
			run := uuid.New()
			for range 3 {
				readers = append(readers, open(t, h, from(run, 0)))
			}
		}
		var before, after int
		m.locked(func() { before = m.tops })
		time.Sleep(time.Second)
		m.locked(func() { after = m.tops })
		if polls := after - before; polls < 4 || polls > 5 {
			t.Errorf("%d questions in a second, want one each 200 ms", polls)
		}
		for _, r := range readers {
			r.Close()
		}
		m.locked(func() {
			for channel, listeners := range m.listeners {
				if len(listeners) > 0 {
					t.Errorf("%s is still subscribed", channel)
				}
			}
		})
	})
}

// A database that takes over may lack the last events. Their numbers will be used again, so readers
// that have seen them must begin again.
func TestReaderEndsWithTheStatusOfTheRun(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		run := uuid.New()
		m.emit(run)
		r := open(t, h, from(run, 0))
		defer r.Close()
		expect(t, r, 1)
		m.locked(func() { m.ended = map[uuid.UUID]int64{run: 1} })
		time.Sleep(endInterval)
		m.locked(func() { m.ended = nil }) // the first answer alone does not count
		time.Sleep(2 * endInterval)
		if r.Ended(0) {
			t.Error("the reader ends after one answer")
		}
		m.commit(run) // not published
		m.locked(func() { m.ended = map[uuid.UUID]int64{run: 2} })
		events := 0
		for began := time.Now(); !r.Ended(0); {
			b, err := r.Next(t.Context(), time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if events += len(b.Messages); time.Since(began) > 4*endInterval {
				t.Fatalf("the reader does not end; %d events came", events)
			}
		}
		if events != 1 {
			t.Errorf("%d events came before the end, want the last one", events)
		}
	})
}

func TestLogThatLostEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		run := uuid.New()
		r := open(t, h, from(run, 0))
		defer r.Close()
		for range 10 {
			m.emit(run)
		}
		expect(t, r, 10)
		m.locked(func() { m.log[run] = m.log[run][:7] })
		time.Sleep(300 * time.Millisecond) // the poll notices
		for range 5 {
			m.emit(run) // numbers 8 to 12: the reader has seen 8 to 10 on others
		}
		if _, err := r.Next(t.Context(), time.Second); !errors.Is(err, ErrBeyond) {
			t.Fatalf("%v, want ErrBeyond", err)
		}
		other := open(t, h, from(run, 7))
		defer other.Close()
		m.emit(run)
		expect(t, other, 6)
	})
}

func TestSeveralSources(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		busy, calm := uuid.New(), uuid.New()
		for range 3000 {
			m.emit(busy)
		}
		m.emit(calm)
		r := open(t, h, from(busy, 0), from(calm, 0))
		defer r.Close()
		for n, seen := 0, [2]int{}; seen != [2]int{3000, 1}; n++ {
			b, err := r.Next(t.Context(), time.Second)
			if err != nil || len(b.Messages) == 0 {
				t.Fatalf("%v after %v", err, seen)
			}
			if seen[b.Source] += len(b.Messages); n == 1 && seen[1] != 1 {
				t.Error("the busy run hid the other one")
			}
		}
		if got := r.Cursors(); got[0] != 3000 || got[1] != 1 {
			t.Errorf("cursors are %v", got)
		}
	})
}

// Whoever may publish on a run's channel can neither show its readers anything, nor end them, nor
// keep the true event from them.
func TestForgedMessagesAreNotShown(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		run := uuid.New()
		channel := "run:" + run.String()
		r := open(t, h, from(run, 0))
		defer r.Close()
		m.emit(run)
		expect(t, r, 1)
		for _, seq := range []string{"2", "3", "1", "0", "-1", "9223372036854775807", "x", ""} {
			m.publish(channel, fmt.Appendf(nil,
				`{"type":"RUN_COMPLETED","sequence":"%s","partitionkey":"%s","tenantid":"a","data":{}}`, seq, run))
			nothing(t, r)
		}
		t0 := time.Now()
		m.emit(run)
		expect(t, r, 1)
		if took := time.Since(t0); took != 0 {
			t.Errorf("the true event came after %s, want at once", took)
		}
		time.Sleep(time.Minute) // no poll takes the log for one that has lost events
		m.emit(run)
		expect(t, r, 1)
	})
}

// Without an envelope messages have no numbers.
func TestMessagesWithoutNumbers(t *testing.T) {
	inBubble(t, func(t *testing.T, m *memory, h *Hub) {
		run := uuid.New()
		r := open(t, h, from(run, 0))
		defer r.Close()
		t0 := time.Now()
		for n := range 10 {
			m.commit(run)
			m.publish("run:"+run.String(), fmt.Appendf(nil, `{"n": %d}`, n))
		}
		expect(t, r, 10)
		if took := time.Since(t0); took != 0 {
			t.Errorf("they came after %s, want at once", took)
		}
	})
}

// What one decoder takes for a member and another does not must not be taken at all.
func TestMessagesAreTakenLiterally(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"type":"A","tenantid":"acme","data":{"TenantID":1,"a":1,"a":2}}`: true,
		` {"type":"A","tenantid":"acme","data":{}} `:                       true,
		`{"tenantid":"beta","TenantID":"acme","data":{}}`:                  false,
		`{"tenantid":"acme","TenantID":"beta","data":{}}`:                  false,
		`{"TenantID":"acme","data":{}}`:                                    false,
		`{"tenantid":"beta","tenantid":"acme","data":{}}`:                  false,
		`{"tenantid":"acme","data":{},"data":{}}`:                          false,
		`{"tenantid":"acme","data":{}}{}`:                                  false,
		`{"tenantid":"acme","data":{}`:                                     false,
		`{"tenantid":"acme"}`:                                              false,
		`{"tenantid":["acme"],"data":{}}`:                                  false,
		`["tenantid","acme"]`:                                              false,
		`null`:                                                             false,
		``:                                                                 false,
	} {
		if _, ok := decodeTopic([]byte(text), "acme"); ok != want {
			t.Errorf("%s: taken is %t", text, ok)
		}
	}
}
