package crawl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// WorkerConfig configures a Worker. Zero means the default in parentheses, negative means off where
// off makes sense.
type WorkerConfig struct {
	Concurrency int // runs crawled at a time (4)

	LeaseTTL    time.Duration // how long a run stays reserved for a worker that died (10 s); renewed every third of it
	LeaseMargin time.Duration // no work in the last part of a lease (a tenth of LeaseTTL)

	PollMin time.Duration // pause after a look that found no run (100 ms)
	PollMax time.Duration // pause that an idle worker grows to (1 s)

	// MaxAttempts is how many claims in a row may finish no node (5): then the run fails. A node
	// that kills its process is not begun for ever. A worker that was told to stop does not count.
	MaxAttempts int
	NodeTimeout time.Duration // for one visit of a node (5 min; negative: none)

	Logger   *slog.Logger // (slog.Default)
	Observer Observer     // told about every run; may be nil
}

// Observer is told about a run when a worker lets go of it. It is called for several runs at the
// same time: it must be quick and safe for concurrent use.
type Observer interface {
	ObserveRun(RunReport)
}

// RunReport is what a worker did for a run between claiming it and letting go of it.
type RunReport struct {
	Crawler string
	Resumed bool   // another claim had begun it
	Status  Status // that the worker left it in, as far as it knows. RUNNING: it is another's to go on with
	Steps   int    // nodes that this worker finished
	Took    time.Duration
}

func (c WorkerConfig) withDefaults() (WorkerConfig, error) {
	problems := []error{positive("Concurrency", &c.Concurrency, 4), positive("MaxAttempts", &c.MaxAttempts, 5),
		positive("LeaseTTL", &c.LeaseTTL, 10*time.Second), positive("PollMin", &c.PollMin, 100*time.Millisecond)}
	problems = append(problems, positive("LeaseMargin", &c.LeaseMargin, c.LeaseTTL/10),
		positive("PollMax", &c.PollMax, max(time.Second, c.PollMin)))
	if c.NodeTimeout == 0 {
		c.NodeTimeout = 5 * time.Minute
	}
	if c.PollMin > c.PollMax {
		problems = append(problems, fmt.Errorf("PollMin (%s) is above PollMax (%s)", c.PollMin, c.PollMax))
	}
	if c.LeaseMargin*3 > c.LeaseTTL {
		problems = append(problems,
			fmt.Errorf("LeaseMargin (%s) is more than a third of LeaseTTL (%s): a late renewal would stop the work",
				c.LeaseMargin, c.LeaseTTL))
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(problems...)
}

// positive fills in what is not set, and refuses what is below zero.
func positive[T int | time.Duration](field string, v *T, def T) error {
	if *v == 0 {
		*v = def
	}
	if *v < 0 {
		return fmt.Errorf("%s is %v, must be positive", field, *v)
	}
	return nil
}

// Worker crawls the runs of all tenants. Any number of them may work on one store: a run is one
// worker's at a time.
type Worker struct {
	store    Store
	cfg      WorkerConfig
	owner    uuid.UUID
	crawlers map[string]Crawler
	names    []string
	outage   outage
	crawling atomic.Int32
	claims   claims
}

// NewWorker returns a worker that has these crawlers. All problems are reported at once.
func NewWorker(store Store, crawlers []Crawler, cfg WorkerConfig) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	byName, crawlerErr := crawlersByName(crawlers)
	if err := errors.Join(err, crawlerErr); err != nil {
		return nil, fmt.Errorf("configure worker: %w", err)
	}
	owner, err := outbox.NewID()
	if err != nil {
		return nil, err
	}
	return &Worker{store: store, cfg: cfg, owner: owner, crawlers: byName, names: slices.Sorted(maps.Keys(byName)),
		outage: outage{log: cfg.Logger}}, nil
}

