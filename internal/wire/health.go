package wire

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/metrics"
	"github.com/outboxrelay/outbox/tables"
)

const (
	// stall is how long a relay may go without a finished turn, and a worker without a claim that did not fail. A
	// publish may take 5 s and is then tried again, so twice that and a little.
	stall = 12 * time.Second
	// probeEvery is how often the backlog is counted and Redis is asked. An idle relay does not talk to Redis at all:
	// without asking it would look healthy until the next event found it gone.
	probeEvery   = 3 * time.Second
	probeTimeout = 2 * time.Second
)

// The parts of a process, as /readyz calls them.
const (
	partGateway = "gateway"
	partRelay   = "relay"
	partWorker  = "worker"
)

// Health knows whether this process does its job.
type Health struct {
	leaseTTL time.Duration

	mu       sync.Mutex
	stopping bool
	parts    []*part
	tables   []*watchedTable
}

// part is one of the things that a process does. All is guarded by Health.mu.
type part struct {
	health  *Health
	name    string
	waiting string // why there is nothing to be healthy yet
	err     error  // of the last probe
	note    func() string
}

// watchedTable is a table with its relay. backlogErr is guarded by Health.mu.
type watchedTable struct {
	name       string
	relay      *outbox.Relay
	store      tables.Store
	metrics    *metrics.Table
	backlogErr error
}

// Report is the answer of /readyz.
type Report struct {
	Ready  bool                   `json:"ready"`
	Reason string                 `json:"reason,omitempty"`
	Parts  map[string]PartReport  `json:"parts,omitempty"`
	Tables map[string]TableReport `json:"tables,omitempty"`
}

// PartReport is the state of the gateway, the relay or the worker.
type PartReport struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	Note   string `json:"note,omitempty"` // what is wrong and hinders nobody
}

// TableReport is the state of one table's relay.
type TableReport struct {
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"`
	Lanes  int    `json:"lanes"` // 0: standing by for the relay that holds them
	// Paused says that operators have paused the table, the others which parts of it. It is ready all the same.
	Paused             bool     `json:"paused,omitempty"`
	PausedTopics       []string `json:"pausedTopics,omitempty"`
	PausedDestinations []string `json:"pausedDestinations,omitempty"`
}

// untold stands for a reason, in which an address of the network or the name of a role may be.
const untold = "ask from the machine itself, or see the log"

// forStrangers returns the report without its reasons.
func (r Report) forStrangers() Report {
	r.Reason = withheld(r.Reason)
	parts, tables := map[string]PartReport{}, map[string]TableReport{}
	for name, p := range r.Parts {
		parts[name] = p.forStrangers()
	}
	for name, t := range r.Tables {
		t.Reason = withheld(t.Reason)
		tables[name] = t
	}
	r.Parts, r.Tables = parts, tables
	return r
}

func (r PartReport) forStrangers() PartReport {
	r.Reason, r.Note = withheld(r.Reason), withheld(r.Note)
	return r
}

func withheld(text string) string {
	if text == "" {
		return ""
	}
	return untold
}

func newHealth(leaseTTL time.Duration, parts ...string) *Health {
	h := &Health{leaseTTL: leaseTTL}
	for _, name := range parts {
		h.parts = append(h.parts, &part{health: h, name: name, waiting: "starting"})
	}
	return h
}

// part returns one of those that newHealth was told of.
func (h *Health) part(name string) *part {
	return h.parts[slices.IndexFunc(h.parts, func(p *part) bool { return p.name == name })]
}

func (h *Health) stop() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

func (p *part) wait(why string) {
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	p.waiting = why
}

// notes has the part's report tell what is wrong and hinders nobody.
func (p *part) notes(note func() string) {
	p.health.mu.Lock()
	defer p.health.mu.Unlock()
	p.note = note
}

// serve says that the part does its job as long as its probe succeeds, which is added to group and ends with ctx.
func (p *part) serve(ctx context.Context, group *errgroup.Group, ask func(context.Context) error) {
	p.wait("")
	probe(ctx, group, func(ctx context.Context) {
		err := ask(ctx)
		p.health.mu.Lock()
		defer p.health.mu.Unlock()
		p.err = err
	})
}

// watch adds the probes of tables to group; they end with ctx.
func (h *Health) watch(ctx context.Context, group *errgroup.Group, watched []*watchedTable) {
	h.mu.Lock()
	h.tables = watched
	h.mu.Unlock()
	for _, t := range watched {
		probe(ctx, group, func(ctx context.Context) { h.measure(ctx, t) })
	}
}

func probe(ctx context.Context, group *errgroup.Group, fn func(context.Context)) {
	group.Go(func() error {
		every(ctx, probeEvery, func() {
			ctx, cancel := context.WithTimeout(ctx, probeTimeout)
			defer cancel()
			fn(ctx)
		})
		return nil
	})
}

// countLanes sets the gauge that costs nothing to read. It is done for each scrape: lanes change hands in milliseconds,
// and their sum over all relays is what one watches.
func (h *Health) countLanes() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tables {
		state := t.relay.Health()
		t.metrics.SetLanes(state.Lanes)
		t.metrics.SetPaused(state.Paused.Any())
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

// Report tells whether the parts do their jobs, the relay that of all its tables, and if not, why.
func (h *Health) Report(now time.Time) Report {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{Ready: true, Parts: map[string]PartReport{}, Tables: map[string]TableReport{}}
	behind := "" // what is wrong with a table
	for _, t := range h.tables {
		state := t.relay.Health()
		ready, reason := state.Ready(now, h.leaseTTL, stall)
		if ready && t.backlogErr != nil {
			ready, reason = false, t.backlogErr.Error()
		}
		r.Tables[t.name] = TableReport{
			Ready: ready, Reason: reason, Lanes: state.Lanes, Paused: state.Paused.Table,
			PausedTopics: state.Paused.Topics, PausedDestinations: state.Paused.Destinations,
		}
		if !ready {
			behind = fmt.Sprintf("%s: %s", t.name, reason)
		}
	}
	for _, p := range h.parts {
		report := p.report()
		if p.name == partRelay && report.Ready && behind != "" {
			report.Ready, report.Reason = false, behind
		}
		if h.stopping {
			report.Ready, report.Reason = false, "stopping"
		}
		r.Parts[p.name] = report
		if !report.Ready {
			r.Ready, r.Reason = false, report.Reason
		}
	}
	return r
}

func (p *part) report() PartReport {
	r := PartReport{Ready: true}
	switch {
	case p.waiting != "":
		r.Ready, r.Reason = false, p.waiting
	case p.err != nil:
		r.Ready, r.Reason = false, p.err.Error()
	}
	if p.note != nil {
		r.Note = p.note()
	}
	return r
}
