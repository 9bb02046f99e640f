package crawl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/backoff"
)

// pass lets d go by and everything that is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// start runs a worker until the test ends or stop is called.
func start(t *testing.T, store Store, cfg WorkerConfig, crawlers ...Crawler) (stop func()) {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	w, err := NewWorker(store, crawlers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// chain is a crawler whose nodes A, B, C … do what the visits say, one after the other.
func chain(visits ...NodeFunc) Crawler {
	c := Crawler{Name: "chain", First: "A", Nodes: map[string]Node{}}
	for i, visit := range visits {
		c.Nodes[string(rune('A'+i))] = NodeFunc(func(ctx context.Context, r Run, state json.RawMessage) (Result, error) {
			result, err := visit(ctx, r, state)
			if i+1 < len(visits) && result.Next == "" {
				result.Next = string(rune('A' + i + 1))
			}
			return result, err
		})
	}
	return c
}

func quick(context.Context, Run, json.RawMessage) (Result, error) { return Result{}, nil }

// takes is a node that takes a while and counts its visits.
func takes(d time.Duration, visits *atomic.Int32) NodeFunc {
	return func(ctx context.Context, _ Run, _ json.RawMessage) (Result, error) {
		if visits != nil {
			visits.Add(1)
		}
		backoff.Wait(ctx, d)
		return Result{Events: []NewEvent{{Type: Processing}}}, ctx.Err()
	}
}

// mortal is a store that a process uses until it dies.
type mortal struct {
	*memory
	dead atomic.Bool
}

var errDead = errors.New("the process is dead")

func (m *mortal) gone() error {
	if m.dead.Load() {
		return errDead
	}
	return nil
}

func (m *mortal) Change(ctx context.Context, tenant string, run uuid.UUID, c Change) (Changed, error) {
	if err := m.gone(); err != nil {
		return Changed{}, err
	}
	return m.memory.Change(ctx, tenant, run, c)
}

func (m *mortal) ClaimRun(
	ctx context.Context, owner uuid.UUID, crawlers []string, ttl time.Duration, events func(Run) []NewEvent,
) (Claim, error) {
	if err := m.gone(); err != nil {
		return Claim{}, err
	}
	return m.memory.ClaimRun(ctx, owner, crawlers, ttl, events)
}

func (m *mortal) RenewRun(ctx context.Context, run uuid.UUID, hold Hold, ttl time.Duration) (Status, bool, error) {
	if err := m.gone(); err != nil {
		return "", false, err
	}
	return m.memory.RenewRun(ctx, run, hold, ttl)
}

func (m *mortal) ReleaseRun(ctx context.Context, run uuid.UUID, hold Hold) error {
	if err := m.gone(); err != nil {
		return err
	}
	return m.memory.ReleaseRun(ctx, run, hold)
}

const demoHistory = `RUN_STARTED NODE_START{"node":"Start","step":1} ACTION_EXECUTED NODE_COMPLETE{"node":"Start","step":1} ` +
	`NODE_START{"node":"Process","step":2} PROCESSING NODE_COMPLETE{"node":"Process","step":2} ` +
	`NODE_START{"node":"Finish","step":3} ACTION_EXECUTED NODE_COMPLETE{"node":"Finish","step":3} RUN_COMPLETED{"reason":"finished"}`

func TestWorkerCrawlsTheDemonstration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		start(t, m, WorkerConfig{}, Demo(0))
		pass(time.Minute) // it has grown tired of looking
		run := m.has(t, "demo")
		other := m.has(t, External)
		pass(3*time.Second + time.Millisecond) // PollMax and the 2 s of Process
		if got := m.history(run.ID); got != demoHistory {
			t.Errorf("got  %s\nwant %s", got, demoHistory)
		}
		if r := m.get(run); r.Status != Completed || r.at.Steps != 3 {
			t.Errorf("the run is %+v", r)
		}
		if r := m.get(other); r.Status != Pending {
			t.Errorf("a run of nobody's is %s", r.Status)
		}
		payload := func(seq int) string { return string(m.get(run).events[seq-1].Payload) }
		if payload(1) != `{"appPackage":"com.example","maxSteps":100,"crawler":"demo"}` ||
			payload(6) != `{"milliseconds":2000}` || payload(9) != `{"action":"close","appPackage":"com.example"}` {
			t.Errorf("payloads %s %s %s", payload(1), payload(6), payload(9))
		}
	})
}

