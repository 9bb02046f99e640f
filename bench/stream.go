package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/pgstore"
	"github.com/outboxrelay/outbox/store/postgres"
)

// streams measures `outbox serve`, a process of its own, from outside: what a browser would see.
func streams(ctx context.Context, s *servers, o options) error {
	binary, remove, err := buildCommand(ctx)
	if err != nil {
		return err
	}
	defer remove()
	var files syscall.Rlimit // each connection is one, here and there
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	files.Cur = files.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return err
	}
	runs, err := pgstore.OpenRuns(ctx, s.app)
	if err != nil {
		return err
	}
	b := &streamBench{servers: s, o: o, binary: binary,
		service: crawl.NewService(runs, crawl.ServiceConfig{Crawlers: []string{"demo"}})}
	ctx, stop := context.WithCancel(ctx)
	defer stop() // kills a gateway that an error has left running
	for _, part := range []func(context.Context) error{b.commitToBrowser, b.replay, b.idle, b.cancel} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

type streamBench struct {
	*servers
	o       options
	binary  string
	service *crawl.Service
	long    uuid.UUID // for readers that stall
}

// gateway is one `outbox serve`.
type gateway struct {
	cmd  *exec.Cmd
	base string // of its URLs
}

func (b *streamBench) serve(ctx context.Context, args ...string) (*gateway, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	flags := []string{"serve", "--database", b.url, "--sink", b.redis.URL(), "--table", "crawl_outbox", "--http", address,
		"--auth", "none", "--log-level", "error"}
	g := &gateway{cmd: exec.CommandContext(ctx, b.binary, append(flags, args...)...), base: "http://" + address}
	g.cmd.Stderr = os.Stderr
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		r, err := http.Get(g.base + "/openapi.json")
		if err == nil {
			_ = r.Body.Close()
			return g, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the gateway does not answer: %w", err)
		}
	}
}

func (g *gateway) stop() error {
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return g.cmd.Wait()
}

// rss is the process's resident memory in bytes.
func (g *gateway) rss() (int, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.Atoi(strings.Fields(rest)[0])
			return kb << 10, err
		}
	}
	return 0, errors.New("no VmRSS")
}

// newRuns returns n runs that are RUNNING.
func (b *streamBench) newRuns(ctx context.Context, n int) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	for range n {
		run, _, err := b.service.Create(ctx, crawl.DefaultTenant, crawl.NewRun{AppPackage: "com.example"})
		if err != nil {
			return nil, err
		}
		if _, err := b.service.Start(ctx, crawl.DefaultTenant, run.ID); err != nil {
			return nil, err
		}
		ids = append(ids, run.ID)
	}
	return ids, nil
}

// longRun returns a RUNNING run with so many events after the first, in its log only.
func (b *streamBench) longRun(ctx context.Context, events int) (uuid.UUID, error) {
	ids, err := b.newRuns(ctx, 1)
	if err != nil {
		return uuid.Nil, err
	}
	return ids[0], b.exec(ctx, fmt.Sprintf(`INSERT INTO crawl_events (crawl_id, event_type, payload)
		SELECT '%s', 'PROCESSING', jsonb_build_object('n', i, 'pad', repeat('x', 475)) FROM generate_series(1, %d) i`, ids[0], events), "VACUUM ANALYZE crawl_events", "CHECKPOINT")
}

// warmUp is how many events of a run come before the measured ones: two seconds, in which pools and statement caches
// fill.
const warmUp = 40

// commitToBrowser offers 1000 events a second over 50 runs to 200 clients, undisturbed and beside clients that do not
// read. Those ask for a long run, so that the gateway's writes to them block.
func (b *streamBench) commitToBrowser(ctx context.Context) error {
	var err error
	if b.long, err = b.longRun(ctx, 50_000); err != nil {
		return err
	}
	fmt.Printf("%-52s %9s %9s %9s %9s\n", "1000 events/s over 50 runs, 200 clients", "p50 ms", "p99 ms", "max ms",
		"received")
	for _, c := range []struct {
		name    string
		stalled int
	}{{"commit to client (wanted: p50 5, p99 20)", 0}, {"the same, beside one stalled reader", 1},
		{"the same, beside 20 stalled readers", 20}} {
		g, err := b.serve(ctx, "--parts=gateway,relay")
		if err != nil {
			return err
		}
		if err := b.offerToClients(ctx, g, c.name, c.stalled); err != nil {
			return err
		}
		if err := g.stop(); err != nil {
			return err
		}
	}
	return nil
}

