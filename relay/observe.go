package relay

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
)

// addReport adds what was published after b, before it is settled.
func addReport(b *outbox.BatchReport, next outbox.BatchReport) {
	b.Claimed += next.Claimed
	b.Duplicates += next.Duplicates
	b.Recalled += next.Recalled
	b.Unsubscribed += next.Unsubscribed
	b.Owed += next.Owed
	b.Unavailable = b.Unavailable || next.Unavailable
	if s := next.Slowest; b.Slowest == nil || s != nil && s.WrittenAt.Before(b.Slowest.WrittenAt) {
		b.Slowest = s
	}
	b.Latencies = append(b.Latencies, next.Latencies...)
	b.Claim += next.Claim
	b.Publish += next.Publish
}

// tally sums batches up to one log line a second of work (FR-005: log events published, latency,
// failures).
type tally struct {
	mu        sync.Mutex
	settled   outbox.Settled
	dups      int
	recalled  int
	unheard   int // delivered to nobody, because nobody has subscribed
	latencies []time.Duration
}

// maxLatencies bounds the memory of a tally; at higher rates the percentiles are those of the
// second's first events.
const maxLatencies = 1 << 16

func (t *tally) add(b outbox.BatchReport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	addSettled(&t.settled, b.Settled)
	t.dups += b.Duplicates
	t.recalled += b.Recalled
	t.unheard += b.Unsubscribed
	if room := maxLatencies - len(t.latencies); room > 0 {
		t.latencies = append(t.latencies, b.Latencies[:min(room, len(b.Latencies))]...)
	}
}

func (t *tally) flush(ctx context.Context, log *slog.Logger, table string) {
	t.mu.Lock()
	s, dups, recalled, unheard, lat := t.settled, t.dups, t.recalled, t.unheard, slices.Clone(t.latencies)
	t.settled, t.dups, t.recalled, t.unheard, t.latencies = outbox.Settled{}, 0, 0, 0, t.latencies[:0]
	t.mu.Unlock()
	if s == (outbox.Settled{}) && dups == 0 {
		return
	}
	attrs := []any{"table", table, "published", s.Delivered, "failures", s.Retried + s.Dead}
	if len(lat) > 0 {
		slices.Sort(lat)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		attrs = append(attrs, "latency_p50_ms", ms(lat[len(lat)/2]), "latency_max_ms", ms(lat[len(lat)-1]))
	}
	for _, c := range []struct {
		name string
		n    int
	}{
		{"retried", s.Retried}, {"dead", s.Dead}, {"lost", s.Lost},
		{"duplicates_refused", dups}, {"settled_again", recalled}, {"without_subscriber", unheard},
	} {
		if c.n > 0 {
			attrs = append(attrs, c.name, c.n)
		}
	}
	level := slog.LevelInfo
	if s.Dead > 0 {
		level = slog.LevelWarn
	}
	log.Log(ctx, level, "relayed", attrs...)
}

// addSettled adds the counts of another settle to s.
func addSettled(s *outbox.Settled, o outbox.Settled) {
	s.Delivered += o.Delivered
	s.Retried += o.Retried
	s.Dead += o.Dead
	s.Lost += o.Lost
}
