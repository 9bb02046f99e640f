package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/sink"
)

// wantFailure checks an error of an event's own, of which waiting or somebody's work may be the
// cure.
func wantFailure(t testing.TB, err error, says string) {
	t.Helper()
	wantClass(t, err, outbox.ClassRetryable, says)
}

// A message that RabbitMQ confirms and puts into no queue is a failure, and nothing of its key
// follows.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := open(t, b.url(), Config{})
	b.exchange(t, "events", "topic")
	b.queue(t, "orders", nil)
	b.bind(t, "orders", "order.*", "events")

	first, lost := newEvent(t, "events/order.placed", 1), newEvent(t, "events/other", 1)
	held := newEvent(t, "events/order.paid", 1)
	other, nowhere := newEvent(t, "orders", 2), newEvent(t, "no.such.queue", 3)
	got := s.Publish(t.Context(), []outbox.Delivery{first, lost, toward(lost, "orders"), held, other, nowhere})
	wantFailure(t, got[1].Err, "bind a queue")
	if !errors.Is(got[3].Err, outbox.ErrNotAttempted) {
		t.Errorf("what follows the returned event is answered %v", got[3].Err)
	}
	wantFailure(t, got[5].Err, "create the queue")
	for _, i := range []int{0, 2, 4} {
		if got[i].Err != nil {
			t.Errorf("delivery %d: %v", i, got[i].Err)
		}
	}
	sinktest.WantSame(t, idsOf(b.stored(t, "orders")), ids(first, lost, other))
}

// A queue that is full refuses single messages (nack): the event of a key behind the refused one
// stays, although its own queue would take it. That is the case for which one event of a key is in
// flight.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := open(t, b.url(), Config{})
	b.queue(t, "full", amqp.Table{amqp.QueueMaxLenArg: 1, amqp.QueueOverflowArg: amqp.QueueOverflowRejectPublish})
	b.queue(t, "free", nil)
	deliver(t, s, newEvent(t, "full", 0))
	var batch []outbox.Delivery
	for key := range 50 {
		batch = append(batch, newEvent(t, "full", key), newEvent(t, "free", key), newEvent(t, "free", key))
	}
	refused := 0
	for i, res := range s.Publish(t.Context(), batch) {
		if i%3 == 0 {
			wantFailure(t, res.Err, "nack")
			refused++
		} else if !errors.Is(res.Err, outbox.ErrNotAttempted) {
			t.Errorf("delivery %d, behind a refused one, is answered %v", i, res.Err)
		}
	}
	if got := b.stored(t, "free"); len(got) != 0 || refused == 0 {
		t.Errorf("%d events went past %d refused ones of their keys", len(got), refused)
	}
}

// A missing exchange fails its own events, and takes nothing along: neither what is in the same
// batch, nor what comes after it.
func TestMissingExchange(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := open(t, b.url(), Config{})
	b.queue(t, "q", nil)
	for round := range 3 {
		var batch []outbox.Delivery
		for i := range 60 {
			to := "q"
			if i%3 == 0 {
				to = "missing/key"
			}
			batch = append(batch, newEvent(t, to, 100*round+i))
		}
		for i, res := range s.Publish(t.Context(), batch) {
			if i%3 == 0 {
				wantFailure(t, res.Err, "create the exchange")
			} else if res.Err != nil {
				t.Fatalf("delivery %d to a queue that exists: %v", i, res.Err)
			}
		}
		if got := len(b.stored(t, "q")); got != 40 {
			t.Errorf("%d messages arrived, want 40", got)
		}
	}
	b.exchange(t, "missing", "fanout")
	b.bind(t, "q", "", "missing")
	deliver(t, s, newEvent(t, "missing/key", 1), newEvent(t, "missing/", 1))
	if got := len(b.stored(t, "q")); got != 2 {
		t.Errorf("%d messages arrived by the new exchange, want 2", got)
	}
}

