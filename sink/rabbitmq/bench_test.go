package rabbitmq

import (
	"fmt"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/outbox"
)

const benchBatch = 1000

// BenchmarkPublish is the sink with 500-byte payloads and batches of 1000 events, of as many keys
// or of few, on a classic and on a quorum queue.
func BenchmarkPublish(b *testing.B) {
	for _, kind := range []string{amqp.QueueTypeClassic, amqp.QueueTypeQuorum} {
		for _, keys := range []int{benchBatch, 200, 10, 1} {
			b.Run(fmt.Sprintf("%s/keys=%d", kind, keys), func(b *testing.B) {
				server := newBroker(b)
				server.queue(b, "bench", benchQueue(kind))
				s := open(b, server.url(), Config{})
				benchmark(b, keys, func(batch []outbox.Delivery) error {
					for i, res := range s.Publish(b.Context(), batch) {
						if res != (outbox.Result{}) {
							return fmt.Errorf("delivery %d: %w", i, res.Err)
						}
					}
					return nil
				})
			})
		}
	}
}

// BenchmarkPlainPipeline is what the sink is compared with: the client publishes all of a batch,
// then waits for the confirms. Nothing is held back behind a failure, and no returns are looked at.
func BenchmarkPlainPipeline(b *testing.B) {
	for _, kind := range []string{amqp.QueueTypeClassic, amqp.QueueTypeQuorum} {
		b.Run(kind, func(b *testing.B) {
			server := newBroker(b)
			server.queue(b, "bench", benchQueue(kind))
			ch := channelOf(b, server.conn)
			if err := ch.Confirm(false); err != nil {
				b.Fatal(err)
			}
			confirms := make([]*amqp.DeferredConfirmation, benchBatch)
			benchmark(b, benchBatch, func(batch []outbox.Delivery) error {
				for i := range batch {
					d := &batch[i]
					m := amqp.Publishing{Body: outbox.CloudEvent(nil, d), DeliveryMode: amqp.Persistent, MessageId: d.ID.String()}
					confirm, err := ch.PublishWithDeferredConfirm("", d.Destination, true, false, m)
					if err != nil {
						return err
					}
					confirms[i] = confirm
				}
				for _, confirm := range confirms {
					if !confirm.Wait() {
						return fmt.Errorf("message %d was refused", confirm.DeliveryTag)
					}
				}
				return nil
			})
		})
	}
}

// benchQueue is a queue that keeps little: the disk is not what is measured.
func benchQueue(kind string) amqp.Table {
	return amqp.Table{amqp.QueueTypeArg: kind, amqp.QueueMaxLenArg: 10 * benchBatch}
}

func benchmark(b *testing.B, keys int, publish func([]outbox.Delivery) error) {
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
