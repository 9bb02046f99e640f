package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrTwoLibraries is the answer to a transaction of another copy of SQLite than this package's, on
// a file that this process has open as a DB. The system's locks on a file belong to the process:
// two copies in it undo each other's, and the file is damaged (sqlite.org/howtocorrupt.html, 2.2.1;
// measured: malformed after 800 commits).
var ErrTwoLibraries = errors.New("this process has the file open through two SQLite libraries, which would " +
	"damage it: " +
	"take the transaction from sql.Open(\"sqlite\", sqlite.Source(path)) or the DB, or run the relay as a process " +
	"of its own")

// opened are the DBs of this process. NewWriter, which knows no DB, has to ask whose file a
// transaction writes to.
var opened struct {
	mu    sync.Mutex
	all   map[*DB]string // the library of each
	count atomic.Int64   // of all that were ever opened
}

// enroll notes d among the opened.
func (d *DB) enroll(ctx context.Context) error {
	text, err := plain("library")
	if err != nil {
		return err
	}
	var library, file string
	if err := d.write.QueryRowContext(ctx, text).Scan(&library, &file); err != nil {
		return fmt.Errorf("ask for library: %w", explain(err))
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if opened.all == nil {
		opened.all = map[*DB]string{}
	}
	opened.all[d] = library
	opened.count.Add(1)
	return nil
}

func (d *DB) discharge() {
	opened.mu.Lock()
	defer opened.mu.Unlock()
	delete(opened.all, d)
}
