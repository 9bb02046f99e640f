package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/relay"
)

// lifeline is the way of a relay to its database, which can be cut for good: for the database and
// the sink the relay is then as dead as after SIGKILL.
type lifeline struct {
	mu    sync.Mutex
	conns []net.Conn
	cut   bool
}

func (w *lifeline) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if w.dead() {
		return nil, errors.New("the line is cut")
	}
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
	if w.cut {
		_ = c.Close()
	}
	return c, nil
}

func (w *lifeline) dead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.cut
}

func (w *lifeline) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// Transactions of all lengths commit and roll back, at random; relays come, go and die. The sink
// refuses copies.
func TestLogKeepsItsPromise(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	var history outboxtest.History
	arrived, copies := map[string]bool{}, 0
	sinkOf := func(w *lifeline) outbox.SinkFunc {
		return func(_ context.Context, d outbox.Delivery) error {
			if w.dead() {
				return errDown
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			switch {
			case arrived[d.ID.String()]:
				copies++
				return nil
			case rand.IntN(500) == 0:
				return errors.New("refused this time")
			}
			arrived[d.ID.String()] = true
			history.Received = append(history.Received, outboxtest.Received{ID: d.ID.String(), Key: d.AggregateID})
			return nil
		}
	}
	start := func() (w *lifeline, stop func()) {
		w = new(lifeline)
		pool := newPool(t, l.pool.Config().ConnString(), func(c *pgxpool.Config) {
			c.ConnConfig.DialFunc = w.dial
		})
		return w, l.relayBy(pool, sinkOf(w), w.dead, func(c *relay.Config) {
			c.BatchRecords, c.DrainTimeout = 50, 5*time.Second
			c.Tables[0].Retention = outbox.Retention{After: time.Second, Every: 100 * time.Millisecond, Archive: "none"}
		})
	}
	ctx, enough := context.WithTimeout(t.Context(), 8*time.Second)
	defer enough()
	var writers sync.WaitGroup
	rolledBack := 0
	for n := range 12 {
		writers.Go(func() {
			key := fmt.Sprint("key", n)
			for i := 0; ctx.Err() == nil; i++ {
				var events []outbox.Event
				for range 1 + rand.IntN(4) {
					events = append(events, keyed(key, i))
				}
				tx, err := l.pool.Begin(t.Context())
				if err == nil {
					err = l.writer.Write(t.Context(), tx, events...)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if rand.IntN(3) == 0 {
					time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond)
				}
				outcome := outboxtest.Acknowledged
				if rand.IntN(5) == 0 {
					outcome, err = outboxtest.RolledBack, tx.Rollback(t.Context())
				} else {
					err = tx.Commit(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
				l.mu.Lock()
				for _, e := range events {
					history.Written = append(history.Written,
						outboxtest.Written{ID: e.ID.String(), Key: key, Order: int64(i), Outcome: outcome})
				}
				if outcome == outboxtest.RolledBack {
					rolledBack += len(events)
				}
				l.mu.Unlock()
			}
		})
	}
	first, _ := start()
	_, stopSecond := start()
	time.Sleep(2 * time.Second)
	first.kill()
	_, _ = start()
	time.Sleep(2 * time.Second)
	stopSecond()
	second, _ := start()
	time.Sleep(time.Second)
	second.kill()
	writers.Wait()
	_, _ = start()
	acknowledged := 0
	for _, w := range history.Written {
		if w.Outcome == outboxtest.Acknowledged {
			acknowledged++
		}
	}
	eventually(t, "all arrive", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(arrived)+deadLetters(t, l.pool) >= acknowledged
	})
	l.mu.Lock()
	report := outboxtest.Check(history)
	t.Logf("%d written, %d rolled back, %d copies refused", len(history.Written), rolledBack, copies)
	l.mu.Unlock()
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if rolledBack == 0 || acknowledged < 500 {
		t.Errorf("the test has not met its faults: %d acknowledged, %d rolled back", acknowledged, rolledBack)
	}
	l.unchanged(rolledBack)
}

func deadLetters(t *testing.T, pool *pgxpool.Pool) int {
	return one[int](t, pool, "SELECT count(*) FROM job_dlq")
}
