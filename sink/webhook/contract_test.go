package webhook

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/outboxrelay/outbox/outboxtest"
)

func TestSinkContract(t *testing.T) {
	t.Parallel()
	outboxtest.SinkSuite(t, outboxtest.SinkFeatures{Headers: "ce-"}, func(t *testing.T) outboxtest.SinkHarness {
		h := &harness{book: newBook(receive(t, status(http.StatusInternalServerError)).endpoint("refusing"))}
		binary := local
		binary.Binary = true
		return outboxtest.SinkHarness{
			Sink: open(t, h.book, local), Binary: open(t, h.book, binary), Listen: h.listen, Stall: h.stall,
			Refusing: "refusing", Forbidden: []string{"", "unknown", "https://example.org/", "a\r\nb"},
		}
	})
}

// harness has a server for each destination.
type harness struct {
	*book
	names atomic.Int64

	gate sync.RWMutex // held while the servers are stalled
}

func (h *harness) listen(t *testing.T) (string, <-chan outboxtest.Arrived) {
	// More than any test sends.
	messages := make(chan outboxtest.Arrived, 10000)
	r := receive(t, func(w http.ResponseWriter, got received, _ int) {
		h.gate.RLock()
		defer h.gate.RUnlock()
		messages <- outboxtest.Arrived{Body: got.body, Headers: flat(got.header)}
		w.WriteHeader(http.StatusNoContent)
	})
	e := r.endpoint(fmt.Sprintf("endpoint %d", h.names.Add(1)))
	h.put(e)
	return e.Name, messages
}

func (h *harness) stall(*testing.T) func() {
	h.gate.Lock()
	return h.gate.Unlock
}
