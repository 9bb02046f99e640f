package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// arrivals is what the subscriber has got of messages that are numbered from 1, "n" in their JSON.
// The key of number n is n modulo keys, so the numbers of a key rise in the order in which they
// were written.
type arrivals struct {
	mu                 sync.Mutex
	at                 []time.Time // when a number came first
	latest             []int       // the highest number of a key so far
	distinct           int
	copies, inversions int
	all                chan struct{} // closed once every number has come
}

func newArrivals(numbers, keys int) *arrivals {
	return &arrivals{at: make([]time.Time, numbers+1), latest: make([]int, keys), all: make(chan struct{})}
}

func (a *arrivals) note(_, payload []byte, at time.Time) {
	n := number(payload)
	if n < 1 || n >= len(a.at) {
		return // another's
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.at[n].IsZero() {
		a.copies++
		return
	}
	a.at[n] = at
	if key := n % len(a.latest); n < a.latest[key] {
		a.inversions++
	} else {
		a.latest[key] = n
	}
	if a.distinct++; a.distinct == len(a.at)-1 {
		close(a.all)
	}
}

// number returns n of {…"n": 12…}, whatever is around it, and 0 if there is none. Decoding the
// whole would be most of the subscriber's work.
func number(payload []byte) int {
	_, rest, found := bytes.Cut(payload, []byte(`"n"`))
	if !found {
		return 0
	}
	n := 0
	for _, c := range bytes.TrimLeft(rest, " :") {
		if c < '0' || c > '9' {
			return n
		}
		n = 10*n + int(c-'0')
	}
	return 0
}

// wait returns nil once all have come. It gives up after limit, and when the process that delivers
// them has ended.
func (a *arrivals) wait(ctx context.Context, limit time.Duration, from *child) error {
	var ended chan struct{}
	if from != nil {
		ended = from.ended
	}
	select {
	case <-a.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return fmt.Errorf("the process that delivers has ended: %w", cmp.Or(from.err, errors.New("exit status 0")))
	case <-time.After(limit):
		return nil
	}
}

// last returns when the last one came.
func (a *arrivals) last() (at time.Time) {
	for _, t := range a.at {
		if t.After(at) {
			at = t
		}
	}
	return at
}