// Over the API a run can be started without a worker: the first node's start is not in its log
// then.
func TestWorkerTakesRunThatWasStarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "demo")
		if _, err := newService(m).Start(t.Context(), run.Tenant, run.ID); err != nil {
			t.Fatal(err)
		}
		start(t, m, WorkerConfig{}, Demo(-1))
		pass(time.Second)
		if got := m.history(run.ID); got != demoHistory {
			t.Errorf("got  %s\nwant %s", got, demoHistory)
		}
	})
}

// A worker dies in the second node. Another goes on there when the lease has lapsed, with the state
// of the first, and nothing is in the log twice.
func TestWorkerResumesAfterCrash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		var visits, firsts atomic.Int32
		crawler := func(process time.Duration) Crawler {
			return chain(
				func(context.Context, Run, json.RawMessage) (Result, error) {
					firsts.Add(1)
					return Result{State: json.RawMessage(`"kept"`)}, nil
				},
				func(ctx context.Context, r Run, state json.RawMessage) (Result, error) {
					if string(state) != `"kept"` || r.LastSeq != 4 {
						t.Errorf("state %s, run %+v", state, r)
					}
					return takes(process, &visits)(ctx, r, state)
				}, quick)
		}
		run := m.has(t, "chain")
		first := &mortal{memory: m}
		stop := start(t, first, WorkerConfig{}, crawler(time.Hour))
		pass(20 * time.Second) // renewed many times
		first.dead.Store(true)
		stop()
		died := time.Now()
		reports := make(reported, 1)
		start(t, m, WorkerConfig{Observer: reports}, crawler(time.Second))
		pass(5 * time.Second)
		if visits.Load() != 1 {
			t.Error("it was taken while the lease held")
		}
		pass(7 * time.Second) // the lease, PollMax and the node
		want := `RUN_STARTED NODE_START{"node":"A","step":1} NODE_COMPLETE{"node":"A","step":1} NODE_START{"node":"B","step":2} ` +
			`PROCESSING NODE_COMPLETE{"node":"B","step":2} NODE_START{"node":"C","step":3} NODE_COMPLETE{"node":"C","step":3} RUN_COMPLETED{"reason":"finished"}`
		if got := m.history(run.ID); got != want || visits.Load() != 2 || firsts.Load() != 1 {
			t.Errorf("after %s, %d visits of B and %d of A: %s", time.Since(died), visits.Load(), firsts.Load(), got)
		}
		if r := <-reports; !r.Resumed || r.Status != Completed || r.Steps != 2 || r.Crawler != "chain" ||
			r.Took != time.Second {
			t.Errorf("reported %+v", r)
		}
	})
}

type reported chan RunReport

func (r reported) ObserveRun(report RunReport) { r <- report }

// The system around the seeds asks for 5 s; a cancelled run's node is told within one.
func TestWorkerStopsAtCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		var told time.Time
		run := m.has(t, "chain")
		reports := make(reported, 1)
		start(t, m, WorkerConfig{Observer: reports},
			chain(func(ctx context.Context, _ Run, _ json.RawMessage) (Result, error) {
				<-ctx.Done()
				told = time.Now()
				return Result{Events: []NewEvent{{Type: Processing}}}, nil // a node that takes no notice otherwise
			}, quick))
		pass(1500 * time.Millisecond)
		cancelled := time.Now()
		if _, err := newService(m).Cancel(t.Context(), run.Tenant, run.ID); err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		if took := told.Sub(cancelled); told.IsZero() || took > time.Second {
			t.Errorf("the node was told after %s", took)
		}
		if got, want := m.history(run.ID),
			`RUN_STARTED NODE_START{"node":"A","step":1} RUN_CANCELLED{"reason":"requested"}`; got != want {
			t.Errorf("got %s", got)
		}
		if r := <-reports; r.Status != Cancelled || r.Steps != 0 {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestWorkerEndsRunAtMaxSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "chain", func(r *stored) { r.MaxSteps = 2 })
		start(t, m, WorkerConfig{}, chain(quick, quick, quick))
		pass(time.Second)
		want := `RUN_STARTED NODE_START{"node":"A","step":1} NODE_COMPLETE{"node":"A","step":1} NODE_START{"node":"B","step":2} NODE_COMPLETE{"node":"B","step":2} RUN_COMPLETED{"reason":"max_steps"}`
		if got := m.history(run.ID); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// Whatever a node does wrong, its run fails at once and says why, and the others go on.
