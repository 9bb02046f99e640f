package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// roleStormGroup is a process of a group whose handlers fail in every way.
const roleStormGroup = "storm-group"

// failing is the payload of an event whose handler fails in the way that How names.
type failing struct {
	N   int    `json:"n"`
	How string `json:"how"`
}

// fatal maps each way to fail to whether its event must become a dead letter. The other ways fail
// once, and the second attempt has the effect.
var fatal = map[string]bool{
	"error": false, "panic": false, "goexit": false, "retry-after": false, "times-out": false, "hangs": false,
	"foreign-deadline": false,
	"permanent":        true, "failed-statement-ignored": true, "rolled-back": true, "committed-nothing": true,
}

// fail makes the handler of an event fail.
func fail(ctx context.Context, tx pgx.Tx, m group.Message[failing]) error {
	switch m.Data.How {
	case "permanent":
		return outbox.Permanent(errors.New("the event cannot be handled"))
	case "failed-statement-ignored":
		_, _ = tx.Exec(ctx, "INSERT INTO effects (key, n) VALUES (NULL, 'no number')")
		return nil
	case "rolled-back":
		return tx.Rollback(ctx)
	case "committed-nothing":
		_, _ = tx.Exec(ctx, "ROLLBACK")
		return nil
	}
	if m.Attempt > 1 {
		return nil
	}
	switch m.Data.How {
	case "error":
		return errors.New("the handler failed")
	case "panic":
		panic("the handler panicked")
	case "goexit":
		runtime.Goexit()
	case "retry-after":
		return outbox.RetryAfter(errors.New("the handler asks for a pause"), 100*time.Millisecond)
	case "times-out":
		<-ctx.Done()
		return ctx.Err()
	case "hangs": // beyond its timeout and the grace after it
		time.Sleep(5 * time.Second)
	case "foreign-deadline":
		return fmt.Errorf("call another service: %w", context.DeadlineExceeded)
	}
	return nil
}

// handleStorm is the life of a process of the group.
func handleStorm(ctx context.Context, url string) error {
	db, err := postgres.Connect(ctx, url, postgres.Config{})
	if err != nil {
		return err
	}
	defer db.Close()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	backoff := relay.Backoff{Base: 50 * time.Millisecond, Cap: 200 * time.Millisecond}
	g, err := group.New(db, postgres.Transactions(pool), group.Config{Name: "billing", Table: tabletest.Legacy(),
		Timeout: 500 * time.Millisecond, MaxAttempts: 4, Backoff: backoff,
		Relay: relay.Config{LeaseTTL: ttl}})
	if err != nil {
		return err
	}
	group.Handle(g, "order.placed", func(ctx context.Context, tx pgx.Tx, m group.Message[failing]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effects (key, n) VALUES ($1, $2)", m.AggregateID, m.Data.N); err != nil {
			return err
		}
		return fail(ctx, tx, m)
	})
	return g.Run(ctx)
}

// A group whose handlers fail in every way and a relay serve one table each of the same database,
// while processes of both are killed. Every event has its effect once or is a dead letter, effects
// of a key are in order, the relay's events arrive, and no key is blocked at the end.
func TestGroupFailsInEveryWay(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const name, keys = "group-fails-in-every-way", 30
	kills, rate := 8, 60
	if *long {
		kills, rate = 60, 200
	}
	w := newWorld(t, fault{name: name})
	w.exec("CREATE TABLE effects (at bigserial PRIMARY KEY, key text NOT NULL, n int NOT NULL)")
	w.exec(`CREATE TABLE legacy (n bigserial PRIMARY KEY, uid uuid NOT NULL, kind text, body json, customer text,
		region text, goes jsonb, version int, done_at timestamptz, tries int, due timestamptz, problem text)`)
	members := make([]*process, 3)
	for i := range members {
		members[i] = member(t, roleStormGroup, w.relayDatabase)
	}
	w.underway(10)

	ctx, stop := context.WithCancel(t.Context())
	type row struct {
		key string
		n   int
		how string
	}
	written := make(chan []row, 1)
	go func() { // ends with ctx
		var rows []row
		defer func() { written <- rows }()
		ways := slices.Sorted(maps.Keys(fatal))
		for n := 0; ctx.Err() == nil; n++ {
			r := row{key: fmt.Sprint(rand.IntN(keys)), n: n}
			if rand.IntN(8) == 0 {
				r.how = ways[rand.IntN(len(ways))]
			}
			_, err := w.pool.Exec(context.WithoutCancel(ctx),
				`INSERT INTO legacy (uid, kind, body, customer) VALUES (gen_random_uuid(), 'order.placed', $1, $2)`,
				fmt.Sprintf(`{"n": %d, "how": %q}`, r.n, r.how), r.key)
			if err != nil {
				t.Error(err)
				return
			}
			rows = append(rows, r)
			time.Sleep(time.Second / time.Duration(rate))
		}
	}()
	effects := func() int { return w.number("SELECT count(*) FROM effects") }
	for kill := range kills {
		before := effects()
		eventually(t, "effects", func() bool { return effects() > before+rate/4 })
		w.pause(0, 300*time.Millisecond)
		if kill%4 == 3 {
			w.relays[len(w.relays)-1].kill(t)
			w.relay(nil)
			continue
		}
		i := w.rng.IntN(len(members))
		members[i].kill(t)
		members[i] = member(t, roleStormGroup, w.relayDatabase)
	}
	stop()
	rows := <-written
	sent := w.end()
	eventually(t, "no key of the group is blocked", func() bool {
		return w.number("SELECT count(*) FROM legacy WHERE done_at IS NULL") == 0
	})
	w.eventually("the relay has delivered everything", "SELECT count(*) = 0 FROM outbox_events WHERE status <> 'SENT'")

	want, deaths := map[string][]int{}, 0
	for _, r := range rows {
		if fatal[r.how] {
			deaths++
		} else {
			want[r.key] = append(want[r.key], r.n)
		}
	}
	handled := 0
	for key, numbers := range want {
		found, err := w.pool.Query(t.Context(), "SELECT n FROM effects WHERE key = $1 ORDER BY at", key)
		must(t, err)
		got, err := pgx.CollectRows(found, pgx.RowTo[int])
		must(t, err)
		if handled += len(got); !slices.Equal(got, numbers) {
			t.Errorf("key %s has the effects %v, want %v", key, got, numbers)
		}
	}
	if dead := w.number("SELECT count(*) FROM job_dlq WHERE outbox_table = 'legacy'"); dead != deaths || deaths == 0 {
		t.Errorf("%d dead letters, want %d and at least one", dead, deaths)
	}
	report := outboxtest.Check(outboxtest.History{Written: sent, Received: w.received()})
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	line(t, name, kills, w.began, "events %d  effects %d  dead letters %d  of the relay %d", len(rows), handled, deaths,
		len(sent))
}
