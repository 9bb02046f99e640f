package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// roleGroup is a process of a group, which handles the events of a log in the database whose URL
// fileVariable has.
const roleGroup = "group"

// handled is an event's payload.
type handled struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

// handleLog is a process of a group. Its effect takes a moment, so that many are struck in theirs.
func handleLog(ctx context.Context, url string) error {
	db, err := postgres.Connect(ctx, url, postgres.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	g, err := group.New(db, postgres.Transactions(pool), group.Config{Name: "billing",
		Relay: relay.Config{LeaseTTL: 3 * time.Second}})
	if err != nil {
		return err
	}
	group.Handle(g, "order.placed", func(ctx context.Context, tx pgx.Tx, m group.Message[handled]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effects (key, n) VALUES ($1, $2)", m.Data.Key, m.Data.N); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", rand.Float64()*0.01)
		return err
	})
	return g.Run(ctx)
}

// Processes of a group are killed in turn, and others come in their place. Each effect is there
// once, and those of a key are in order.
func TestGroupKilled(t *testing.T) {
	t.Parallel()
	const name, keys = "group-killed", 20
	kills, rate := 4, 100
	if *long {
		kills, rate = 200, 1000
	}
	rng := choices(name)
	url := testenv.Prepared(t, "log", func(ctx context.Context, url string) error {
		return pgmigrations.Up(ctx, url, "core", "log")
	})
	pool, err := pgxpool.New(t.Context(), url)
	must(t, err)
	t.Cleanup(pool.Close)
	_, err = pool.Exec(t.Context(), "CREATE TABLE effects (at bigserial PRIMARY KEY, key text, n int)")
	must(t, err)
	var members [3]*process
	for i := range members {
		members[i] = member(t, roleGroup, url)
	}
	ctx, stop := context.WithCancel(t.Context())
	written := make(chan []int, 1)
	go func() { written <- order(ctx, t, pool, rate, keys) }()
	count := func() (n int) {
		must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM effects").Scan(&n))
		return n
	}
	for range kills {
		before := count()
		eventually(t, "effects", func() bool { return count() > before+rate/4 })
		time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond) // in the middle of whatever it does
		i := rng.IntN(len(members))
		members[i].kill(t)
		members[i] = member(t, roleGroup, url)
	}
	stop()
	wrote, all := <-written, 0
	for _, n := range wrote {
		all += n
	}
	eventually(t, "all effects", func() bool { return count() >= all })
	twice, unordered := 0, 0
	for key, n := range wrote {
		rows, err := pool.Query(t.Context(), "SELECT n FROM effects WHERE key = $1 ORDER BY at", fmt.Sprint(key))
		must(t, err)
		numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
		must(t, err)
		twice += len(numbers) - n
		if !slices.IsSorted(numbers) {
			unordered++
		}
	}
	letters := 0
	must(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM job_dlq").Scan(&letters))
	fmt.Printf("%-28s %d processes killed, %d events: %d effects twice, %d keys out of order, %d letters\n",
		name, kills, all, twice, unordered, letters)
	if twice != 0 || unordered != 0 || letters != 0 || all < kills*rate/4 {
		t.Errorf("%d effects twice, %d keys out of order, %d letters", twice, unordered, letters)
	}
}

// member starts a process of the group.
func member(t *testing.T, role, url string) *process {
	t.Helper()
	program, err := os.Executable()
	must(t, err)
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, fileVariable+"="+url)
	_, err = cmd.StdinPipe() // whose end tells it that the test has gone
	must(t, err)
	return start(t, cmd, nil)
}

// order writes events until ctx ends, and returns how many of each key.
func order(ctx context.Context, t *testing.T, pool *pgxpool.Pool, rate, keys int) []int {
	wrote := make([]int, keys)
	w, err := postgres.NewWriter(outbox.WriterConfig{Source: "shop", Table: outbox.OutboxLog().Table, Strict: true})
	must(t, err)
	tick := time.NewTicker(time.Second / time.Duration(rate/10))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return wrote
		case <-tick.C:
		}
		var events []outbox.Event
		for range 10 {
			key := rand.IntN(keys)
			e, err := outbox.NewEvent("order.placed", handled{fmt.Sprint(key), wrote[key]})
			must(t, err)
			e.AggregateType, e.AggregateID = "Order", fmt.Sprint(key)
			events = append(events, e)
			wrote[key]++
		}
		must(t, pgx.BeginFunc(context.WithoutCancel(ctx), pool, func(tx pgx.Tx) error {
			return w.Write(context.WithoutCancel(ctx), tx, events...)
		}))
	}
}
