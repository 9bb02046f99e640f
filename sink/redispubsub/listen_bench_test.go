package redispubsub

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

type counter struct{ messages atomic.Int64 }

func (c *counter) Message([]byte) { c.messages.Add(1) }
func (c *counter) Lost()          {}
func (c *counter) Resumed()       {}

// BenchmarkListener is what a message of 830 bytes costs this process, the client library's part
// included, over 50 channels.
func BenchmarkListener(b *testing.B) {
	server := testenv.RedisServer(b)
	admin := connectAdmin(b, server)
	l := startListener(b, server.URL(), ListenerConfig{})
	var heard counter
	for i := range 50 {
		hear(b, l, fmt.Sprint(i), &heard)
	}
	message := strings.Repeat("x", 830)
	b.ReportAllocs()
	sent := int64(0)
	for b.Loop() {
		pipe := admin.Pipeline()
		for i := range benchBatch {
			pipe.Publish(b.Context(), fmt.Sprint(i%50), message)
		}
		if _, err := pipe.Exec(b.Context()); err != nil {
			b.Fatal(err)
		}
		for sent += benchBatch; heard.messages.Load() < sent; {
			time.Sleep(20 * time.Microsecond)
		}
	}
	b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkDeliver is the listener's part alone. The difference between the two is the price of
// copying the payload.
func BenchmarkDeliver(b *testing.B) {
	for _, size := range []int{1, 830} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			l, err := newListener("redis://h", ListenerConfig{})
			if err != nil {
				b.Fatal(err)
			}
			l.join("c", &member{listener: &counter{}})
			message := &redis.Message{Channel: "c", Payload: strings.Repeat("x", size)}
			b.ReportAllocs()
			for b.Loop() {
				l.deliver(message)
			}
		})
	}
}

// BenchmarkSubscribe is how long one waits for the acknowledgement while the same connection is
// busy with the messages of others.
func BenchmarkSubscribe(b *testing.B) {
	for _, busy := range []bool{false, true} {
		b.Run(fmt.Sprintf("busy=%v", busy), func(b *testing.B) {
			server := testenv.RedisServer(b)
			admin := connectAdmin(b, server)
			l := startListener(b, server.URL(), ListenerConfig{})
			var heard counter
			hear(b, l, "busy", &heard)
			var over atomic.Bool
			var flooding sync.WaitGroup
			if busy {
				message := strings.Repeat("x", 830)
				flooding.Go(func() {
					for tick := time.NewTicker(2 * time.Millisecond); !over.Load(); <-tick.C {
						pipe := admin.Pipeline()
						for range 40 {
							pipe.Publish(b.Context(), "busy", message)
						}
						if _, err := pipe.Exec(b.Context()); err != nil {
							b.Error(err)
						}
					}
				})
			}
			var took []time.Duration
			for i := 0; b.Loop(); i++ {
				began := time.Now()
				stop := hear(b, l, fmt.Sprint(i), &counter{})
				took = append(took, time.Since(began))
				stop()
			}
			over.Store(true)
			flooding.Wait()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(heard.messages.Load())/b.Elapsed().Seconds(), "messages/s")
		})
	}
}
