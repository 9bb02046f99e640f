package kafka

import (
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
)

const benchBatch = 1000

// BenchmarkPublish publishes batches of 1000 events of 500 keys, and for comparison the same
// records with the client alone: all at once, nothing held back behind a failure.
func BenchmarkPublish(b *testing.B) {
	for _, partitions := range []int32{1, 12} {
		name := strconv.Itoa(int(partitions)) + " partitions/"
		cluster := newCluster(b, kfake.NumBrokers(3), kfake.BlackholeProduce())
		topic := newTopic(b, admin(b, cluster.ListenAddrs()), partitions)
		var batch []outbox.Delivery
		for i := range benchBatch {
			d := event(b, topic, strconv.Itoa(i%500))
			d.Payload = []byte(`"` + strings.Repeat("x", 500) + `"`)
			batch = append(batch, d)
		}
		for mode, cfg := range map[string]Config{
			"sink": {}, "sink, binary": {Binary: true}, "sink, transactions": {TransactionalID: "relay-1"},
		} {
			b.Run(name+mode, func(b *testing.B) {
				s := openURL(b, urlOf(cluster), cfg)
				deliver(b, s, batch[0])
				b.ReportAllocs()
				for b.Loop() {
					deliver(b, s, batch...)
				}
				b.ReportMetric(float64(b.N)*benchBatch/b.Elapsed().Seconds(), "events/s")
			})
		}
		b.Run(name+"client", func(b *testing.B) {
			client := admin(b, cluster.ListenAddrs(), kgo.ProducerLinger(0))
			b.ReportAllocs()
			for b.Loop() {
				var records []*kgo.Record
				for i := range batch {
					records = append(records, &kgo.Record{Topic: topic, Key: []byte(batch[i].AggregateID),
						Value: outbox.CloudEvent(nil, &batch[i])})
				}
				if err := client.ProduceSync(b.Context(), records...).FirstErr(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*benchBatch/b.Elapsed().Seconds(), "events/s")
		})
	}
}
