package redispubsub

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/redisscript"
	"github.com/outboxrelay/outbox/internal/sink/rounds"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// large returns a delivery with so many bytes of payload.
func large(t testing.TB, channel string, key, size int) outbox.Delivery {
	d := event(t, channel, key)
	d.Payload = []byte(`"` + strings.Repeat("x", size-2) + `"`)
	return d
}

// One event that the server does not take fails alone, with its reason; later ones of its key wait,
// all others go out.
func TestLargeEvent(t *testing.T) {
	for _, tt := range []struct {
		name    string
		args    []string
		cluster bool
		size    int
		says    []string // one of them
	}{
		{"memory", []string{"--maxmemory", "24mb"}, false, 25 << 20, []string{"OOM"}},
		{"bulk length", []string{"--proto-max-bulk-len", "1mb"}, false, 2 << 20,
			[]string{"invalid bulk length", "broken pipe", "connection reset", "EOF"}},
		{"query buffer", []string{"--client-query-buffer-limit", "1mb"}, false, 2 << 20,
			[]string{"broken pipe", "connection reset", "EOF"}},
		{"bulk length in a Cluster", []string{"--proto-max-bulk-len", "1mb"}, true, 2 << 20,
			[]string{"invalid bulk length", "broken pipe", "connection reset", "EOF"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sink, admin := open(t, testenv.RedisServerWith(t, testenv.RedisConfig{Args: tt.args, Cluster: tt.cluster}), Config{})
			sub := subscribe(t, admin, "c")
			var batch []outbox.Delivery
			for i := range 600 {
				d := event(t, "c", i%50)
				if i == 100 {
					d = large(t, "c", 7, tt.size)
				}
				batch = append(batch, d)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			got := sink.Publish(ctx, batch)
			// On a slow machine a server that is well may answer the sink's question too late. A
			// relay then tries again, all in order.
			for ctx.Err() == nil && slices.ContainsFunc(got, func(r outbox.Result) bool { return sinktest.Unavailable(r.Err) }) {
				got = sink.Publish(ctx, batch)
			}
			sent := 0
			for i, res := range got {
				switch {
				case i == 100:
					wantBlamed(t, res, tt.says...)
				case i > 100 && batch[i].OrderKey == batch[100].OrderKey:
					if !errors.Is(res.Err, outbox.ErrNotAttempted) {
						t.Errorf("delivery %d, behind it, is answered %+v", i, res)
					}
				case res.Err != nil:
					t.Fatalf("delivery %d is answered %+v", i, res)
				default:
					sent++
				}
			}
			if arrived := len(sub.next("c")); arrived != sent || sent != 600-1-10 {
				t.Errorf("%d messages arrived of %d that were answered so, want 589", arrived, sent)
			}
		})
	}
}

func wantBlamed(t *testing.T, res outbox.Result, says ...string) {
	t.Helper()
	class, _ := outbox.Classify(res.Err)
	if res.Err == nil || class != outbox.ClassRetryable ||
		!strings.Contains(res.Err.Error(), "bytes of payload) sent alone") {
		t.Fatalf("answered %+v (class %d), want an error of its own", res, class)
	}
	if len(says) > 0 && !slices.ContainsFunc(says, func(s string) bool { return strings.Contains(res.Err.Error(), s) }) {
		t.Errorf("answered %v, want the reason, one of %q", res.Err, says)
	}
}

// How large a call the server takes is remembered for a while, and then tried again.
func TestCallSizeIsLearned(t *testing.T) {
	t.Parallel()
	var refused atomic.Int64
	proxy := sinktest.NewProxy(t, testenv.RedisServer(t).Addr(), func(total int, _ []byte) bool {
		if total > 1<<20 {
			refused.Add(1)
		}
		return total <= 1<<20
	})
	sink := openURL(t, "redis://"+proxy.Addr, Config{})
	send := func() {
		t.Helper()
		var batch []outbox.Delivery
		for i := range 300 {
			batch = append(batch, large(t, "c", i, 20_000))
		}
		deliver(t, sink, batch...)
	}
	send()
	learned := sink.Bytes.Get()
	if learned >= redisscript.MaxBytes || learned < 1<<18 {
		t.Errorf("a call may have %d bytes, want what the server takes", learned)
	}
	before := refused.Load()
	send()
	if again := refused.Load() - before; before == 0 || again != 0 {
		t.Errorf("%d calls were refused, and %d the second time, want none", before, again)
	}
	sink.Bytes.Since = time.Now().Add(-rounds.GrowAfter)
	if now := sink.Bytes.Get(); now != 2*learned {
		t.Errorf("a minute later a call may have %d bytes, want twice %d", now, learned)
	}
	send()
}

// What breaks the connection is found among a thousand whatever it is, and costs the next calls
// nothing.
func TestPoisonIsFound(t *testing.T) {
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	sub := subscribe(t, admin, "c")
	proxy := sinktest.NewProxy(t, server.Addr(),
		func(_ int, piece []byte) bool { return !bytes.Contains(piece, []byte("poison")) })
	sink := openURL(t, "redis://"+proxy.Addr, Config{})
	var batch []outbox.Delivery
	for i := range 1000 {
		d := event(t, "c", i)
		if i == 700 {
			d.Payload = []byte(`"poison"`)
		}
		batch = append(batch, d)
	}
	for i, res := range sink.Publish(t.Context(), batch) {
		if i == 700 {
			wantBlamed(t, res, "EOF", "connection reset", "broken pipe")
		} else if res.Err != nil {
			t.Fatalf("delivery %d is answered %+v", i, res)
		}
	}
	if arrived := len(sub.next("c")); arrived != 999 {
		t.Errorf("%d messages arrived, want 999", arrived)
	}
	if limit := sink.Bytes.Get(); limit != redisscript.MaxBytes {
		t.Errorf("calls are limited to %d bytes, but it was not for their size", limit)
	}
	// At its next attempt it is known.
	if got := sink.Publish(t.Context(), batch[700:701]); true {
		wantBlamed(t, got[0])
	}
}

// A delivery is not blamed for a connection that breaks now and then.
func TestFlakyConnection(t *testing.T) {
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	sub := subscribe(t, admin, "c")
	var cuts atomic.Int64
	proxy := sinktest.NewProxy(t, server.Addr(),
		func(total int, _ []byte) bool { return total < 50_000 || cuts.Add(-1) < 0 })
	sink := openURL(t, "redis://"+proxy.Addr, Config{
		Envelope: func(dst []byte, d *outbox.Delivery) []byte { return append(idEnvelope(dst, d), d.Payload...) },
	})
	cuts.Store(redisscript.MaxStrikes - 1)
	d := large(t, "c", 1, 100_000)
	deliver(t, sink, d)
	if got := sub.next("c"); len(got) != 1 || !strings.HasPrefix(got[0], d.ID.String()) {
		t.Errorf("%d messages arrived, want one", len(got))
	}
	if cuts.Load() >= 0 {
		t.Error("the connection was not cut")
	}
}

// What takes too long is blamed after several turns, and costs the others of each turn nothing.
func TestSlowEvent(t *testing.T) {
	server := testenv.RedisServer(t)
	var stuck atomic.Int64
	done := make(chan struct{})
	proxy := sinktest.NewProxy(t, server.Addr(), func(total int, _ []byte) bool {
		if total > 200_000 {
			stuck.Add(1)
			<-done
		}
		return true
	})
	sink := openURL(t, "redis://"+proxy.Addr, Config{})
	t.Cleanup(func() { close(done) })
	slow := large(t, "c", 1, 8<<20)
	for turn := 1; turn <= redisscript.MaxStrikes+1; turn++ {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		batch := []outbox.Delivery{slow, event(t, "c", 2), event(t, "c", 1), event(t, "c", 3)}
		got := sink.Publish(ctx, batch)
		cancel()
		if want := (outbox.Result{}); got[1] != want || got[3] != want || !errors.Is(got[2].Err, outbox.ErrNotAttempted) {
			t.Fatalf("turn %d: the others are answered %+v", turn, got[1:])
		}
		if turn < redisscript.MaxStrikes {
			wantUnavailable(t, got[0], "")
		} else {
			wantBlamed(t, got[0])
		}
	}
	if stuck.Load() != redisscript.MaxStrikes+1 {
		t.Errorf("it was tried %d times, want once a turn", stuck.Load())
	}
}

// A server that takes nothing is no event's fault, however long that lasts.
func TestNobodyIsBlamedForAnOutage(t *testing.T) {
	sink, admin := open(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	do(t, admin, "CONFIG", "SET", "maxmemory", "1")
	batch := []outbox.Delivery{event(t, "c", 1)}
	for range 3 * redisscript.MaxStrikes {
		wantUnavailable(t, sink.Publish(t.Context(), batch)[0], "OOM")
	}
	do(t, admin, "CONFIG", "SET", "maxmemory", "0")
	deliver(t, sink, batch...)
}

// Relays with different windows refuse each other's copies, at whatever moment the window is
// changed.
func TestWindowsDiffer(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	windows := []time.Duration{time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute, 10 * time.Minute, time.Hour,
		24 * time.Hour}
	for _, first := range windows {
		one := openURL(t, server.URL(), Config{Window: first})
		for _, second := range windows {
			other := openURL(t, server.URL(), Config{Window: second})
			batch := []outbox.Delivery{event(t, "c", 1), event(t, "c", 2)}
			deliver(t, one, batch...)
			t.Run(fmt.Sprint(first, " then ", second), func(t *testing.T) { wantCopies(t, other, batch...) })
		}
	}
	// Each set lives for as long as the longest window that uses it needs it.
	do(t, admin, "FLUSHALL")
	for _, window := range []time.Duration{3 * time.Minute, 5 * time.Minute, 3 * time.Minute} { // of one period
		d := event(t, "c", 1)
		d.Lane = 1
		deliver(t, openURL(t, server.URL(), Config{Window: window}), d)
		keys := admin.Keys(t.Context(), "*").Val()
		if left := admin.PTTL(t.Context(), keys[0]).Val(); len(keys) != 1 || window != 3*time.Minute &&
			left < 5*time.Minute-time.Second {
			t.Errorf("after a relay with %s the keys are %q, the first for %s", window, keys, left)
		}
	}
	keys := admin.Keys(t.Context(), "*").Val()
	if left := admin.PTTL(t.Context(), keys[0]).Val(); left < 5*time.Minute-10*time.Second {
		t.Errorf("a shorter window cut the set's life to %s", left)
	}
}

// Over the ends of periods a copy is refused for as long as the shorter of two windows, with one
// client's period or the other's.
func TestWindowsDifferOverTime(t *testing.T) {
	t.Parallel()
	const window = 600 * time.Millisecond
	server := testenv.RedisServer(t)
	short := openURL(t, server.URL(), Config{Window: window})
	long := openURL(t, server.URL(), Config{Window: 20 * window})
	short.Period, long.Period = 100, 100
	for _, pair := range [][2]*redisscript.Publisher{{short, long}, {long, short}} {
		batch := []outbox.Delivery{event(t, "c", 1)}
		since := time.Now() // the window begins at some time after it, by the server's clock
		deliver(t, pair[0], batch...)
		for ; ; time.Sleep(5 * time.Millisecond) {
			got := pair[1].Publish(t.Context(), batch)[0]
			if got.Err != nil {
				t.Fatal(got.Err)
			}
			if !got.Duplicate {
				if age := time.Since(since); age < window {
					t.Errorf("the copy passed after %s, the window is %s", age, window)
				}
				break
			}
			if time.Since(since) > 2*window {
				break // the longer one may remember for longer
			}
		}
	}
}

// Two outboxes with the same event ids on one Redis do not refuse each other's events.
func TestOrigin(t *testing.T) {
	sink, admin := open(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	sub := subscribe(t, admin, "c")
	mine := event(t, "c", 1)
	other, unknown := mine, mine
	mine.Origin, other.Origin = 1, 2
	batch := []outbox.Delivery{mine, other, unknown}
	deliver(t, sink, batch...)
	wantCopies(t, sink, batch...)
	sub.want("c", ids(batch...)...)
}
