package memory

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
)

const benchBatch = 500

// BenchmarkPublish is the hub with payloads of 700 bytes: heard by one listener, by nobody, with
// the window off, and by several relays at once.
func BenchmarkPublish(b *testing.B) {
	for _, mode := range []struct {
		name     string
		cfg      Config
		heard    bool
		parallel bool
	}{
		{"heard", Config{}, true, false},
		{"unheard", Config{}, false, false},
		{"window off", Config{Window: -1}, true, false},
		{"parallel", Config{}, true, true},
	} {
		b.Run(mode.name, func(b *testing.B) {
			h := New(mode.cfg)
			if mode.heard {
				size := 0
				h.Subscribe(b.Context(), "bench", Func(func(m []byte) { size += len(m) }))
			}
			b.ReportAllocs()
			if mode.parallel {
				b.RunParallel(func(pb *testing.PB) {
					for batch := newBenchBatch(b); pb.Next(); {
						publishBench(b, h, batch)
					}
				})
			} else {
				batch := newBenchBatch(b)
				for b.Loop() {
					publishBench(b, h, batch)
				}
			}
			b.ReportMetric(float64(b.N*benchBatch)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func newBenchBatch(b *testing.B) []outbox.Delivery {
	batch := make([]outbox.Delivery, benchBatch)
	for i := range batch {
		batch[i] = event(b, "bench", i%200)
		batch[i].Payload = json.RawMessage(`"` + strings.Repeat("x", 698) + `"`)
	}
	return batch
}

// publishBench publishes batch as events that were never published. Making them is 20 ns each,
// which is less than stopping the timer for it disturbs.
func publishBench(b *testing.B, h *Hub, batch []outbox.Delivery) {
	for i := range batch {
		id, err := outbox.NewID()
		if err != nil {
			b.Error(err)
		}
		batch[i].ID = id
	}
	for i, res := range h.Publish(b.Context(), batch) {
		if res != (outbox.Result{}) {
			b.Errorf("delivery %d is answered %+v", i, res)
			return
		}
	}
}

// BenchmarkRemember is the memory that one delivery takes while it is remembered, both sets full.
func BenchmarkRemember(b *testing.B) {
	for b.Loop() {
		s := newSeen(Config{}.withDefaults().Window, Config{}.withDefaults().MaxPerWindow)
		before := heap()
		n := 2 * s.limit
		for range n {
			id, err := outbox.NewID()
			if err != nil {
				b.Fatal(err)
			}
			m := mark{id: id}
			s.has(m)
			s.add(m)
		}
		b.ReportMetric(float64(heap()-before)/float64(n), "bytes/event")
		runtime.KeepAlive(s)
	}
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
