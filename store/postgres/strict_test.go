package postgres_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres"
)

// Eight writers, three keys, commits delayed at random: for every key, positions must be in the
// order of the commits. That order is observed by a counter per key, raised between the write and
// the commit: its row lock is held until the commit too.
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

// Whoever may connect can take the lock of a key and keep it. A business transaction does not wait
// for ever: for as long as its own lock_timeout says, or 30 s. What it had set is set again after
// the Write.
func TestStrictWaitsForNoStrangerForEver(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := newDatabase(t)
	pool := newPool(t, url)
	stranger := "stranger_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	_, err := pool.Exec(t.Context(), "CREATE ROLE "+stranger+" LOGIN")
	ok(t, err)
	t.Cleanup(func() { _, _ = pool.Exec(context.Background(), "DROP ROLE "+stranger) })
	config, err := pgx.ParseConfig(url)
	ok(t, err)
	config.User = stranger
	conn, err := pgx.ConnectConfig(t.Context(), config)
	ok(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_lock(1869968482, hashtext('default' || E'\x1f' || 'Order' || E'\x1f' || '42'))`)
	ok(t, err)

	w, err := postgres.NewWriter(outbox.WriterConfig{Strict: true})
	ok(t, err)
	write := func(key, timeout string) (err error) {
		tx, err := pool.Begin(t.Context())
		ok(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SELECT set_config('lock_timeout', $1, true)", timeout)
		ok(t, err)
		e := event("strict")
		e.AggregateType, e.AggregateID = "Order", key
		if err := w.Write(t.Context(), tx, e); err != nil {
			return err
		}
		var left string
		ok(t, tx.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&left))
		if left != timeout {
			t.Errorf("lock_timeout is %s after a Write, was %s", left, timeout)
		}
		return tx.Commit(t.Context())
	}
	for _, timeout := range []string{"0", "7s", "2h"} {
		ok(t, write("43", timeout))
	}
	for _, timeout := range []string{"200ms", "0"} {
		err := write("42", timeout)
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "55P03" || !strings.Contains(err.Error(), "FROM pg_locks") {
			t.Errorf("lock_timeout %s: %v", timeout, err)
		}
	}
	given := make(chan error, 1)
	go func() {
		waits := `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = current_database()`
		for one[int](t, pool, waits) == 0 && t.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		given <- conn.Close(t.Context())
	}()
	ok(t, write("42", "7s"))
	ok(t, <-given)
	ok(t, write("42", "0"))
}
