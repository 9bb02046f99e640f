package webhook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// book is Endpoints that a test writes into.
type book struct {
	mu      sync.Mutex
	entries map[string]Endpoint
	err     error
}

// longestTimeout is the longest timeout that an endpoint can have.
const longestTimeout = 2 * time.Minute

func newBook(endpoints ...Endpoint) *book {
	b := &book{entries: map[string]Endpoint{}}
	for _, e := range endpoints {
		b.put(e)
	}
	return b
}

func (b *book) put(e Endpoint) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.entries[e.Name] = e
}

func (b *book) fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
}

func (b *book) Lookup(_ context.Context, names ...string) (map[string]Endpoint, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := map[string]Endpoint{}
	for _, name := range names {
		if e, ok := b.entries[name]; ok {
			found[name] = e
		}
	}
	return found, b.err
}

// key is a symmetric secret.
var key = Secret(symmetric + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef0123456789abcdef")))

// local is a Config for servers of the tests.
var local = Config{AllowPrivate: true, AllowHTTP: true}

// open returns a Sink that is closed with the test.
func open(t *testing.T, endpoints Endpoints, cfg Config) *Sink {
	t.Helper()
	s, err := New(endpoints, cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.transport.TLSHandshakeTimeout = tier.Patience()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// received is a request as a server has it.
type received struct {
	header http.Header
	body   []byte
	ctx    context.Context // ends with the request
}

// receiver is a server that notes its requests and answers as it is told.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []received
	// answer answers the nth request, from 0; nil says 204.
	answer func(w http.ResponseWriter, got received, n int)
}

func receive(t *testing.T, answer func(w http.ResponseWriter, got received, n int)) *receiver {
	t.Helper()
	r := &receiver{answer: answer}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

// status answers with a status and headers: name, value, name, value.
func status(code int, headers ...string) func(http.ResponseWriter, received, int) {
	return func(w http.ResponseWriter, _ received, _ int) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
	}
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // a request that was cut off is none
	}
	r.mu.Lock()
	n := len(r.got)
	got := received{req.Header.Clone(), body, req.Context()}
	r.got = append(r.got, got)
	r.mu.Unlock()
	if r.answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	r.answer(w, got, n)
}

func (r *receiver) requests() []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]received(nil), r.got...)
}

func (r *receiver) count() int { return len(r.requests()) }

// endpoint is the receiver by a name.
func (r *receiver) endpoint(name string) Endpoint {
	return Endpoint{Name: name, URL: r.URL + "/hook", Secrets: []Secret{key}, Timeout: longestTimeout}
}

// event returns a delivery of a new event.
func event(t testing.TB, to string, orderKey int64) outbox.Delivery {
	t.Helper()
	id, err := outbox.NewID()
	if err != nil {
		t.Fatal(err)
	}
	return outbox.Delivery{Destination: to, Record: &outbox.Record{
		Event: outbox.Event{ID: id, Topic: "order.placed", AggregateType: "Order", AggregateID: fmt.Sprint(orderKey),
			Source: "orders", Payload: json.RawMessage(`{"total":1}`)},
		Keyed: true, OrderKey: orderKey, Position: 1, Sequence: 1,
	}}
}

// events are n new ones of different keys, to the destinations in turn.
func events(t testing.TB, n int, to ...string) (batch []outbox.Delivery) {
	t.Helper()
	for i := range n {
		batch = append(batch, event(t, to[i%len(to)], int64(i)))
	}
	return batch
}

// one publishes a delivery.
func one(t *testing.T, s *Sink, d outbox.Delivery) error {
	t.Helper()
	return s.Publish(t.Context(), []outbox.Delivery{d})[0].Err
}

// wantClass checks an error and that its text has what it must and no secret.
func wantClass(t *testing.T, err error, class outbox.Class, texts ...string) time.Duration {
	t.Helper()
	got, after := outbox.Classify(err)
	if err == nil || got != class {
		t.Fatalf("answered %v (class %d), want class %d", err, got, class)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %q, want %q in it", err, text)
		}
	}
	if strings.Contains(err.Error(), string(key[len(symmetric):])) {
		t.Errorf("the error shows a secret: %v", err)
	}
	return after
}

// wantDelivered checks that all were delivered.
func wantDelivered(t *testing.T, results []outbox.Result) {
	t.Helper()
	for i, res := range results {
		if res != (outbox.Result{}) {
			t.Fatalf("delivery %d is answered %+v, want delivered", i, res)
		}
	}
}

// eventually waits for a condition: far longer than it takes on a busy machine.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(tier.Patience()); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, tier.Patience())
		}
	}
}

var errTest = errors.New("the table of endpoints is away")

// flat has the headers of a request, one value each.
func flat(h http.Header) map[string]string {
	all := map[string]string{}
	for name := range maps.Keys(h) {
		all[name] = h.Get(name)
	}
	return all
}