func TestNodeErrorsFailTheRun(t *testing.T) {
	t.Parallel()
	returns := func(r Result, err error) NodeFunc {
		return func(context.Context, Run, json.RawMessage) (Result, error) { return r, err }
	}
	for _, c := range []struct {
		name string
		node NodeFunc
		want string
	}{
		{"error", returns(Result{Events: []NewEvent{{Type: "LOST"}}}, errors.New("no device\x00")), "no device\uFFFD"},
		{"long error", returns(Result{}, errors.New(strings.Repeat("é", 20_000))),
			strings.Repeat("é", MaxError-len("node B (step 2): ")-1) + "…"},
		{"panic", func(context.Context, Run, json.RawMessage) (Result, error) { panic("no screen") }, "panic: no screen"},
		{"unknown next", returns(Result{Next: "Z"}, nil), `there is no node "Z" in crawler chain, which has A, B, C`},
		{"payload", returns(Result{Events: []NewEvent{{Type: "A"}, {Type: "B", Payload: json.RawMessage(`"\u0000"`)}}}, nil),
			`events[1].payload contains \u0000, which jsonb refuses (at byte 6)`},
		{"terminal event", returns(Result{Events: []NewEvent{{Type: RunCompleted}}}, nil),
			"events[0].type RUN_COMPLETED cannot be appended: complete the run, which appends it"},
		{"state", returns(Result{State: json.RawMessage(`{`)}, nil), "state is not valid JSON"},
		{"too slow", takes(time.Hour, nil), "it took longer than 1m0s"},
		{"hangs", func(context.Context, Run, json.RawMessage) (Result, error) {
			time.Sleep(time.Hour)
			return Result{}, nil
		}, "it took longer than 1m0s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &memory{}
				run, fine := m.has(t, "chain"), m.has(t, "demo")
				start(t, m, WorkerConfig{NodeTimeout: time.Minute}, chain(quick, c.node, quick), Demo(61*time.Second/2))
				pass(62 * time.Second)
				message := "node B (step 2): " + c.want
				r := m.get(run)
				if r.Status != Failed || r.Error != message {
					t.Fatalf("%s: %.200s\nwant %.200s", r.Status, r.Error, message)
				}
				var e, failed struct {
					Node, Error string
					Step        int
				}
				n := len(r.events)
				if err := errors.Join(json.Unmarshal(r.events[n-2].Payload, &e),
					json.Unmarshal(r.events[n-1].Payload, &failed)); err != nil {
					t.Fatal(err)
				}
				if r.events[n-2].Type != ErrorOccurred || e.Node != "B" || e.Step != 2 ||
					!strings.HasPrefix(e.Error, strings.TrimSuffix(c.want, "…")) {
					t.Errorf("before its end: %s %.200s", r.events[n-2].Type, r.events[n-2].Payload)
				}
				if n != 6 || r.events[n-1].Type != RunFailed || failed.Error != message {
					t.Errorf("%d events, the last %s %.200s", n, r.events[n-1].Type, r.events[n-1].Payload)
				}
				if r := m.get(fine); r.Status != Completed {
					t.Errorf("the other run is %s", r.Status)
				}
			})
		})
	}
}

// A node that kills its process is begun MaxAttempts times; then whoever claims the run ends it.
func TestNodeThatKillsWorkersFailsTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "chain")
		var visits atomic.Int32
		for range 7 {
			process := &mortal{memory: m}
			stop := start(t, process, WorkerConfig{},
				chain(quick, func(ctx context.Context, _ Run, _ json.RawMessage) (Result, error) {
					visits.Add(1)
					process.dead.Store(true)
					<-ctx.Done()
					return Result{}, ctx.Err()
				}))
			pass(11 * time.Second)
			stop()
		}
		r := m.get(run)
		if want := "node B (step 2): workers began it 5 times in a row and none finished it"; r.Status != Failed ||
			r.Error != want || visits.Load() != 6 {
			// One more visit than MaxAttempts: the claim that finished A went on to B.
			t.Errorf("after %d visits it is %s: %s", visits.Load(), r.Status, r.Error)
		}
	})
}

