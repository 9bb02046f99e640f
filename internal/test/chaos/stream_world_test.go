package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/pgstore"
)

// streamFault is one line of the table of streams: what happens between a run's log and those who
// follow it.
type streamFault struct {
	name     string
	postgres *testenv.PostgresConfig // as fault's
	gateways int                     // `outbox serve` processes (1); a viewer takes them in turn
	parts    string                  // of each; "" is gateway,relay
	flags    []string                // of each
	crawled  bool                    // the runs are those of workers, which the fault starts
	view     view
	strike   func(*streaming) (struck int)
}

// view is how the viewers behave.
type view struct {
	cutAfter int  // at most so many events, then they hang up and come back; 0: they stay
	dripping bool // they receive a byte at a time
	stay     bool // nothing may disconnect them
	politely bool // what ends a stream must end it between two events
}

// streaming is a world with gateways, and runs that are written and followed meanwhile.
type streaming struct {
	*world
	fault     streamFault
	addresses []string
	gateways  []*relayProcess // by address: the process that serves there now
	runs      *crawl.Service
	ids       []uuid.UUID
	viewers   []*viewer

	stopWriting      context.CancelFunc
	writing, viewing sync.WaitGroup

	mu       sync.Mutex
	appended map[uuid.UUID]uuid.UUID // acknowledged: the run of each event id
}

// How much goes on in each world.
const (
	streamRuns    = 2
	viewersPerRun = 6
	appendEvery   = 30 * time.Millisecond // to each run, 1 to 3 events
)

func newStreaming(t *testing.T, f streamFault) *streaming {
	t.Helper()
	s := &streaming{world: newWorld(t, fault{name: f.name, postgres: f.postgres}), fault: f,
		appended: map[uuid.UUID]uuid.UUID{}}
	store, err := pgstore.OpenRuns(t.Context(), s.pool)
	must(t, err)
	s.runs = crawl.NewService(store, crawl.ServiceConfig{Crawlers: []string{"demo", "script:short"}})
	for i := range max(1, f.gateways) {
		s.addresses = append(s.addresses, freeAddress(t))
		s.gateways = append(s.gateways, nil)
		s.gateway(i)
	}
	return s
}

// gateway starts the process of an address, for the first time or again.
func (s *streaming) gateway(i int) {
	s.t.Helper()
	parts := "--parts=" + cmp.Or(s.fault.parts, "gateway,relay")
	flags := append([]string{"--http", s.addresses[i], "--auth", "none", parts}, s.fault.flags...)
	s.gateways[i] = s.serve(flags...)
}

// serve starts `outbox serve`.
func (s *streaming) serve(flags ...string) *relayProcess {
	s.t.Helper()
	path, err := binary()
	s.must(err)
	args := []string{"serve", "--database", s.relayDatabase, "--sink", s.relaySink, "--table", "crawl_outbox",
		"--lease-ttl", ttl.String()}
	return s.process(path, nil, append(args, flags...)...)
}

// begin has runs written and followed.
func (s *streaming) begin() {
	s.t.Helper()
	for range streamRuns {
		run, _, err := s.runs.Create(s.t.Context(), crawl.DefaultTenant, crawl.NewRun{AppPackage: "com.example.shop"})
		if err == nil {
			_, err = s.runs.Start(s.t.Context(), crawl.DefaultTenant, run.ID)
		}
		s.must(err)
		s.ids = append(s.ids, run.ID)
		s.follow(run.ID, viewersPerRun)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	s.stopWriting = stop
	for _, id := range s.ids {
		rng := rand.New(rand.NewPCG(s.rng.Uint64(), 0))
		s.writing.Go(func() { s.write(ctx, rng, id) })
	}
	s.t.Cleanup(s.end)
	s.arrives(20)
}

// follow adds viewers of a run.
func (s *streaming) follow(run uuid.UUID, n int) {
	for range n {
		v := &viewer{addresses: s.addresses, run: run, view: s.fault.view, rng: rand.New(rand.NewPCG(s.rng.Uint64(), 1))}
		s.viewers = append(s.viewers, v)
		s.viewing.Go(func() { v.follow(context.WithoutCancel(s.t.Context())) })
	}
}

// write appends to a run until ctx ends, then completes it. What the database does not answer is
// tried again with the same event ids: so each event is in the log once, if it was acknowledged.
func (s *streaming) write(ctx context.Context, rng *rand.Rand, run uuid.UUID) {
	for n := 0; ctx.Err() == nil; n++ {
		events := make([]crawl.NewEvent, 1+rng.IntN(3))
		for i := range events {
			events[i] = crawl.NewEvent{ID: uuid.New(), Type: crawl.ActionExecuted,
				Payload: fmt.Appendf(nil, `{"n": %d, "text": "%0100d"}`, n, i)}
		}
		s.insist(func(ctx context.Context) error {
			_, err := s.runs.Append(ctx, crawl.DefaultTenant, run, events...)
			return err
		})
		s.mu.Lock()
		for _, e := range events {
			s.appended[e.ID] = run
		}
		s.mu.Unlock()
		time.Sleep(appendEvery)
	}
	s.insist(func(ctx context.Context) error {
		_, err := s.runs.Complete(ctx, crawl.DefaultTenant, run)
		return err
	})
}

// insist tries until it succeeds.
func (s *streaming) insist(do func(context.Context) error) {
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 20*time.Second)
		err := do(ctx)
		cancel()
		if err == nil {
			return
		}
		if state := new(crawl.StateError); time.Now().After(deadline) || errors.As(err, &state) {
			s.t.Errorf("write a run: %v", err)
			return
		}
	}
}

