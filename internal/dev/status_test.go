package dev

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/metrics"
)

func TestGauge(t *testing.T) {
	t.Parallel()
	m := metrics.New()
	var health outbox.Health
	m.Watch(func() outbox.Health { return health })
	gauge := NewGauge(m)
	read := func(want Status) {
		t.Helper()
		got, err := gauge.Read()
		if err != nil || got != want {
			t.Errorf("got %+v, error %v, want %+v", got, err, want)
		}
	}
	read(Status{})
	m.ObserveBatch(outbox.BatchReport{Table: "outbox_events", Settled: outbox.Settled{Delivered: 3, Dead: 1},
		Latencies: []time.Duration{time.Second, 3 * time.Second}})
	m.ObserveBatch(outbox.BatchReport{Table: "crawl_outbox", Settled: outbox.Settled{Delivered: 2}})
	read(Status{Written: 6, Delivered: 5, Dead: 1, Lag: 2 * time.Second})
	m.ObserveBatch(outbox.BatchReport{Table: "crawl_outbox", Settled: outbox.Settled{Delivered: 1},
		Latencies: []time.Duration{500 * time.Millisecond}})
	read(Status{Written: 7, Delivered: 6, Dead: 1, Lag: 500 * time.Millisecond})
	read(Status{Written: 7, Delivered: 6, Dead: 1, Lag: 500 * time.Millisecond}) // nothing came: the last one stands
	health.Tables = map[string]outbox.TableHealth{
		"outbox_events": {Backlog: &outbox.Backlog{Count: 4, Oldest: 7 * time.Second}},
		"crawl_outbox":  {Backlog: &outbox.Backlog{Count: 1, Oldest: time.Second}},
	}
	read(Status{Written: 12, Delivered: 6, Dead: 1, Lag: 7 * time.Second})
	health.Tables["outbox_deliveries/outbox_events/audit"] = outbox.TableHealth{Of: "outbox_events", Sink: "audit",
		Backlog: &outbox.Backlog{Count: 2, Oldest: 9 * time.Second}}
	read(Status{Written: 14, Delivered: 6, Dead: 1, Lag: 9 * time.Second}) // each delivery that is owed counts for one
}

func TestLine(t *testing.T) {
	t.Parallel()
	var screen bytes.Buffer
	columns := 80
	l := NewLine(&screen, func() int { return columns })
	write := func(text string) {
		if n, err := l.Write([]byte(text)); err != nil || n != len(text) {
			t.Errorf("got %d, error %v", n, err)
		}
	}
	write("before\n")
	l.Set("written 1")
	l.Set("written 1") // what stands there is not written again
	write("a warning\n")
	l.Set("written 2")
	columns = 8 // somebody makes the window narrow
	l.Set("lag 20µs   dead 0")
	l.Set("lag 20µs   dead 1") // what of it is seen is the same
	columns = 80
	l.Set("")
	write("after\n")
	want := strings.Join([]string{"before\n", "written 1", "a warning\nwritten 1", "written 2", "lag 20µ", "after\n"},
		wipe)
	if got := screen.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
