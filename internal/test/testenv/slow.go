package testenv

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
)

// Slow measures how slow the machine is while a test waits for what was promised within a time. The
// zero value is ready for use.
//
// What is measured is how many processes want a processor for each that there is: beside others a
// program takes so many times as long. It is 1 where the system does not tell. A sample counts for
// the time since the one before it: they are the fewest where the machine is at its slowest.
type Slow struct {
	mu    sync.Mutex
	last  time.Time
	sum   float64 // of seconds, each as many times as processes wanted a processor
	whole float64 // seconds
}

// Look takes a sample. It is to be called again and again during the wait.
func (s *Slow) Look() {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return
	}
	var running, all int
	var load [3]float64
	if n, err := fmt.Sscanf(string(text), "%f %f %f %d/%d", &load[0], &load[1], &load[2], &running, &all); err != nil ||
		n != 5 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Millisecond.Seconds()
	if !s.last.IsZero() {
		since = max(since, time.Since(s.last).Seconds())
	}
	s.last = time.Now()
	s.sum += since * max(1, float64(running)/float64(runtime.NumCPU()))
	s.whole += since
}

// Stretch is what became of a time on this machine.
func (s *Slow) Stretch(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole == 0 {
		return d
	}
	return time.Duration(float64(d) * s.sum / s.whole)
}

// Shrink is what a time would have been on a machine that nobody else uses.
func (s *Slow) Shrink(d time.Duration) time.Duration {
	return time.Duration(float64(d) * float64(d) / float64(s.Stretch(d)))
}
