package dev

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Status is what has happened since the process began.
type Status struct {
	Written   int // events that are delivered, dead, or waiting: what others have written is known within three seconds
	Delivered int
	Dead      int
	// Age of the oldest event that waits; if none does, how long the last ones took from commit to delivery.
	Lag time.Duration
}

func (s Status) String() string {
	return fmt.Sprintf("written %d   delivered %d   lag %s   dead %d", s.Written, s.Delivered, round(s.Lag), s.Dead)
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(100 * time.Millisecond)
}

// Gauge reads the metrics of a process again and again.
type Gauge struct {
	metrics prometheus.Gatherer
	seconds float64 // sum of latencies at the last reading
	count   uint64
	took    time.Duration // the mean of those since
}

// NewGauge returns a gauge of a process's metrics.
func NewGauge(m prometheus.Gatherer) *Gauge { return &Gauge{metrics: m} }

// Read returns the state now.
func (g *Gauge) Read() (Status, error) {
	families, err := g.metrics.Gather()
	if err != nil {
		return Status{}, fmt.Errorf("read metrics: %w", err)
	}
	var s Status
	var waiting int
	var oldest, seconds float64
	var count uint64
	for _, f := range families {
		for _, m := range f.GetMetric() { // one a table
			switch f.GetName() {
			case "outbox_published_total":
				s.Delivered += int(m.GetCounter().GetValue())
			case "outbox_dead_total":
				s.Dead += int(m.GetCounter().GetValue())
			case "outbox_backlog_events", "outbox_owed_deliveries":
				waiting += int(m.GetGauge().GetValue())
			case "outbox_oldest_undelivered_seconds", "outbox_oldest_owed_seconds":
				oldest = max(oldest, m.GetGauge().GetValue())
			case "outbox_delivery_latency_seconds":
				seconds += m.GetHistogram().GetSampleSum()
				count += m.GetHistogram().GetSampleCount()
			}
		}
	}
	if count > g.count {
		g.took = time.Duration((seconds - g.seconds) / float64(count-g.count) * float64(time.Second))
	}
	g.seconds, g.count = seconds, count
	s.Written, s.Lag = s.Delivered+s.Dead+waiting, g.took
	if waiting > 0 {
		s.Lag = time.Duration(oldest * float64(time.Second))
	}
	return s, nil
}

// Line is the last line of a terminal, which is written again and again while other text comes before it. It is safe
// for concurrent use.
type Line struct {
	w       io.Writer
	columns func() int

	mu   sync.Mutex
	text string
}

// NewLine returns a line at the end of what is written to w, which has so many columns at the moment.
func NewLine(w io.Writer, columns func() int) *Line { return &Line{w: w, columns: columns} }

const wipe = "\r\x1b[K"

// Set shows text in the place of what was there, as far as it fits; "" leaves none.
func (l *Line) Set(text string) {
	// One column stays free. A text that reaches the edge goes on in the next row on some terminals, and wipe clears
	// one row.
	if r, room := []rune(text), max(l.columns()-1, 0); len(r) > room {
		text = string(r[:room])
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if text == l.text {
		return
	}
	l.text = text
	_, _ = io.WriteString(l.w, wipe+text) // a terminal that is gone needs no status
}

// Write writes whole lines before the line.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" {
		return l.w.Write(p)
	}
	text := append([]byte(wipe), p...)
	if !bytes.HasSuffix(p, []byte("\n")) {
		text = append(text, '\n')
	}
	if _, err := l.w.Write(append(text, l.text...)); err != nil {
		return 0, fmt.Errorf("write before the status line: %w", err)
	}
	return len(p), nil
}
