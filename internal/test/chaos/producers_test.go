package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

// load is how the producers write.
type load struct {
	producers int // (4)
	perSecond int // events (400), while the database takes them
	keys      int // (50)
	payload   int // bytes (100)
	events    int // most of a transaction (5)
}

func (l load) withDefaults() load {
	for _, f := range []struct {
		field *int
		value int
	}{{&l.producers, 4}, {&l.perSecond, 400}, {&l.keys, 50}, {&l.payload, 100}, {&l.events, 5}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return l
}

// aggregates are the business data. Each transaction raises the version of one, and so holds its
// row until it ends: versions are the order of the commits, which is what a producer needs to know
// to have its events checked for order.
const aggregates = `CREATE TABLE aggregates (key text PRIMARY KEY, version bigint NOT NULL)`

// producers write events with the library, in transactions of which some are rolled back and some
// take their time, and record what became of them.
type producers struct {
	load
	pool   *pgxpool.Pool
	writer *postgres.Writer
	era    atomic.Int64 // raised where the versions of a database that was lost are given out again

	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	written []outboxtest.Written
	acked   int
}

func (p *producers) start(ctx context.Context, rng *rand.Rand) {
	ctx, p.stop = context.WithCancel(ctx)
	for range p.producers {
		own := rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64()))
		p.wg.Go(func() { p.produce(ctx, own) })
	}
}

func (p *producers) produce(ctx context.Context, rng *rand.Rand) {
	perTransaction := 0.9 * float64(1+p.events) / 2 // committed events on average, in nine of ten
	pace := time.Duration(float64(p.producers) * perTransaction / float64(p.perSecond) * float64(time.Second))
	for next := time.Now(); ctx.Err() == nil; next = next.Add(pace) {
		if late := time.Since(next); late > 0 {
			next = time.Now() // after an outage it does not catch up: the rate is the rate
		}
		time.Sleep(time.Until(next))
		p.transact(rng)
	}
}

var errChange = errors.New("a change of mind")

// transact is one transaction. It is not interrupted by the end of the test: its outcome would be
// unknown for no good reason.
func (p *producers) transact(rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	key := fmt.Sprintf("k%02d", rng.IntN(p.keys))
	events := make([]outbox.Event, 1+rng.IntN(p.events))
	for i := range events {
		e, err := outbox.NewEvent("order.changed", strings.Repeat("x", p.payload))
		if err != nil {
			panic(err) // a string always marshals
		}
		e.AggregateType, e.AggregateID = "Order", key
		events[i] = e
	}
	var version int64
	err := p.attempt(ctx, rng, key, events, &version)
	p.record(key, version, events, outcomeOf(err))
}

func (p *producers) attempt(
	ctx context.Context, rng *rand.Rand, key string, events []outbox.Event, version *int64,
) error {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return errors.Join(errBeforeCommit, err)
	}
	defer func() { _ = tx.Rollback(ctx) }() // after Commit it does nothing
	const change = `INSERT INTO aggregates AS a VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET version = a.version + $2 RETURNING version`
	if err := tx.QueryRow(ctx, change, key, len(events)).Scan(version); err != nil {
		return errors.Join(errBeforeCommit, err)
	}
	if err := p.writer.Write(ctx, tx, events...); err != nil {
		return errors.Join(errBeforeCommit, err)
	}
	switch fate := rng.IntN(20); {
	case fate < 2:
		return errors.Join(errBeforeCommit, errChange)
	case fate < 4:
		time.Sleep(time.Duration(rng.IntN(30)) * time.Millisecond) // those of other keys overtake it
	}
	return tx.Commit(ctx)
}

var errBeforeCommit = errors.New("COMMIT was not sent")

// outcomeOf tells what is known of a transaction from the error it ended with.
func outcomeOf(err error) outboxtest.Outcome {
	var answer *pgconn.PgError
	switch {
	case err == nil:
		return outboxtest.Acknowledged
	case errors.Is(err, errBeforeCommit), errors.Is(err, pgx.ErrTxCommitRollback):
		// Not where pgconn.SafeToRetry says so: through a pooler that was killed such a COMMIT had
		// been done (measured).
		return outboxtest.RolledBack
	case errors.As(err, &answer) && !strings.HasPrefix(answer.Code, "57P") && !strings.HasPrefix(answer.Code, "08"):
		return outboxtest.RolledBack // COMMIT failed, and not because the session or the server was being ended
	}
	return outboxtest.Unknown
}

func (p *producers) record(key string, version int64, events []outbox.Event, outcome outboxtest.Outcome) {
	now := time.Now()
	for i, e := range events {
		p.note(outboxtest.Written{ID: e.ID.String(), Key: key, Order: p.era.Load()<<40 + version - int64(len(events)-1-i),
			Outcome: outcome, At: now})
	}
}

func (p *producers) note(e outboxtest.Written) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = append(p.written, e)
	if e.Outcome == outboxtest.Acknowledged {
		p.acked++
	}
}

// acknowledged is how many events the database has taken so far.
func (p *producers) acknowledged() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.acked
}

// end stops the producers, and returns what they wrote.
func (p *producers) end() []outboxtest.Written {
	if p.stop != nil {
		p.stop()
	}
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.written
}