// An exchange that is deleted while it is in use has unknown outcomes at most once; then its events
// fail by themselves.
func TestDeletedExchange(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := open(t, b.url(), Config{})
	b.queue(t, "q", nil)
	batch := []outbox.Delivery{newEvent(t, "q", 100)}
	for key := range 20 {
		batch = append(batch, newEvent(t, "e/", key))
	}
	unknown := 0
	for tries := 0; unknown == 0; tries++ { // RabbitMQ may be faster than the second message
		if tries == 50 {
			t.Fatal("the fault was not hit: no channel was closed with several messages in flight")
		}
		b.exchange(t, "e", "fanout")
		b.bind(t, "q", "", "e")
		deliver(t, s, newEvent(t, "e/", 1), newEvent(t, "e/", 2))
		if err := b.ch.ExchangeDelete("e", false, false); err != nil {
			t.Fatal(err)
		}
		for i, res := range s.Publish(t.Context(), batch) {
			class, _ := outbox.Classify(res.Err)
			switch {
			case i == 0 && res.Err != nil, i > 0 && res.Err == nil:
				t.Errorf("delivery %d is answered %v", i, res.Err)
			case class == outbox.ClassUnavailable:
				unknown++
			}
		}
	}
	for i, res := range s.Publish(t.Context(), batch) {
		if i == 0 && res.Err != nil {
			t.Errorf("the queue is answered %v", res.Err)
		} else if i > 0 {
			wantFailure(t, res.Err, "NOT_FOUND")
		}
	}
}

// A user who may not write to an exchange, and one who may not use some of its routing keys: who is
// to blame fails with RabbitMQ's reason, and the others are delivered.
func TestRights(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.queue(t, "q", nil)
	b.exchange(t, "open", "topic")
	b.exchange(t, "private", "topic")
	b.bind(t, "q", "#", "open")
	b.bind(t, "q", "#", "private")
	user := "user_" + b.vhost
	b.Eval(t, fmt.Sprintf(`rabbit_auth_backend_internal:add_user(<<%q>>, <<"hunter2">>, <<"test">>).`, user))
	b.Allow(t, user, b.vhost, "^$", "^(open|amq.default)$", "^$")
	b.Eval(t, fmt.Sprintf(`rabbit_auth_backend_internal:set_topic_permissions(<<%q>>, <<%q>>, <<"open">>, <<"^ok">>, `+
		`<<"">>, <<"test">>).`, user, b.vhost))
	batch := []outbox.Delivery{newEvent(t, "private/ok", 10), newEvent(t, "open/not", 11), newEvent(t, "q", 12)}
	for key := range 30 {
		batch = append(batch, newEvent(t, "open/ok.2", key+20))
	}
	var s *Sink
	unknown := 0
	for tries := 0; unknown == 0; tries++ { // RabbitMQ may be faster than the second message
		if tries == 50 {
			t.Fatal("the fault was not hit: no channel was closed with several messages in flight")
		}
		s = open(t, fmt.Sprintf("amqp://%s:hunter2@%s/%s", user, b.Addr(), b.vhost), Config{})
		deliver(t, s, newEvent(t, "open/ok.1", 1), newEvent(t, "q", 2))
		unknown = publishUntilKnown(t, s, batch)
	}
	// Now it is known who closes channels: nobody else pays again.
	for i, res := range s.Publish(t.Context(), batch) {
		if blamed := i < 2; blamed {
			wantFailure(t, res.Err, "right to write")
		} else if res.Err != nil {
			t.Errorf("%s is answered %v", batch[i].Destination, res.Err)
		}
	}
}

