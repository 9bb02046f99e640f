package redisstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

const benchBatch = 1000

// BenchmarkPublish is the sink with 500-byte payloads in batches of 1000, over so many streams:
// events/s.
func BenchmarkPublish(b *testing.B) {
	for _, mode := range []struct {
		name    string
		cfg     Config
		streams int
	}{
		{"window", Config{MaxLen: 10000, Create: true}, 1},
		{"20 streams", Config{MaxLen: 10000, Create: true}, 20},
		{"off", Config{MaxLen: 10000, Create: true, Window: -1}, 1},
		{"binary", Config{MaxLen: 10000, Create: true, Binary: true}, 1},
	} {
		b.Run(mode.name, func(b *testing.B) {
			sink := openURL(b, "redis+stream://"+testenv.RedisServer(b).Addr(), mode.cfg)
			benchmark(b, mode.streams, func(batch []outbox.Delivery) error {
				for i, res := range sink.Publish(b.Context(), batch) {
					if res != (outbox.Result{}) {
						return fmt.Errorf("delivery %d: %+v", i, res)
					}
				}
				return nil
			})
		})
	}
}

// BenchmarkPlainPipeline is what the sink is compared with: XADD in a pipeline, nothing remembered,
// nothing held back.
func BenchmarkPlainPipeline(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: testenv.RedisServer(b).Addr(), MaxRetries: -1})
	b.Cleanup(func() { _ = client.Close() })
	var buf []byte
	benchmark(b, 1, func(batch []outbox.Delivery) error {
		pipe := client.Pipeline()
		buf = buf[:0]
		for i := range batch {
			at := len(buf)
			buf = outbox.CloudEvent(buf, &batch[i])
			pipe.XAdd(b.Context(), &redis.XAddArgs{Stream: batch[i].Destination, MaxLen: 10000, Approx: true,
				Values: []any{eventField, buf[at:]}})
		}
		_, err := pipe.Exec(b.Context())
		return err
	})
}

func benchmark(b *testing.B, streams int, publish func([]outbox.Delivery) error) {
	payload := []byte(`"` + strings.Repeat("x", 498) + `"`)
	batch := make([]outbox.Delivery, benchBatch)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		for i := range batch {
			batch[i] = event(b, fmt.Sprintf("bench%d", i%streams), i%200)
			batch[i].Payload = payload
		}
		b.StartTimer()
		if err := publish(batch); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "events/s")
}