// Run crawls until ctx ends. Then the contexts of the nodes end, the runs are released so that
// another worker goes on with them at once, and Run returns nil when every node has returned.
// Failures of the database do not end it: it pauses and goes on.
func (w *Worker) Run(ctx context.Context) error {
	slots := make(chan struct{}, w.cfg.Concurrency)
	var runs sync.WaitGroup
	defer runs.Wait()
	idle, trouble := w.cfg.PollMin, time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case slots <- struct{}{}:
		}
		if ctx.Err() != nil {
			return nil
		}
		claim, asked, err := w.claim(ctx)
		if err == nil {
			idle, trouble = w.cfg.PollMin, 0
			runs.Go(func() {
				w.crawling.Add(1)
				defer func() { w.crawling.Add(-1); <-slots }()
				w.crawl(ctx, claim, asked)
			})
			continue
		}
		<-slots
		if errors.Is(err, ErrNoRun) {
			trouble = 0
			backoff.Wait(ctx, idle) // ended or not is looked at above
			idle = min(2*idle, w.cfg.PollMax)
		} else {
			trouble = longer(trouble)
			backoff.Wait(ctx, trouble)
		}
	}
}

// claim leases a run. asked is from when its lease counts here, which is before the database counts
// it.
//
// The request outlives ctx: of one that is cut off nobody would know whether a run has been
// claimed, and it would wait until the lease lapses.
func (w *Worker) claim(ctx context.Context) (c Claim, asked time.Time, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.LeaseTTL/3)
	defer cancel()
	asked = time.Now()
	c, err = w.store.ClaimRun(ctx, w.owner, w.names, w.cfg.LeaseTTL, func(r Run) []NewEvent {
		return []NewEvent{startedEvent(r), w.nodeStart(r.Crawler)}
	})
	if err != nil && !errors.Is(err, ErrNoRun) {
		w.outage.failed(err)
		w.claims.answered(asked, err)
	} else {
		w.outage.over()
		w.claims.answered(asked, nil)
	}
	return c, asked, err
}

// WorkerHealth is the state of a worker.
type WorkerHealth struct {
	Crawling     int       // runs that it works on now
	FailingSince time.Time // since when each look for a run has failed; zero: the last did not
	LastError    string    // of the last one that failed, or ""
}

// Ready tells whether the worker does its job: it has been able to look for runs within stall, or
// has no place for another; if not, why.
func (h WorkerHealth) Ready(now time.Time, stall time.Duration) (bool, string) {
	if h.FailingSince.IsZero() || now.Sub(h.FailingSince) <= stall {
		return true, ""
	}
	return false, fmt.Sprintf("no look for runs has succeeded for %s: %s", now.Sub(h.FailingSince).Round(time.Second),
		h.LastError)
}

// Health returns the worker's state. It may be called at any time.
func (w *Worker) Health() WorkerHealth {
	h := WorkerHealth{Crawling: int(w.crawling.Load())}
	w.claims.mu.Lock()
	defer w.claims.mu.Unlock()
	if w.claims.err != nil {
		h.FailingSince, h.LastError = w.claims.since, w.claims.err.Error()
	}
	return h
}

// claims knows how the claims go. Not the outage, which a run whose own statements succeed ends
// too: a role may lack the privileges for claims alone.
type claims struct {
	mu    sync.Mutex
	since time.Time // of the first failure in a row
	err   error     // of the last
}

func (c *claims) answered(asked time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.since = asked
	}
	c.err = err
}

func (w *Worker) nodeStart(crawler string) NewEvent {
	return newEvent(NodeStart, nodeVisit{Node: w.crawlers[crawler].First, Step: 1})
}

// longer is the next pause after trouble with the database.
func longer(d time.Duration) time.Duration {
	return min(max(2*d, 100*time.Millisecond), 2*time.Second)
}

// outage logs that the database fails, once until it answers again: all runs and the claim find out
// at the same time.
type outage struct {
	log *slog.Logger
	mu  sync.Mutex
	on  bool
}

func (o *outage) failed(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.on {
		o.log.Warn("the database fails the worker, which tries again", "error", err)
	}
	o.on = true
}

func (o *outage) over() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.on {
		o.log.Info("the database answers the worker again")
	}
	o.on = false
}