// RabbitMQ may close the channel at any moment, also between the two looks at it before a message is
// sent. What is in flight is then answered with the reason of the closed channel.
func TestChannelClosedBeforeSending(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := open(t, b.url(), Config{})
	link, err := s.acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.release(true)
	batch := []outbox.Delivery{newEvent(t, "missing/a", 1), newEvent(t, "missing/b", 2)}
	answers := make([]error, 2)
	p := &publication{Sink: s, link: link, batch: batch, to: make([]address, 2), bad: make([]error, 2),
		pipes: map[string]*pipe{}}
	for i := range batch {
		p.done = append(p.done, func(r outbox.Result) { answers[i] = r.Err })
		if p.to[i], err = parseDestination(batch[i].Destination); err != nil {
			t.Fatal(err)
		}
	}
	pipe := newPipe(p, "missing", 2)
	pipe.build(0)
	pipe.send()
	<-pipe.flying[0].confirmed.Done() // the channel is closed
	pipe.build(1)
	pipe.send() // as if it had been open when fits looked
	pipe.confirm()
	wantFailure(t, answers[0], "create the exchange")
}

// publishUntilKnown publishes a batch, whose first two are refused, and again what has an unknown
// outcome. It returns how often that was.
func publishUntilKnown(t *testing.T, s sink.Sink, batch []outbox.Delivery) (unknown int) {
	pending := batch
	for round := 0; len(pending) > 0; round++ {
		if round == 3 {
			t.Fatalf("after %d rounds %d deliveries have no outcome", round, len(pending))
		}
		var again []outbox.Delivery
		for i, res := range s.Publish(t.Context(), pending) {
			d := pending[i]
			class, _ := outbox.Classify(res.Err)
			switch {
			case res.Err != nil && class == outbox.ClassUnavailable:
				unknown++
				again = append(again, d)
			case d.ID == batch[0].ID || d.ID == batch[1].ID:
				wantFailure(t, res.Err, "right to write")
			case res.Err != nil:
				t.Errorf("%s is answered %v", d.Destination, res.Err)
			}
		}
		pending = again
	}
	return unknown
}

// While RabbitMQ is short of memory it says that it takes nothing, and the sink with it; afterwards
// all goes on.
func memoryAlarm(t *testing.T, server *testenv.RabbitMQ) {
	b := connectBroker(t, server)
	s := open(t, b.url(), Config{})
	b.queue(t, "q", nil)
	before := newEvent(t, "q", 1)
	deliver(t, s, before)
	b.Eval(t, "vm_memory_monitor:set_vm_memory_high_watermark(0.0001).")
	over := func() { b.Eval(t, "vm_memory_monitor:set_vm_memory_high_watermark(0.4).") }
	defer over()
	eventually(t, func() bool { return b.Eval(t, "rabbit_alarm:get_alarms() =/= [].") == "true" })

	var during []outbox.Delivery
	for key := range 20 {
		during = append(during, newEvent(t, "q", key))
	}
	var failed map[string]error
	var delivered []string
	eventually(t, func() bool { // RabbitMQ says it to a connection that publishes
		delivered, failed = answers(t.Context(), s, during)
		return len(failed) == len(during)
	})
	for _, err := range failed {
		wantClass(t, err, outbox.ClassUnavailable, "resource alarm")
	}
	wantClass(t, s.Abilities().Ping(t.Context()), outbox.ClassUnavailable)
	over()
	eventually(t, func() bool {
		delivered, failed = answers(t.Context(), s, during)
		return len(failed) == 0
	})
	if err := s.Abilities().Ping(t.Context()); err != nil {
		t.Error(err)
	}
	got := idsOf(b.stored(t, "q"))
	for _, id := range append(delivered, before.ID.String()) {
		if !slices.Contains(got, id) {
			t.Errorf("event %s was delivered and is not there", id)
		}
	}
}

