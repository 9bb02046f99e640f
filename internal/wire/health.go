package wire

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/metrics"
	"github.com/outboxrelay/outbox/store/postgres"
)

const (
	// stall is how long a relay may go without a finished turn. A publish may take 5 s and is then tried again, so twice that and a little.
	stall = 12 * time.Second
	// probeEvery is how often the backlog is counted and Redis is asked. An idle relay does not talk to Redis at all: without asking it would
	// look healthy until the next event found it gone.
	probeEvery   = 3 * time.Second
	probeTimeout = 2 * time.Second
)

// Health knows whether this process does its job.
type Health struct {
	leaseTTL time.Duration

	mu      sync.Mutex
	waiting string // why there is nothing to be healthy yet, or no more
	sinkErr error
	tables  []*watchedTable
}

// watchedTable is a table with its relay. backlogErr is guarded by Health.mu.
type watchedTable struct {
	name       string
	relay      *outbox.Relay
	store      *postgres.Store
	metrics    *metrics.Table
	backlogErr error
}

// Report is the answer of /readyz.
type Report struct {
	Ready  bool                   `json:"ready"`
	Reason string                 `json:"reason,omitempty"`
	Tables map[string]TableReport `json:"tables,omitempty"`
}

// TableReport is the state of one table's relay.
type TableReport struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	Lanes  int    `json:"lanes"` // 0: standing by for the relay that holds them
}

func newHealth(leaseTTL time.Duration) *Health {
	return &Health{leaseTTL: leaseTTL, waiting: "starting"}
}

func (h *Health) wait(why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = why
}

// watch adds the probes to group; they end with ctx.
func (h *Health) watch(ctx context.Context, group *errgroup.Group, sink interface{ Ping(context.Context) error }, tables []*watchedTable) {
	h.mu.Lock()
	h.tables = tables
	if ctx.Err() == nil {
		h.waiting = ""
	}
	h.mu.Unlock()
	probe := func(fn func(context.Context)) {
		group.Go(func() error {
			every(ctx, probeEvery, func() {
				ctx, cancel := context.WithTimeout(ctx, probeTimeout)
				defer cancel()
				fn(ctx)
			})
			return nil
		})
	}
	probe(func(ctx context.Context) {
		err := sink.Ping(ctx)
		h.mu.Lock()
		defer h.mu.Unlock()
		h.sinkErr = err
	})
	for _, t := range tables {
		probe(func(ctx context.Context) { h.measure(ctx, t) })
	}
}

// countLanes sets the gauge that costs nothing to read. It is done for each scrape: lanes change hands in milliseconds, and their sum over all
// relays is what one watches.
func (h *Health) countLanes() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tables {
		t.metrics.SetLanes(t.relay.Health().Lanes)
	}
}

func (h *Health) measure(ctx context.Context, t *watchedTable) {
	backlog, err := t.store.Backlog(ctx, metrics.BacklogLimit)
	if err != nil {
		t.metrics.ForgetBacklog()
	} else {
		t.metrics.SetBacklog(backlog.Count, backlog.Oldest)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	t.backlogErr = err
}

// every calls fn at once and then in intervals of d until ctx ends.
func every(ctx context.Context, d time.Duration, fn func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for ctx.Err() == nil {
		fn()
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Report tells whether the relays of all tables do their job, and if not, why.
func (h *Health) Report(now time.Time) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{Ready: true, Tables: map[string]TableReport{}}
	for _, t := range h.tables {
		state := t.relay.Health()
		ready, reason := state.Ready(now, h.leaseTTL, stall)
		if ready && t.backlogErr != nil {
			ready, reason = false, t.backlogErr.Error()
		}
		r.Tables[t.name] = TableReport{Ready: ready, Reason: reason, Lanes: state.Lanes}
		if !ready {
			r.Ready, r.Reason = false, fmt.Sprintf("%s: %s", t.name, reason)
		}
	}
	if h.sinkErr != nil {
		r.Ready, r.Reason = false, h.sinkErr.Error()
	}
	if h.waiting != "" {
		r.Ready, r.Reason = false, h.waiting
	}
	return r
}
