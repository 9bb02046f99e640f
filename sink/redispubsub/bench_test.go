package redispubsub

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

const benchBatch = 1000

// BenchmarkPublish is the sink with one subscriber, 500-byte payloads, batches of 1000: events/s,
// and Redis's CPU an event, which a busy machine disturbs less.
func BenchmarkPublish(b *testing.B) {
	for _, mode := range []struct {
		name string
		cfg  Config
	}{{"window", Config{}}, {"hour", Config{Window: time.Hour}}, {"off", Config{Window: -1}}} {
		b.Run(mode.name, func(b *testing.B) {
			server := testenv.RedisServer(b)
			sink, admin := open(b, server, mode.cfg)
			drain(b, server, admin)
			benchmark(b, admin, func(batch []outbox.Delivery) error {
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

// BenchmarkPlainPipeline is what the sink is compared with: PUBLISH in a pipeline, nothing
// remembered, nothing held back.
func BenchmarkPlainPipeline(b *testing.B) {
	server := testenv.RedisServer(b)
	admin := connectAdmin(b, server)
	drain(b, server, admin)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	b.Cleanup(func() { _ = client.Close() })
	var buf []byte
	benchmark(b, admin, func(batch []outbox.Delivery) error {
		pipe := client.Pipeline()
		buf = buf[:0]
		for i := range batch {
			at := len(buf)
			buf = outbox.CloudEvent(buf, &batch[i])
			pipe.Publish(b.Context(), batch[i].Destination, buf[at:])
		}
		_, err := pipe.Exec(b.Context())
		return err
	})
}

func benchmark(b *testing.B, admin *redis.Client, publish func([]outbox.Delivery) error) {
	payload := []byte(`"` + strings.Repeat("x", 498) + `"`)
	batch := make([]outbox.Delivery, benchBatch)
	b.ReportAllocs()
	before := redisCPU(b, admin)
	for b.Loop() {
		b.StopTimer()
		for i := range batch {
			batch[i] = event(b, "bench", i%200)
			batch[i].Payload = payload
		}
		b.StartTimer()
		if err := publish(batch); err != nil {
			b.Fatal(err)
		}
	}
	events := float64(b.N * benchBatch)
	b.ReportMetric(events/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric((redisCPU(b, admin)-before)*1e6/events, "redis-µs/event")
}

// drain subscribes and throws away what comes, as fast as a connection can be read.
func drain(b *testing.B, server *testenv.Redis, admin *redis.Client) {
	conn, err := net.Dial("tcp", server.Addr())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := io.WriteString(conn, "SUBSCRIBE bench\r\n"); err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Until it is closed.
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{conn}, make([]byte, 256<<10))
	}()
	b.Cleanup(func() { _ = conn.Close(); <-done })
	waitSubscribed(b, admin, "bench")
}

func redisCPU(b *testing.B, admin *redis.Client) float64 {
	info, err := admin.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	total := 0.0
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			total += seconds
		}
	}
	return total
}
