package chaos

import (
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/outboxtest"
)

// broker is the server behind a sink, and what has arrived there.
type broker struct {
	url     string // for relays
	refuses bool   // copies of what it has
	// unawaited is the most requests of a relay under way that no batch of it waits for any more.
	unawaited int
	// received is all that has arrived, in the order of each key. No relay publishes meanwhile.
	received func() []outboxtest.Received

	proxy  *proxy // between relays and the server
	server interface {
		PID() int
		Kill() error
		Restart() error
	}
	faults map[string]func() (end func()) // of its own, beside the outages
}

// destination is where the events of a world with a broker go.
const destination = "orders"

// retries has an event tried again for as long as a fault lasts.
const retries = `retry: [{destination: "*", max_attempts: 10000, backoff_base: 100ms, backoff_factor: 1}]`

// arrived reads a message. Its time, if it has one, must be one of RFC 3339.
func arrived(message []byte, destination string) (r outboxtest.Received, malformed bool) {
	var event struct {
		ID  string  `json:"id"`
		Key string  `json:"partitionkey"`
		At  *string `json:"time"` // left out where RFC 3339 has no such year
	}
	if err := json.Unmarshal(message, &event); err != nil {
		// The checker will call it invented.
		event.ID = "unreadable: " + string(message[:min(len(message), 80)])
	}
	if event.At != nil {
		_, err := time.Parse(time.RFC3339Nano, *event.At)
		malformed = err != nil
	}
	return outboxtest.Received{ID: event.ID, Key: event.Key, Destination: destination, At: time.Now()}, malformed
}

// received is all that has arrived, once no more comes.
func (w *world) received() []outboxtest.Received {
	if w.broker != nil {
		return w.broker.received()
	}
	received, subscriptions := w.heard.quiet(300 * time.Millisecond)
	if subscriptions != 1+w.reconnects {
		w.t.Errorf("the subscriber connected %d times, want %d: it may have missed what was published", subscriptions,
			1+w.reconnects)
	}
	if n := w.heard.malformed; n > 0 {
		w.t.Errorf("%d messages have a time that is not RFC 3339", n)
	}
	return received
}

// sent is how many events are delivered, as the table says.
func (w *world) sent() int {
	w.t.Helper()
	return w.number(`SELECT count(*) FROM outbox_events WHERE status = 'SENT'`)
}

// settles waits until n more events are delivered: the relays are at work.
func (w *world) settles(n int) {
	w.t.Helper()
	before := w.sent()
	eventually(w.t, itoa(n)+" more events are delivered", func() bool { return w.sent() >= before+n })
}

// unsettled is how many events have arrived and the table knows nothing of it. An event whose
// outcome a relay did not learn has a time for its next attempt.
func (w *world) unsettled() int {
	w.t.Helper()
	var ids []string
	for _, r := range w.received() {
		ids = append(ids, r.ID)
	}
	const query = `SELECT count(*) FROM outbox_events WHERE status = 'NEW' AND next_retry_at IS NULL AND id::text = ANY ($1)`
	return w.number(query, ids)
}

// retried is how many deliveries the relays have put off: among them those whose outcome they did
// not learn in time, and whole batches that got no answer.
func (w *world) retried() (n int) {
	for _, r := range w.relays {
		for line := range strings.Lines(r.said()) {
			n += numberAfter(line, `"retried":`)
			if strings.Contains(line, "cannot make progress") && strings.Contains(line, `"error":"publish: `) {
				n += smallBatch
			}
		}
	}
	return n
}

// freeAddress is an address for a server that is about to be started, perhaps more than once.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	return listener.Addr().String()
}
