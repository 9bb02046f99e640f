package postgres_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres"
)

// Eight writers, three keys, commits delayed at random: for every key, positions must be in the order of the commits.
// That order is observed by a counter per key, raised between the write and the commit: its row lock is held until the
// commit too.
func TestStrictPositionsAreInCommitOrder(t *testing.T) {
	const writers, rounds = 8, 25
	keys := []string{"a", "b", "c"}
	pool := newPool(t, newDatabase(t))
	_, err := pool.Exec(t.Context(), "CREATE TABLE counters AS SELECT k, 0 AS n FROM unnest($1::text[]) AS k", keys)
	ok(t, err)
	w, err := postgres.NewWriter(outbox.WriterConfig{Strict: true})
	ok(t, err)

	write := func(r *rand.Rand) error {
		// One key, or two in a random order, which one call must sort to avoid a deadlock.
		mine := []string{keys[r.IntN(3)]}
		if other := keys[r.IntN(3)]; other != mine[0] && r.IntN(3) == 0 {
			mine = append(mine, other)
		}
		tx, err := pool.Begin(t.Context())
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(t.Context()) }()
		time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
		var events []outbox.Event
		for _, k := range mine {
			e := event("strict")
			e.AggregateID = k
			events = append(events, e)
		}
		if err := w.Write(t.Context(), tx, events...); err != nil {
			return err
		}
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
		if r.IntN(8) == 0 {
			return nil // rolled back
		}
		for _, e := range events {
			_, err := tx.Exec(t.Context(), `
				WITH c AS (UPDATE counters SET n = n + 1 WHERE k = $1 RETURNING n)
				UPDATE outbox_events SET metadata = jsonb_build_object('commit', c.n) FROM c WHERE id = $2`, e.AggregateID, e.ID)
			if err != nil {
				return err
			}
		}
		return tx.Commit(t.Context())
	}
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range rounds {
				if err := write(r); err != nil {
					t.Errorf("writer %d: %v", i, err)
					return
				}
			}
		})
	}
	group.Wait()
	rows, err := pool.Query(t.Context(), `
		SELECT format('key %s: position %s was committed as number %s', aggregate_id, nth, number)
		  FROM (SELECT aggregate_id, row_number() OVER (PARTITION BY aggregate_id ORDER BY position) AS nth, (metadata ->> 'commit')::int AS number
		          FROM outbox_events) e
		 WHERE nth <> number`)
	ok(t, err)
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(t, err)
	for _, line := range wrong {
		t.Error(line)
	}
	if n := one[int](t, pool, "SELECT count(*) FROM outbox_events"); n < writers*rounds*3/4 {
		t.Errorf("only %d events: the test did not test", n)
	}
	if locks := one[int](t, pool, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"); locks != 0 {
		t.Errorf("%d advisory locks left behind", locks)
	}
}
