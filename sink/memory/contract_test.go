package memory

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/outboxrelay/outbox/outboxtest"
)

// The harness has no destination that refuses and no broker that stalls, because a Hub has neither:
// a delivery cannot fail but with all that follow it. So the suite's tests of a key behind its
// failed event do not run here; the tests of this package show that nothing overtakes a panic.
func TestSinkContract(t *testing.T) {
	for _, tt := range []struct {
		name     string
		cfg      Config
		features outboxtest.SinkFeatures
	}{
		{"window", Config{}, outboxtest.SinkFeatures{RefusesDuplicates: true}},
		{"window off", Config{Window: -1}, outboxtest.SinkFeatures{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			outboxtest.SinkSuite(t, tt.features, func(*testing.T) outboxtest.SinkHarness {
				h := New(tt.cfg)
				var channels atomic.Int64
				return outboxtest.SinkHarness{Sink: h, Listen: func(t *testing.T) (string, <-chan outboxtest.Arrived) {
					channel := strconv.FormatInt(channels.Add(1), 10)
					return channel, listen(t, h, channel)
				}}
			})
		})
	}
}

// listen returns what arrives on the channel until the test ends.
func listen(t *testing.T, h *Hub, channel string) <-chan outboxtest.Arrived {
	t.Helper()
	messages := make(chan outboxtest.Arrived, 10000) // more than any test sends: a listener must not block
	acknowledged, stop := h.Subscribe(t.Context(), channel,
		Func(func(m []byte) { messages <- outboxtest.Arrived{Body: m} }))
	if !acknowledged {
		t.Fatal("not acknowledged")
	}
	t.Cleanup(stop)
	return messages
}
