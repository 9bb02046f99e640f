package app

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/relay"
)

const (
	stall        = 12 * time.Second // how long a worker may go without a claim that did not fail
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
	mu       sync.Mutex
	stopping bool
	parts    []*part
	relay    *relay.Relay // nil: there is none, or none yet
	report   condition.Report
}

// part is one of the things that a process does. All is guarded by Health.mu.
type part struct {
	health  *Health
	name    string
	waiting string // why there is nothing to be healthy yet
	err     error  // of the last probe
	note    func() string
}

// Report is the answer of /readyz.
type Report struct {
	Ready  bool                   `json:"ready"`
	Reason string                 `json:"reason,omitempty"`
	Parts  map[string]PartReport  `json:"parts,omitempty"`
	Tables map[string]TableReport `json:"tables,omitempty"`
	Sinks  map[string]PartReport  `json:"sinks,omitempty"` // those that the relay publishes to
	// Unserved are sinks that owe events, as SINK of TABLE, and that no relay serves. The relay is
	// ready all the same.
	Unserved []string `json:"unserved,omitempty"`
	// Conditions are what the last examination has found, the worst first; see outbox doctor. The
	// process may be ready all the same.
	Conditions []condition.Finding `json:"conditions,omitempty"`
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
	Sink   string `json:"sink"`  // the name of the one that its events go to
	// Paused says that operators have paused the table, the others which parts of it. It is ready
	// all the same.
	Paused             bool     `json:"paused,omitempty"`
	PausedTopics       []string `json:"pausedTopics,omitempty"`
	PausedDestinations []string `json:"pausedDestinations,omitempty"`
}

// untold stands for a reason, in which an address of the network or the name of a role may be.
const untold = "ask from the machine itself, or see the log"

// forStrangers returns the report without its reasons.
func (r Report) forStrangers() Report {
	r.Reason = withheld(r.Reason)
	parts, tables, sinks := map[string]PartReport{}, map[string]TableReport{}, map[string]PartReport{}
	for name, p := range r.Parts {
		parts[name] = p.forStrangers()
	}
	for name, t := range r.Tables {
		t.Reason = withheld(t.Reason)
		tables[name] = t
	}
	for name, s := range r.Sinks {
		sinks[name] = s.forStrangers()
	}
	r.Parts, r.Tables, r.Sinks = parts, tables, sinks
	r.Conditions = slices.Clone(r.Conditions)
	for i := range r.Conditions {
		c := &r.Conditions[i]
		c.About, c.Says, c.Remedy = withheld(c.About), withheld(c.Says), withheld(c.Remedy)
	}
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

func newHealth(parts ...string) *Health {
	h := &Health{}
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

// serve says that the part does its job as long as its probe succeeds, which is added to group and
// ends with ctx.
func (p *part) serve(ctx context.Context, group *errgroup.Group, ask func(context.Context) error) {
	p.wait("")
	probe(ctx, group, func(ctx context.Context) {
		err := ask(ctx)
		p.health.mu.Lock()
		defer p.health.mu.Unlock()
		p.err = err
	})
}

// watch makes the relay's state a part of the report.
func (h *Health) watch(r *relay.Relay) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relay = r
}

// found takes over what an examination has found.
func (h *Health) found(r condition.Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.report = r
}

// ofRelay returns the relay's state, of which nothing is known where there is none.
func (h *Health) ofRelay() relay.Health {
	h.mu.Lock()
	watched := h.relay
	h.mu.Unlock()
	if watched == nil {
		return relay.Health{Ready: true}
	}
	return watched.Health()
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

// Report tells whether the parts do their jobs, and if not, why.
func (h *Health) Report() Report {
	state := h.ofRelay()
	h.mu.Lock()
	defer h.mu.Unlock()
	r := Report{Ready: true, Parts: map[string]PartReport{}, Tables: map[string]TableReport{},
		Sinks: map[string]PartReport{}, Conditions: h.report.Findings}
	for name, s := range state.Sinks {
		r.Sinks[name] = PartReport{Ready: s.Ready, Reason: s.Reason}
	}
	for _, d := range state.Unserved {
		r.Unserved = append(r.Unserved, d.Sink+" of "+d.Table)
	}
	for name, t := range state.Tables {
		r.Tables[name] = TableReport{
			Ready: t.Ready, Reason: t.Reason, Lanes: t.Lanes, Sink: t.Sink, Paused: t.Paused.Table,
			PausedTopics: t.Paused.Topics, PausedDestinations: t.Paused.Destinations,
		}
	}
	for _, p := range h.parts {
		report := p.report()
		if p.name == partRelay && report.Ready && !state.Ready {
			report.Ready, report.Reason = false, state.Reason
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
