package browser_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// consumer receives what the relay publishes, and says of each key in which order.
type consumer struct {
	mu    sync.Mutex
	order map[string][]int
}

func (w *world) consume(pattern string) *consumer {
	w.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr()})
	sub := client.PSubscribe(w.t.Context(), pattern)
	if _, err := sub.Receive(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	c := &consumer{order: map[string][]int{}}
	messages, ended := sub.Channel(redis.WithChannelSize(20_000)), make(chan struct{})
	go func() {
		defer close(ended)
		for m := range messages {
			var one struct {
				Key string
				N   int
			}
			_ = json.Unmarshal([]byte(m.Payload), &one) // what is no event of ours counts as one of key ""
			c.mu.Lock()
			c.order[one.Key] = append(c.order[one.Key], one.N)
			c.mu.Unlock()
		}
	}()
	w.t.Cleanup(func() {
		_ = sub.Close()
		_ = client.Close()
		<-ended
	})
	return c
}

// has tells how many messages came, and whether each key's came in order and once.
func (c *consumer) has() (n int, inOrder bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	inOrder = true
	for _, of := range c.order {
		n += len(of)
		inOrder = inOrder && slices.IsSorted(of) && len(slices.Compact(slices.Clone(of))) == len(of)
	}
	return n, inOrder
}

// The night of an operator, on one page: each fault is made at the real servers, seen on the page,
// and ended by its buttons; what they did is true in the database and at the broker.
func TestOnCallWalk(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w, _ := newWorldAlone(t)
	w.allow("order.placed")
	w.allow("run:*")
	w.serve("--parts", "gateway,relay", "--auth", "none", "--admin", "write", "--table", "outbox_events")
	w.start("relay", "--table", "outbox_events")
	p := w.open(desktop, "/")
	p.see("Healthy; no event waits")
	p.shot("1-all-clear")

	w.brokerDown(p)
	w.poison(p)
	w.blockedKey(p)
	w.replaySteps(p)
	w.pauseAndResume(p)

	p.visit("/")
	p.see("Healthy; no event waits")
	p.shot("9-all-clear-again")
	p.fine("the walk")
	if n := w.count("outbox_events WHERE status <> 'SENT'"); n != 0 {
		t.Errorf("%d events are not delivered in the end", n)
	}
}

// brokerDown kills Redis: the page names the sink, what waits and since when, nothing is lost, and
// all of it arrives.
func (w *world) brokerDown(p *tab) {
	if err := w.redis.Kill(); err != nil {
		w.t.Fatal(err)
	}
	w.write(orders("order.placed", 200, 20)...)
	p.see("Sink default is down", "no event is lost", "200 events wait", "down", "since")
	p.shot("2-broker-down")
	if n := w.count("outbox_events WHERE status <> 'NEW' OR retry_count > 0"); n != 0 {
		w.t.Errorf("an outage of the broker has cost attempts of %d events", n)
	}
	if err := w.redis.Restart(); err != nil {
		w.t.Fatal(err)
	}
	w.relayUser()
	w.allow("order.placed")
	w.becomes(200, "outbox_events WHERE status = 'SENT'")
	p.see("no event waits")
	p.gone("is down")
	p.shot("3-broker-back")
}

// poison has Redis refuse two topics: their events become letters, which the page groups by what
// they say.
func (w *world) poison(p *tab) {
	w.tell("ACL SETUSER relay resetchannels &nothing")
	w.write(letters()...)
	w.becomes(letterCount, "job_dlq WHERE replayed_at IS NULL")
	p.visit("/letters")
	p.see("10,000", "refund.made", "order.placed")
	p.shot("4-poison")
}

// blockedKey has one customer's invoices wait behind one that failed, until somebody has it tried
// again.
func (w *world) blockedKey(p *tab) {
	w.write(event{"invoice.sent", "INV-7", "", map[string]any{"n": 1}}, event{"invoice.sent", "INV-7", "",
		map[string]any{"n": 2}})
	p.visit("/")
	p.see("INV-7", "Retry now")
	p.shot("5-blocked-key")
	w.allow("invoice.*")
	p.press("Retry now", "INV-7")
	p.confirm("Retry now", "the channel is open again", "It is due now")
	w.becomes(2, "outbox_events WHERE event_topic = 'invoice.sent' AND status = 'SENT'")
	p.see("No key is blocked")
}

const (
	letterCount = 10_000
	good        = 50 // how many letters come before the first of what stays broken
)

