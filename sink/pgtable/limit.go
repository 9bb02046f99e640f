package pgtable

import (
	"sync"
	"time"
)

// growAfter is after which time a transaction of twice as many rows is tried again.
const growAfter = time.Minute

// limit is how many rows a transaction may have: fewer after one that took too long, or a table with slow triggers
// would never get one done.
type limit struct {
	mu    sync.Mutex
	rows  int
	since time.Time // of the last change
}

func (l *limit) get() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rows < maxRows && time.Since(l.since) > growAfter {
		l.rows, l.since = min(2*l.rows, maxRows), time.Now()
	}
	return l.rows
}

// shrink keeps transactions below one of so many rows.
func (l *limit) shrink(rows int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rows, l.since = min(l.rows, max(1, rows/2)), time.Now()
}