func (b *streamBench) offerToClients(ctx context.Context, g *gateway, name string, stalled int) error {
	const runs, each = 50, 4
	ids, err := b.newRuns(ctx, runs)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	notifier, err := postgres.NewNotifier(b.app, 0)
	if err != nil {
		return err
	}
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	background.Go(func() { _ = notifier.Run(ctx) })

	for range stalled {
		background.Go(func() { b.stall(ctx, g) })
	}
	total := b.o.seconds * 1000 / runs // of each run, after RUN_STARTED
	received := make([][]time.Time, runs*each)
	errs := make([]error, runs*each)
	var clients, ready sync.WaitGroup
	ready.Add(runs * each)
	for c := range runs * each {
		clients.Go(func() {
			received[c], errs[c] = readRun(ctx, g, ids[c%runs], total+1, ready.Done)
		})
	}
	ready.Wait()
	committed := make([][]time.Time, runs)
	failed := make([]error, runs)
	payload := []byte(`{"pad":"` + strings.Repeat("x", 475) + `"}`)
	var writers sync.WaitGroup
	start := time.Now()
	for i, run := range ids {
		writers.Go(func() {
			for n := 1; n <= total; n++ {
				time.Sleep(time.Until(start.Add(time.Duration(i)*time.Millisecond + time.Duration(n)*50*time.Millisecond)))
				if _, err := b.service.Append(ctx, crawl.DefaultTenant, run,
					crawl.NewEvent{Type: crawl.Processing, Payload: payload}); err != nil {
					failed[i] = err
					stop() // or the clients would wait for what does not come
					return
				}
				committed[i] = append(committed[i], time.Now())
				notifier.Wake("crawl_outbox")
			}
		})
	}
	writers.Wait()
	clients.Wait()
	if err := errors.Join(append(failed, errs...)...); err != nil {
		return err
	}
	var took []time.Duration
	for c, at := range received {
		for n, commit := range committed[c%runs] {
			if n < warmUp {
				continue
			}
			took = append(took, max(at[n+1].Sub(commit), 0))
		}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	fmt.Printf("%-52s %9.2f %9.2f %9.2f %9d\n", name, ms(percentile(took, 0.5)), ms(percentile(took, 0.99)),
		ms(took[len(took)-1]), len(took))
	return nil
}

// replay reads one long run from the beginning over one connection, beside the same pages read from the database and
// nothing done with them.
func (b *streamBench) replay(ctx context.Context) error {
	const events = 200_000
	run, err := b.longRun(ctx, events)
	if err != nil {
		return err
	}
	g, err := b.serve(ctx, "--parts=gateway")
	if err != nil {
		return err
	}
	var bare, stream []float64
	for range b.o.rounds {
		began := time.Now()
		for after := int64(0); after < events+1; {
			var rows int64
			r, err := b.app.Query(ctx,
				"SELECT seq, event_id, event_type, created_at, payload::text FROM crawl_events WHERE crawl_id = $1 AND seq > $2 "+
					"ORDER BY seq LIMIT 500", run, after)
			if err != nil {
				return err
			}
			for r.Next() {
				rows++
			}
			if err := r.Err(); err != nil {
				return err
			}
			after += rows
		}
		bare = append(bare, events/time.Since(began).Seconds())
		began = time.Now()
		if _, err := readRun(ctx, g, run, events+1, func() {}); err != nil {
			return err
		}
		stream = append(stream, events/time.Since(began).Seconds())
	}
	fmt.Printf("replay of %d events over one connection: %.0f events/s, median of %d (wanted: 50,000); the pages alone, "+
		"read and dropped: %.0f; ratio %.2f\n",
		events, median(stream), b.o.rounds, median(bare), median(stream)/median(bare))
	return g.stop()
}

// idle holds connections on which nothing happens but heartbeats.
func (b *streamBench) idle(ctx context.Context) error {
	const runs = 100
	ids, err := b.newRuns(ctx, runs)
	if err != nil {
		return err
	}
	for _, n := range []int{5000, 10_000} {
		g, err := b.serve(ctx, "--parts=gateway")
		if err != nil {
			return err
		}
		before, err := g.rss()
		if err != nil {
			return err
		}
		var conns []net.Conn
		for i := range n {
			conn, err := b.dial(ctx, g, ids[i%runs], 1)
			if err != nil {
				return err
			}
			conns = append(conns, conn)
		}
		time.Sleep(32 * time.Second) // two heartbeats and a garbage collection
		after, err := g.rss()
		if err != nil {
			return err
		}
		subscriptions, err := b.client.PubSubChannels(ctx, "run:*").Result()
		if err != nil {
			return err
		}
		fmt.Printf("%d idle connections to %d runs: %.1f KB each (%d MB, %d MB before; wanted: 30 KB), %d subscriptions "+
			"at Redis\n",
			n, runs, float64(after-before)/float64(n)/1024, after>>20, before>>20, len(subscriptions))
		for _, conn := range conns {
			_ = conn.Close()
		}
		if err := g.stop(); err != nil {
			return err
		}
	}
	return nil
}

// cancel cancels a run in the middle of its two-second node, with a worker that serves no more runs at a time than it
// has got: it has stopped when the next run begins.
func (b *streamBench) cancel(ctx context.Context) error {
	g, err := b.serve(ctx)
	if err != nil {
		return err
	}
	const atOnce = 4 // runs of a worker
	var stopped []time.Duration
	for range 10 {
		var runs []crawl.Run
		for range atOnce + 1 {
			run, _, err := b.service.Create(ctx, crawl.DefaultTenant, crawl.NewRun{AppPackage: "com.example", Crawler: "demo"})
			if err != nil {
				return err
			}
			runs = append(runs, run)
		}
		if err := b.reaches(ctx, runs[0].ID, 4); err != nil { // in the node that takes two seconds
			return err
		}
		began := time.Now()
		if _, err := b.service.Cancel(ctx, crawl.DefaultTenant, runs[0].ID); err != nil {
			return err
		}
		if err := b.reaches(ctx, runs[atOnce].ID, 1); err != nil {
			return err
		}
		stopped = append(stopped, time.Since(began))
		for _, run := range runs[1:] {
			if _, err := b.service.Cancel(ctx, crawl.DefaultTenant, run.ID); err != nil {
				return err
			}
		}
	}
	slices.Sort(stopped)
	fmt.Printf("cancel until the worker has left the run and begun another, %d times: p50 %.2f s, max %.2f s "+
		"(wanted: 5 s)\n",
		len(stopped), percentile(stopped, 0.5).Seconds(), stopped[len(stopped)-1].Seconds())
	return g.stop()
}

func (b *streamBench) reaches(ctx context.Context, run uuid.UUID, seq int64) error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r, err := b.service.Get(ctx, crawl.DefaultTenant, run)
		if err != nil || r.LastSeq >= seq {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("run %s stands at event %d", run, r.LastSeq)
		}
	}
}
