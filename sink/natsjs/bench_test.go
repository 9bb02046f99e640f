package natsjs

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

const benchBatch = 1000

// BenchmarkPublish is the sink with 500-byte payloads in batches of 1000, of 1000, 100 and 10 keys
// and of one: events/s. The stream is in memory, so that a disk is not what is measured.
func BenchmarkPublish(b *testing.B) {
	for _, keys := range []int{1000, 100, 10, 1} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s, js := open(b, testenv.NATSServer(b, testenv.NATSConfig{NoSync: true}), Config{})
			benchmark(b, js, keys, func(batch []outbox.Delivery) error {
				for i, res := range s.Publish(b.Context(), batch) {
					if res != (outbox.Result{}) {
						return fmt.Errorf("delivery %d: %+v", i, res)
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkPlainPipeline is what the sink is compared with: the client's asynchronous publish of
// the same messages made before, with ids, nothing held back.
func BenchmarkPlainPipeline(b *testing.B) {
	server := testenv.NATSServer(b, testenv.NATSConfig{NoSync: true})
	js := admin(b, server.URL())
	benchmark(b, js, 1000, func(batch []outbox.Delivery) error {
		futures := make([]jetstream.PubAckFuture, len(batch))
		for i := range batch {
			var err error
			futures[i], err = js.PublishAsync(
				"bench",
				outbox.CloudEvent(nil, &batch[i]),
				jetstream.WithMsgID(messageID(&batch[i])),
			)
			if err != nil {
				return err
			}
		}
		for _, f := range futures {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return err
			}
		}
		return nil
	})
}

func benchmark(b *testing.B, js jetstream.JetStream, keys int, publish func([]outbox.Delivery) error) {
	if _, err := js.CreateStream(context.Background(), jetstream.StreamConfig{Name: "B", Subjects: []string{"bench"},
		Storage: jetstream.MemoryStorage, MaxMsgs: 10_000}); err != nil {
		b.Fatal(err)
	}
	payload := []byte(`"` + strings.Repeat("x", 498) + `"`)
	batch := make([]outbox.Delivery, benchBatch)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range batch {
			batch[i] = newEvent(b, "bench", i%keys)
			batch[i].Payload = payload
		}
		b.StartTimer()
		if err := publish(batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "events/s")
}
