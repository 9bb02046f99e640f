package sqlite

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// Relays give way to producers. Between processes SQLite has no queue. Who waits for the write lock
// sleeps and tries again, in plain SQL for up to 100 ms a time. Among relays that settle one after
// the other he finds it taken again and again. So at the beginning of each second of the machine's
// clock, which all of them share, no relay begins a transaction that could as well begin later. A
// breath is longer than the longest of SQLite's pauses, by what a transaction that began before it
// may last yet: whoever waits tries within it.
//
// A relay that is hardly ever at the lock need not: its settles would only come later.
const (
	breathEvery = time.Second
	breath      = 150 * time.Millisecond
	longest     = breathEvery * 3 / 5
	breathless  = breathEvery / 4
)

// turns is how much of the last second this process's relays held the write lock, or waited for it.
type turns struct {
	mu     sync.Mutex
	second int64
	spent  time.Duration
	held   time.Duration // the longest that one transaction held it
	breath time.Duration // at the beginning of this second; 0: none
}

// pause is how long a transaction of a relay has to wait yet.
func (t *turns) pause(now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	begun := time.Duration(now.UnixNano() % int64(breathEvery))
	return max(t.breath-begun, 0)
}

// add notes for how long one waited for the lock, and held it.
func (t *turns) add(now time.Time, waited, held time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn(now)
	t.spent += waited + held
	t.held = max(t.held, held)
}

// turn begins a new second.
func (t *turns) turn(now time.Time) {
	second := now.UnixNano() / int64(breathEvery)
	if second == t.second {
		return
	}
	if t.breath = 0; second == t.second+1 && t.spent >= breathless {
		t.breath = min(breath+t.held, longest)
	}
	t.second, t.spent, t.held = second, 0, 0
}

type givesWayKey struct{}

// givesWay tells whether a transaction that ctx is for lets producers go first.
func givesWay(ctx context.Context) bool { return ctx.Value(givesWayKey{}) != nil }

// inTurn is inTx for what a relay does all the time and nobody waits for.
func (d *DB) inTurn(ctx context.Context, fn func(*sql.Tx) error) error {
	if pause := d.turns.pause(time.Now()); pause > 0 && !backoff.Wait(ctx, pause) {
		return ctx.Err()
	}
	var began time.Time
	err := d.inTx(context.WithValue(ctx, givesWayKey{}, true), func(tx *sql.Tx) error {
		began = time.Now()
		return fn(tx)
	})
	if !began.IsZero() {
		d.turns.add(time.Now(), 0, time.Since(began))
	}
	return err
}