// letters are events of two topics: orders, and in each ten of them one refund, but for the first.
func letters() []event {
	var all []event
	for i := range letterCount {
		topic, key := "order.placed", fmt.Sprintf("order-%d", i%97)
		if i >= good && i%10 == 5 {
			topic, key = "refund.made", fmt.Sprintf("refund-%d", i%97)
		}
		all = append(all, event{topic, key, "", map[string]any{"key": key, "n": i}})
	}
	return all
}

func orders(topic string, n, keys int) (all []event) {
	for i := range n {
		key := fmt.Sprintf("order-%d", i%keys)
		all = append(all, event{topic, key, "", map[string]any{"key": key, "n": i}})
	}
	return all
}

// replaySteps mends the half of it: a replay of everything stops itself at the first step that has
// too many of what is broken still. With the rest mended all arrive, and each key's in their order.
func (w *world) replaySteps(p *tab) {
	heard := w.consume("*")
	w.allow("order.placed")
	p.visit("/letters?error=can%27t+publish")
	p.see("10,000", "refund.made")
	p.press("Replay …")
	p.see("10,000 letters")
	p.fill("Stop a step above", "5")
	p.fill("Reason", "order.placed is allowed again")
	p.press("Replay 10,000 letters")
	p.see("It stopped itself")
	p.shot("6-it-stopped-itself")
	p.press("Close")
	left := w.count("job_dlq WHERE replayed_at IS NULL")
	if replayed := w.count("job_dlq WHERE replayed_at IS NOT NULL"); replayed != 111 || left <= letterCount-111 {
		w.t.Errorf("%d letters were replayed until it stopped, and %d are left", replayed, left)
	}

	w.allow("refund.made")
	p.press("Replay …")
	p.fill("Letters a second", "100000")
	p.fill("Reason", "refunds are allowed again")
	began := time.Now()
	p.press(fmt.Sprintf("Replay %d,%03d letters", left/1000, left%1000))
	p.see("Done")
	w.t.Logf("%d letters were replayed and delivered in %s", left, time.Since(began).Round(time.Millisecond))
	p.shot("7-replayed")
	p.press("Close")
	w.becomes(0, "job_dlq WHERE replayed_at IS NULL")
	w.becomes(0, "outbox_events WHERE status <> 'SENT'")
	w.eventually("all have arrived", func() bool { n, _ := heard.has(); return n >= letterCount })
	if n, inOrder := heard.has(); n != letterCount || !inOrder {
		w.t.Errorf("the broker had %d messages of %d letters, in order: %v", n, letterCount, inOrder)
	}
}

// pauseAndResume pauses a topic: its events wait while others go, and arrive when it is resumed.
func (w *world) pauseAndResume(p *tab) {
	w.allow("parcel.sent")
	p.visit("/pauses")
	p.fill("Topic", "parcel.*")
	p.press("Pause …")
	p.confirm("Pause", "the carrier moves house", "Paused: table outbox_events, topic parcel.*")
	if w.count("outbox_pauses WHERE topic = 'parcel.*' AND reason = 'the carrier moves house'") != 1 {
		w.t.Error("no pause is in the database")
	}
	w.obeyed()
	before := w.count("outbox_events WHERE status = 'SENT'")
	w.write(event{"parcel.sent", "4", "", map[string]any{"n": 1}}, event{"order.placed", "4x", "",
		map[string]any{"n": 1}})
	w.becomes(before+1, "outbox_events WHERE status = 'SENT'")
	if n := w.count("outbox_events WHERE event_topic = 'parcel.sent' AND status = 'NEW'"); n != 1 {
		w.t.Errorf("%d events of the paused topic wait, want one", n)
	}
	p.visit("/")
	p.see("the carrier moves house", "1 event waits")
	p.shot("8-paused")
	p.press("Resume", "parcel.*")
	p.confirm("Resume", "the carrier is back", "It goes on")
	w.becomes(1, "outbox_events WHERE event_topic = 'parcel.sent' AND status = 'SENT'")
	w.becomes(0, "outbox_pauses")
	w.becomes(2, "outbox_audit WHERE action IN ('pause', 'resume')")
}

// obeyed waits until every relay has renewed its lease, and with it read the pauses, since now.
func (w *world) obeyed() {
	w.t.Helper()
	for range 2 { // the renewal under way may have read them before
		at := query[time.Time](w, "SELECT coalesce(max(expires_at), now()) FROM outbox_relays")
		w.eventually("the relays renew", func() bool {
			return query[bool](w, "SELECT coalesce(bool_and(expires_at > $1), false) FROM outbox_relays", at)
		})
	}
}
