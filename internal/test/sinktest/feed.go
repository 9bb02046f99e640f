package sinktest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// Feed publishes events of some keys as a relay does: what failed is published again, from the
// first of its key on.
type Feed struct {
	Unavailable, Duplicates int // answers

	sink outbox.Sink
	left [][]outbox.Delivery // of each key
	keys [][]string          // ids of each key
}

// NewFeed makes the events.
func NewFeed(t testing.TB, s outbox.Sink, destination string, keys, events int) *Feed {
	t.Helper()
	f := &Feed{sink: s}
	for key := range keys {
		var all []outbox.Delivery
		for range events {
			all = append(all, Event(t, destination, key))
		}
		f.left, f.keys = append(f.left, all), append(f.keys, IDs(all...))
	}
	return f
}

// Turn publishes up to three events of each key, and tells whether something is left.
func (f *Feed) Turn(t testing.TB) bool {
	t.Helper()
	var batch []outbox.Delivery
	var of []int
	for round := range 3 {
		for key, left := range f.left {
			if round < len(left) {
				batch, of = append(batch, left[round]), append(of, key)
			}
		}
	}
	if len(batch) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	failed := map[int]bool{}
	for i, res := range f.sink.Publish(ctx, batch) {
		class, _ := outbox.Classify(res.Err)
		switch {
		case res.Err == nil && failed[of[i]]:
			t.Errorf("key %d: an event went out behind a failed one", of[i])
		case res.Err == nil:
			f.left[of[i]] = f.left[of[i]][1:]
			if res.Duplicate {
				f.Duplicates++
			}
		case class == outbox.ClassUnavailable || class == outbox.ClassNotAttempted:
			failed[of[i]] = true
			f.Unavailable++
		default:
			t.Fatalf("answered %+v", res)
		}
	}
	if len(failed) > 0 {
		time.Sleep(5 * time.Millisecond) // as a breaker does
	}
	return true
}

// Check wants each event stored once, in the order of its key. Stored returns the ids of what is,
// once that is n.
func (f *Feed) Check(t testing.TB, stored func(n int) []string) {
	t.Helper()
	n := 0
	of := map[string]int{}
	for key, ids := range f.keys {
		n += len(ids)
		for _, id := range ids {
			of[id] = key
		}
	}
	all := stored(n)
	got := make([][]string, len(f.keys))
	for _, id := range all {
		got[of[id]] = append(got[of[id]], id)
	}
	for key, want := range f.keys {
		if !slices.Equal(got[key], want) {
			t.Errorf("key %d: %d are stored, want these %d in order", key, len(got[key]), len(want))
		}
	}
	if len(all) != n {
		t.Errorf("%d are stored, want %d", len(all), n)
	}
}

// Killed publishes while the server is killed and started again, up to five times.
func Killed(t *testing.T, s outbox.Sink, destination string, restart func() error, stored func(n int) []string) {
	t.Helper()
	f := NewFeed(t, s, destination, 20, 300)
	stop := make(chan struct{})
	var killing sync.WaitGroup
	var kills atomic.Int64
	killing.Go(func() {
		for kills.Load() < 5 {
			select {
			case <-stop:
				return
			case <-time.After(40 * time.Millisecond): // into whatever is under way
			}
			if err := restart(); err != nil {
				t.Error(err)
				return
			}
			kills.Add(1)
		}
	})
	for f.Turn(t) {
	}
	close(stop)
	killing.Wait()
	t.Logf("%d kills, %d answers of a server that was away, %d copies refused", kills.Load(), f.Unavailable,
		f.Duplicates)
	if kills.Load() == 0 || f.Unavailable == 0 {
		t.Errorf("%d kills made %d events wait: the fault did not strike", kills.Load(), f.Unavailable)
	}
	f.Check(t, stored)
}
