package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

var tenantFaults = []fault{
	{name: "tenants-missing-and-forged", strike: tenants},
}

// tenants has the producers of three applications share two connections of a role that row-level
// security binds. Some forget to say who they are, on a connection where another has just said it;
// some say they are one and write for another. Neither is let through, and none sees another's
// events.
func tenants(w *world) int {
	role := pgx.Identifier{"tenant " + uuid.NewString()}.Sanitize() // roles belong to the server, which the tests share
	w.exec("CREATE ROLE " + role + "; GRANT SELECT, INSERT ON event_outbox TO " + role)
	cfg := w.pool.Config()
	cfg.MaxConns = 2
	cfg.ConnConfig.RuntimeParams["role"] = role[1 : len(role)-1]
	pool, err := pgxpool.NewWithConfig(w.t.Context(), cfg)
	w.must(err)
	w.t.Cleanup(pool.Close)
	apps := make([]uuid.UUID, 3)
	for i := range apps {
		apps[i] = uuid.New()
		w.exec(`INSERT INTO apps (id, name, namespace) VALUES ($1, $2, $2)`, apps[i], fmt.Sprint("tenant", i))
	}
	w.relay(nil, "--table", "event_outbox")
	w.relay(nil, "--table", "event_outbox")
	var refused atomic.Int64
	var all sync.WaitGroup
	for n := range apps {
		p := &tenant{world: w, apps: apps, mine: n, rng: rand.New(rand.NewPCG(w.rng.Uint64(), uint64(n)))}
		all.Go(func() {
			for order := range int64(300) {
				if err := p.offer(pool, order, &refused); err != nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	w.eventually("everything is published", `SELECT count(*) = 0 FROM event_outbox WHERE status <> 'published'`)
	return int(refused.Load())
}

type tenant struct {
	*world
	apps []uuid.UUID
	mine int
	rng  *rand.Rand
}

// offer is one transaction. Of ten, one names no tenant and one writes for another.
func (p *tenant) offer(pool *pgxpool.Pool, order int64, refused *atomic.Int64) error {
	bus := postgres.NewEventBus(0)
	fate, owner := p.rng.IntN(10), p.apps[p.mine]
	if fate == 1 {
		owner = p.apps[(p.mine+1)%len(p.apps)]
	}
	e := eventbus.Event{AppID: owner, EventID: uuid.New(), EventType: "bus.offered", Payload: []byte(`{}`),
		Key: fmt.Sprint("tenant", p.mine)}
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if fate > 0 {
			if err := postgres.SetTenant(ctx, tx, p.apps[p.mine]); err != nil {
				return err
			}
		}
		var others int
		if err := tx.QueryRow(ctx, `SELECT count(*) FROM event_outbox WHERE app_id <> $1 OR $2`, p.apps[p.mine],
			fate == 0).Scan(&others); err != nil {
			return err
		}
		if others > 0 {
			return fmt.Errorf("tenant %d sees %d events that it must not see", p.mine, others)
		}
		return bus.Offer(ctx, tx, e)
	})
	written := outboxtest.Written{ID: e.EventID.String(), Key: e.Key, Order: order, At: time.Now()}
	var denied *pgconn.PgError
	switch {
	case fate > 1 && err != nil:
		return err
	case fate > 1:
	case errors.As(err, &denied) && denied.Code == "42501":
		refused.Add(1)
		written.Outcome = outboxtest.RolledBack
	default:
		return fmt.Errorf("a missing or forged tenant: got %w, want it refused", err)
	}
	p.note(written)
	return nil
}
