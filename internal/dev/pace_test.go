package dev

import (
	"testing"
	"time"
)

// A week in which somebody looks every other second.
func TestPace(t *testing.T) {
	t.Parallel()
	var p Pace
	begin := time.Now()
	begun := func(from, to time.Duration) (n int) {
		for at := from; at < to; at += 2 * time.Second {
			if now := begin.Add(at); p.Due(now) {
				p.Begun(now)
				n++
			}
		}
		return n
	}
	if n := begun(0, time.Minute); n != 10 {
		t.Errorf("%d runs in the first minute", n)
	}
	if n := begun(time.Minute, 7*24*time.Hour); n < 335 || n > 337 {
		t.Errorf("%d runs in the week", n)
	}
}