// A node whose worker has lost the run is told, and nothing of it is written.
func TestWorkerThatLostTheLeaseWritesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "chain")
		var told time.Duration
		began := time.Now()
		start(t, m, WorkerConfig{}, chain(func(ctx context.Context, _ Run, _ json.RawMessage) (Result, error) {
			<-ctx.Done()
			told = time.Since(began)
			return Result{Events: []NewEvent{{Type: Processing}}}, nil
		}))
		pass(time.Second / 2)
		m.mu.Lock()
		s := m.find("", run.ID)
		s.hold = Hold{Owner: uuid.New(), Epoch: s.hold.Epoch + 1}
		s.expires = time.Now().Add(time.Hour)
		m.mu.Unlock()
		before := m.history(run.ID)
		pass(5 * time.Second)
		if told == 0 || told > 4*time.Second || m.history(run.ID) != before {
			t.Errorf("told after %s; the log is %s", told, m.history(run.ID))
		}
		if r := m.get(run); r.Status != Running || r.hold != s.hold {
			t.Errorf("the run is %+v", r)
		}
	})
}

// A run that is deleted under a worker's hands is nobody's any more.
func TestWorkerLetsGoOfDeletedRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.has(t, "chain")
		reports := make(reported, 1)
		start(t, m, WorkerConfig{Observer: reports}, chain(takes(time.Hour, nil)))
		pass(time.Second / 2)
		m.mu.Lock()
		m.runs = nil
		m.mu.Unlock()
		pass(time.Second)
		if r := <-reports; r.Status != Running || r.Steps != 0 || r.Took > 2*time.Second {
			t.Errorf("reported %+v", r)
		}
	})
}

func TestStopReleasesRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "chain")
		var visits atomic.Int32
		for range 8 { // as many deployments while the node is at work are nobody's fault
			stop := start(t, m, WorkerConfig{}, chain(takes(time.Hour, &visits)))
			pass(time.Second)
			asked := time.Now()
			stop()
			if took := time.Since(asked); took != 0 {
				t.Fatalf("it took %s", took)
			}
		}
		if r := m.get(run); visits.Load() != 8 || r.Status != Running || r.at.Attempts != 0 || !r.expires.IsZero() {
			t.Errorf("after %d visits: %+v", visits.Load(), r)
		}
	})
}

// What a node has done when the worker is told to stop is committed: it would have to be done
// again.
func TestStopCommitsWhatIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "chain")
		stop := start(t, m, WorkerConfig{}, chain(func(ctx context.Context, _ Run, _ json.RawMessage) (Result, error) {
			<-ctx.Done()
			return Result{Events: []NewEvent{{Type: Processing}}}, nil
		}, takes(time.Hour, nil)))
		pass(time.Second)
		stop()
		want := `RUN_STARTED NODE_START{"node":"A","step":1} PROCESSING NODE_COMPLETE{"node":"A","step":1} NODE_START{"node":"B","step":2}`
		if got := m.history(run.ID); got != want {
			t.Errorf("got %s", got)
		}
		if r := m.get(run); !r.expires.IsZero() || r.at.Node != "B" {
			t.Errorf("the run is %+v", r)
		}
	})
}

// While the database is down for less than a lease, a result is kept, and the node not begun again.
// It is logged once.
func TestDatabaseDownForAWhile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		down   time.Duration
		visits int32
	}{{5 * time.Second, 1}, {30 * time.Second, 2}} {
		synctest.Test(t, func(t *testing.T) {
			m := &memory{}
			var log bytes.Buffer
			var visits atomic.Int32
			run := m.has(t, "chain")
			start(t, m, WorkerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil))}, chain(takes(time.Second, &visits)))
			pass(time.Second / 2)
			m.failing(func(string) error { return errors.New("connection refused") })
			pass(c.down)
			m.failing(nil)
			pass(6 * time.Second)
			want := `RUN_STARTED NODE_START{"node":"A","step":1} PROCESSING NODE_COMPLETE{"node":"A","step":1} RUN_COMPLETED{"reason":"finished"}`
			if got := m.history(run.ID); got != want || visits.Load() != c.visits {
				t.Errorf("down for %s: %d visits, want %d: %s", c.down, visits.Load(), c.visits, got)
			}
			if n := strings.Count(log.String(), "connection refused"); n != 1 {
				t.Errorf("down for %s: logged %d times:\n%s", c.down, n, log.String())
			}
		})
	}
}

