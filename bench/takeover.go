package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// takeover measures how long the keys of a relay that was killed stand still: real processes, two for each of several
// databases, each half of the lanes. At the moment of the kill an event is written for every one of 640 keys; what
// counts is when the last of them arrives.
func takeover(ctx context.Context, s *servers, o options) error {
	binary, remove, err := buildCommand(ctx)
	if err != nil {
		return err
	}
	defer remove()
	const databases, rounds = 8, 5
	arrivals := &lastArrival{at: map[string]time.Time{}, count: map[string]int{}}
	handle := arrivals.note
	s.subscriber.handle.Store(&handle)
	defer s.subscriber.handle.Store(nil)

	var kills, stops []time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	errs := make([]error, databases)
	for i := range databases {
		wg.Go(func() {
			t := takeoverIn{servers: s, binary: binary, name: fmt.Sprintf("takeover%d", i), arrivals: arrivals}
			errs[i] = t.run(ctx, rounds, func(signal syscall.Signal, took time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				if signal == syscall.SIGKILL {
					kills = append(kills, took)
				} else {
					stops = append(stops, took)
				}
			})
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	for _, c := range []struct {
		what  string
		took  []time.Duration
		limit string
	}{{"SIGKILL", kills, "12 s"}, {"SIGTERM", stops, "1 s"}} {
		slices.Sort(c.took)
		fmt.Printf("%s of one of two relays, lease of 10 s, %d times: until the last key is served again p50 %.2f s, p99 "+
			"%.2f s, max %.2f s  (wanted: %s)\n",
			c.what, len(c.took), percentile(c.took, 0.5).Seconds(), percentile(c.took, 0.99).Seconds(),
			c.took[len(c.took)-1].Seconds(), c.limit)
	}
	return nil
}

// buildCommand builds the command into a directory of its own.
func buildCommand(ctx context.Context) (binary string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "outbox-bench-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	binary = filepath.Join(dir, "outbox")
	if out, err := exec.CommandContext(ctx, "go", "build", "-C", "..", "-o", binary,
		"./cmd/outbox").CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	return binary, remove, nil
}

// lastArrival knows, by the source that events name, how many arrived and when the last one did.
type lastArrival struct {
	mu    sync.Mutex
	at    map[string]time.Time
	count map[string]int
}

func (l *lastArrival) note(_, payload []byte, at time.Time) {
	var event struct {
		Source string `json:"source"`
	}
	if json.Unmarshal(payload, &event) != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[event.Source], l.count[event.Source] = at, l.count[event.Source]+1
}

type takeoverIn struct {
	*servers
	binary, name string
	arrivals     *lastArrival
	pool         *pgxpool.Pool
}

func (t *takeoverIn) run(ctx context.Context, rounds int, report func(syscall.Signal, time.Duration)) error {
	if err := t.exec(ctx, "CREATE DATABASE "+t.name); err != nil {
		return err
	}
	url := t.postgres.URL(t.name)
	if err := migrations.Up(ctx, url, "core"); err != nil {
		return err
	}
	var err error
	if t.pool, err = pgxpool.New(ctx, url); err != nil {
		return err
	}
	defer t.pool.Close()
	start := func() (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, t.binary, "relay", "--database", url, "--sink", t.redis.URL(), "--table",
			"outbox_events", "--log-level", "error")
		cmd.Stderr = os.Stderr
		return cmd, cmd.Start()
	}
	survivor, err := start()
	if err != nil {
		return err
	}
	for round := range rounds {
		victim, err := start()
		if err != nil {
			return err
		}
		if err := t.shared(ctx); err != nil {
			return err
		}
		signal := syscall.SIGKILL
		if round == rounds-1 {
			signal = syscall.SIGTERM
		}
		took, err := t.strike(ctx, victim, signal, fmt.Sprintf("%s-%d", t.name, round))
		if err != nil {
			return err
		}
		report(signal, took)
	}
	if err := survivor.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return survivor.Wait()
}

// shared waits until two relays hold half of the lanes each.
func (t *takeoverIn) shared(ctx context.Context) error {
	for {
		var even bool
		if err := t.pool.QueryRow(ctx,
			"SELECT count(*) = 2 AND min(n) = 32 FROM (SELECT count(*) AS n FROM outbox_lanes WHERE owner IS NOT NULL AND "+
				"expires_at > now() GROUP BY owner) o").Scan(&even); err != nil {
			return err
		}
		if even {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (t *takeoverIn) strike(
	ctx context.Context, victim *exec.Cmd, signal syscall.Signal, source string,
) (time.Duration, error) {
	const keys = 640
	struck := time.Now()
	if err := victim.Process.Signal(signal); err != nil {
		return 0, err
	}
	if _, err := t.pool.Exec(ctx, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_id, source_bc, payload)
		SELECT 'e', now(), $1 || i, $1, '{}' FROM generate_series(1, $2::int) i`, source, keys); err != nil {
		return 0, err
	}
	if err := victim.Wait(); err != nil && !strings.Contains(err.Error(), "killed") {
		return 0, err
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		t.arrivals.mu.Lock()
		n, at := t.arrivals.count[source], t.arrivals.at[source]
		t.arrivals.mu.Unlock()
		if n >= keys {
			return at.Sub(struck), nil
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("%d of %d keys were served in a minute", n, keys)
		}
	}
}
