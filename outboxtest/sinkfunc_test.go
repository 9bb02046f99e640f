package outboxtest

import (
	"context"
	"errors"
	"testing"

	"github.com/outboxrelay/outbox"
)

// A function is a right sink.
func TestSinkFunc(t *testing.T) {
	SinkSuite(t, SinkFeatures{}, func(*testing.T) SinkHarness {
		b := &board{subscribers: map[string]chan Arrived{}, seen: map[string]bool{}}
		publish := func(_ context.Context, d outbox.Delivery) error {
			b.mu.Lock()
			defer b.mu.Unlock()
			subscriber, ok := b.subscribers[d.Destination]
			if !ok {
				return errors.New("no such channel")
			}
			subscriber <- Arrived{Body: d.AppendMessage(nil, outbox.CloudEvent)}
			return nil
		}
		return SinkHarness{Sink: outbox.SinkFunc(publish), Listen: b.listen, Refusing: "refusing"}
	})
}
