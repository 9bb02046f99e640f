package webhook

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// BenchmarkPublish posts batches of 1000 events of 64 keys to an endpoint that answers at once, and to one that takes
// 50 ms; BenchmarkClient does it with net/http alone, 64 requests at a time, unsigned and from memory.
func BenchmarkPublish(b *testing.B) {
	for _, latency := range []time.Duration{0, 50 * time.Millisecond} {
		b.Run(fmt.Sprint(latency), func(b *testing.B) {
			url := slow(b, latency)
			s, err := New(List{{Name: "acme", URL: url, Secrets: []Secret{key}}}, local)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			var batch []outbox.Delivery
			for i := range 1000 {
				batch = append(batch, event(b, "acme", int64(i%64)))
			}
			b.ReportAllocs()
			b.ResetTimer()
			n := 0
			for b.Loop() {
				for _, res := range s.Publish(b.Context(), batch) {
					if res.Err != nil {
						b.Fatal(res.Err)
					}
					n++
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkClient(b *testing.B) {
	for _, latency := range []time.Duration{0, 50 * time.Millisecond} {
		b.Run(fmt.Sprint(latency), func(b *testing.B) {
			url := slow(b, latency)
			transport := &http.Transport{MaxIdleConnsPerHost: 64}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport}
			d := event(b, "acme", 1)
			body := outbox.CloudEvent(nil, &d)
			b.ReportAllocs()
			b.ResetTimer()
			n := 0
			for b.Loop() {
				var lines sync.WaitGroup
				for line := range 64 {
					lines.Go(func() {
						for i := line; i < 1000; i += 64 {
							resp, err := client.Post(url, "application/json", bytes.NewReader(body))
							if err != nil {
								b.Error(err)
								return
							}
							_, _ = io.Copy(io.Discard, resp.Body)
							_ = resp.Body.Close()
						}
					})
				}
				lines.Wait()
				n += 1000
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// slow is the URL of an endpoint that takes so long.
func slow(b *testing.B, latency time.Duration) string {
	b.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		time.Sleep(latency)
		w.WriteHeader(http.StatusNoContent)
	}))
	b.Cleanup(server.Close)
	return server.URL
}