// arrives waits until every viewer has n more events.
func (s *streaming) arrives(n int) {
	s.t.Helper()
	want := make([]int, len(s.viewers))
	for i, v := range s.viewers {
		want[i] = v.count() + n
	}
	eventually(s.t, fmt.Sprint("every viewer has ", n, " more events"), func() bool {
		for i, v := range s.viewers {
			if v.count() < want[i] && !v.ended() {
				return false
			}
		}
		return true
	})
}

// end stops the writers, and waits for the viewers, who stop at the end of their runs.
func (s *streaming) end() {
	if s.stopWriting != nil {
		s.stopWriting()
	}
	s.writing.Wait()
	s.viewing.Wait()
}

// finish compares what every viewer has put together with the tables, and returns the line about
// it.
func (s *streaming) finish(struck int) {
	t := s.t
	t.Helper()
	s.end()
	logs := map[uuid.UUID][]logged{}
	for _, id := range s.ids {
		logs[id] = s.log(id)
	}
	lost := s.unlogged(logs)
	if lost > 0 {
		t.Errorf("%d acknowledged events are not in the log", lost)
	}
	appended, received, connections, repeated, disordered := 0, 0, 0, 0, 0
	for _, rows := range logs {
		appended += len(rows)
	}
	for i, v := range s.viewers {
		r := v.compare(logs[v.run])
		if err := errors.Join(r.err, v.verdict()); err != nil {
			t.Errorf("viewer %d: %v", i, err)
		}
		received += len(v.got)
		connections += v.connections
		lost, repeated, disordered = lost+r.lost, repeated+r.repeated, disordered+r.disordered
	}
	for _, p := range s.relays {
		if p.running() {
			p.terminate(t)
		}
	}
	line(t, s.fault.name, struck, s.began,
		"appended %6d  clients %3d  connections %4d  received %6d  lost %d  repeated %d  out of order %d",
		appended, len(s.viewers), connections, received, lost, repeated, disordered)
}

// unlogged counts acknowledged events that are not in their run's log.
func (s *streaming) unlogged(logs map[uuid.UUID][]logged) (n int) {
	there := map[uuid.UUID]uuid.UUID{}
	for run, rows := range logs {
		for _, row := range rows {
			there[row.id] = run
		}
	}
	for id, run := range s.appended {
		if there[id] != run {
			n++
		}
	}
	return n
}

// logged is an entry of a run's log.
type logged struct {
	seq     int64
	id      uuid.UUID
	of      string // its type
	payload string
}

// log reads a run's log from the table, not through the product.
func (s *streaming) log(run uuid.UUID) (rows []logged) {
	s.t.Helper()
	result, err := s.pool.Query(s.t.Context(),
		"SELECT seq, event_id, event_type, payload::text FROM crawl_events WHERE crawl_id = $1 ORDER BY id", run)
	s.must(err)
	rows, err = pgx.CollectRows(result, func(r pgx.CollectableRow) (row logged, err error) {
		return row, r.Scan(&row.seq, &row.id, &row.of, &row.payload)
	})
	s.must(err)
	return rows
}