// A connection that is cut with messages in flight: their outcome is unknown, and the next call
// connects again.
func TestConnectionCut(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := sinktest.NewProxy(t, b.Addr())
	s := open(t, behind(p, b.vhost), Config{})
	b.queue(t, "q", nil)
	deliver(t, s, newEvent(t, "q", 1))
	resume := p.Stall()
	var batch []outbox.Delivery
	for key := range 10 {
		batch = append(batch, newEvent(t, "q", key), newEvent(t, "q", key))
	}
	answered := make(chan []outbox.Result)
	go func() { answered <- s.Publish(t.Context(), batch) }()
	eventually(t, func() bool { return p.Held.Load() > 0 }) // in flight
	p.Cut()
	got := <-answered
	resume()
	for i, res := range got {
		if i%2 == 0 {
			wantClass(t, res.Err, outbox.ClassUnavailable)
		} else if class, _ := outbox.Classify(res.Err); res.Err == nil ||
			class != outbox.ClassNotAttempted && class != outbox.ClassUnavailable {
			t.Errorf("delivery %d is answered %v", i, res.Err)
		}
	}
	b.stored(t, "q")
	deliver(t, s, batch...)
	if stored := idsOf(b.stored(t, "q")); len(stored) != len(batch) {
		t.Errorf("%d messages, want %d", len(stored), len(batch))
	}
}

// A server that stands still: the call returns with its context, the next one asks a new connection
// before it sends anything, so that the messages do not pile up.
func TestStalledServer(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	p := sinktest.NewProxy(t, b.Addr())
	s := open(t, behind(p, b.vhost), Config{})
	b.queue(t, "q", nil)
	deliver(t, s, newEvent(t, "q", 1))
	resume := p.Stall()
	defer resume()
	d := newEvent(t, "q", 2)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		for _, res := range s.Publish(ctx, []outbox.Delivery{d}) {
			wantClass(t, res.Err, outbox.ClassUnavailable)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	wantClass(t, s.Abilities().Ping(ctx), outbox.ClassUnavailable)
	cancel()
	resume()
	eventually(t, func() bool { _, failed := answers(t.Context(), s, []outbox.Delivery{d}); return len(failed) == 0 })
	copies := 0
	for _, id := range idsOf(b.stored(t, "q")) {
		if id == d.ID.String() {
			copies++
		}
	}
	if copies < 1 || copies > 2 { // the one without an answer, and the last
		t.Errorf("the event is there %d times", copies)
	}
}

// A server that is killed and started again while it is published to: whatever was answered as
// delivered is there.
func killWhilePublishing(t *testing.T, server *testenv.RabbitMQ) {
	b := connectBroker(t, server)
	b.queue(t, "q", nil)
	s := open(t, b.url(), Config{})
	done := make(chan struct{})
	var delivered []string
	unavailable := 0
	first := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		for more := 10; more > 0; { // batches after the kill was noticed
			var batch []outbox.Delivery
			for key := range 20 {
				batch = append(batch, newEvent(t, "q", key))
			}
			ok, failed := answers(t.Context(), s, batch)
			delivered = append(delivered, ok...)
			for _, err := range failed {
				wantClass(t, err, outbox.ClassUnavailable)
				unavailable++
				if time.Since(began) > tier.Patience() {
					t.Errorf("%s after the start nothing is delivered again: %v", tier.Patience(), err)
					return
				}
			}
			if len(delivered) > 0 {
				select {
				case <-first:
				default:
					close(first)
				}
			}
			if unavailable > 0 && len(failed) == 0 {
				more--
			}
			if len(failed) > 0 {
				time.Sleep(10 * time.Millisecond) // as a relay would, it backs off
			}
		}
	}()
	<-first
	if err := server.Restart(); err != nil {
		t.Error(err)
	}
	<-done
	if unavailable == 0 {
		t.Error("the fault was not hit")
	}
	b.reconnect(t)
	got := map[string]bool{}
	for _, id := range idsOf(b.stored(t, "q")) {
		got[id] = true
	}
	for _, id := range delivered {
		if !got[id] {
			t.Errorf("event %s was delivered and is not there", id)
		}
	}
	t.Logf("%d delivered, %d times unavailable", len(delivered), unavailable)
}