// A reply that is lost is no reason to append twice, nor to lose count.
func TestLostRepliesAreAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "demo")
		start(t, &forgetful{memory: m}, WorkerConfig{}, Demo(-1))
		pass(5 * time.Second)
		if got := m.history(run.ID); got != demoHistory {
			t.Errorf("got  %s\nwant %s", got, demoHistory)
		}
	})
}

// forgetful makes every change and answers every other time.
type forgetful struct {
	*memory
	n atomic.Int32
}

func (f *forgetful) Change(ctx context.Context, tenant string, run uuid.UUID, c Change) (Changed, error) {
	changed, err := f.memory.Change(ctx, tenant, run, c)
	if err == nil && f.n.Add(1)%2 == 1 {
		return Changed{}, errors.New("connection reset")
	}
	return changed, err
}

// A change that the database refuses time after time, for a reason that nobody foresaw, does not
// keep the run for ever.
func TestChangeThatNeverSucceeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		run := m.has(t, "chain")
		var visits atomic.Int32
		store := &picky{memory: m}
		start(t, store, WorkerConfig{}, chain(takes(time.Second, &visits)))
		pass(5 * time.Minute)
		if r := m.get(run); r.Status != Failed || visits.Load() != 5 {
			t.Errorf("after %d visits it is %s: %s", visits.Load(), r.Status, r.Error)
		}
	})
}

type picky struct{ *memory }

func (p *picky) Change(ctx context.Context, tenant string, run uuid.UUID, c Change) (Changed, error) {
	if slices.ContainsFunc(c.Events, func(e NewEvent) bool { return e.Type == Processing }) {
		return Changed{}, errors.New("row is too big")
	}
	return p.memory.Change(ctx, tenant, run, c)
}

func TestConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		for range 10 {
			m.has(t, "chain")
		}
		var now, most atomic.Int32
		start(t, m, WorkerConfig{}, chain(func(ctx context.Context, _ Run, _ json.RawMessage) (Result, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			backoff.Wait(ctx, time.Second)
			return Result{}, ctx.Err()
		}))
		pass(3*time.Second + time.Millisecond)
		for _, r := range m.runs {
			if r.Status != Completed {
				t.Errorf("a run is %s", r.Status)
			}
		}
		if most.Load() != 4 {
			t.Errorf("%d at a time", most.Load())
		}
	})
}

// An idle worker looks once a second, and writes nothing but a renewal every third of a lease while
// it works.
func TestWorkerIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{}
		m.has(t, "chain")
		start(t, m, WorkerConfig{Concurrency: 2}, chain(takes(time.Hour, nil)))
		pass(60*time.Second + time.Millisecond)
		m.mu.Lock()
		defer m.mu.Unlock()
		got := fmt.Sprint(m.calls["ClaimRun"], m.calls["RenewRun"], m.calls["GetRun"], m.calls["Change"])
		if want := "64 20 40 0"; got != want {
			t.Errorf("claims, renewals, looks, changes: %s, want %s", got, want)
		}
	})
}

func TestNewWorkerReportsEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewWorker(nil, nil, WorkerConfig{Concurrency: -1, LeaseTTL: -1, LeaseMargin: -1, PollMin: 2, PollMax: 1,
		MaxAttempts: -1})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Concurrency", "LeaseTTL", "LeaseMargin", "PollMin", "MaxAttempts",
		"there is no crawler"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in: %v", want, err)
		}
	}
	_, err = NewWorker(nil, []Crawler{Demo(0), Demo(0), {Name: External},
		{Name: "x", First: "y", Nodes: map[string]Node{"z": nil}}, {}},
		WorkerConfig{LeaseTTL: time.Second, LeaseMargin: time.Second})
	for _, want := range []string{"crawlers[1] (demo): there is another", "crawlers[2] (external): Name",
		`crawlers[3] (x): First is "y", which is none of its nodes (z)`, "crawlers[4] (): Name is required",
		"more than a third"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in: %v", want, err)
		}
	}
}
