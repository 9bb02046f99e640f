package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

const (
	// stall is how long a table may go without a finished turn. A publish may take 5 s and is then
	// tried again, so twice that and a little.
	stall = 12 * time.Second
)

// backlogLimit is where a relay stops counting a backlog. So many entries of an index took 8 to 15
// ms to count (PostgreSQL 15, after a vacuum).
const backlogLimit = 100_000

// Health is what a readiness probe and an operator need to know of a relay. Before Run has opened
// the tables it knows none, nor their sinks.
type Health struct {
	Ready  bool   // all tables are served and all sinks answer
	Reason string // why not
	Tables map[string]TableHealth
	Sinks  map[string]SinkHealth
	// Unserved are sinks that owe events and that no relay serves, as of the last minute. The relay
	// is ready all the same.
	Unserved []outbox.Debtor
}

// TableHealth is the state of one table.
type TableHealth struct {
	Ready  bool          // leases are renewed, turns are finished, and the backlog can be counted
	Reason string        // why not
	Sink   string        // its name; of a table with Routes the names of all, with commas
	Of     string        // the table whose events Sink owes, if this is a part of outbox_deliveries
	Lanes  int           // held; 0 is a relay standing by for another one
	Paused outbox.Paused // what operators have paused; the table is ready all the same
	// Turned is when each of its loops had begun a turn, be it one that failed; zero before the
	// first.
	Turned time.Time
	// Backlog is as of the last 3 s, or longer ago where the database is slow. It is counted up to
	// 100,000, and nil while it could not be counted.
	Backlog *outbox.Backlog
}

// Health returns the relay's state. It may be called at any time, and asks nobody.
func (r *Relay) Health() Health {
	h := Health{Tables: map[string]TableHealth{}, Sinks: map[string]SinkHealth{}}
	r.mu.Lock()
	h.Reason, h.Unserved = r.waiting, slices.Clone(r.unserved)
	r.mu.Unlock()
	open := r.now()
	for _, t := range open.tables {
		h.Tables[t.cfg.name()] = t.health(time.Now())
	}
	for name, s := range open.sinks {
		h.Sinks[name] = s.health()
	}
	for _, name := range slices.Sorted(maps.Keys(h.Sinks)) {
		if s := h.Sinks[name]; h.Reason == "" && !s.Ready {
			h.Reason = "sink " + name + ": " + s.Reason
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.Tables)) {
		if t := h.Tables[name]; h.Reason == "" && !t.Ready {
			h.Reason = name + ": " + t.Reason
		}
	}
	h.Ready = h.Reason == ""
	return h
}

// health is the table's state. Its progress is that of the worker that made it longest ago: half of
// the keys standing still is not healthy.
func (r *tableRelay) health(now time.Time) TableHealth {
	h := TableHealth{Sink: strings.Join(r.cfg.table.sinks(), ", "), Of: r.cfg.table.Layout.Of}
	r.keeper.mu.Lock()
	renewed, lastErr := r.keeper.renewed, r.keeper.lastErr
	if h.Paused = r.keeper.pauses.Paused; now.Before(r.keeper.until) { // else another relay may have them
		h.Lanes = len(r.keeper.lanes)
	}
	r.keeper.mu.Unlock()
	reason := ""
	if lastErr != nil {
		reason = lastErr.Error()
	}
	var progress time.Time
	var barred string
	for i, w := range r.workers {
		w.mu.Lock()
		if i == 0 || w.progress.Before(progress) {
			progress = w.progress
		}
		if i == 0 || w.turned.Before(h.Turned) {
			h.Turned = w.turned
		}
		reason, barred = cmp.Or(w.lastError, reason), cmp.Or(barred, w.barred)
		w.mu.Unlock()
	}
	r.mu.Lock()
	h.Backlog = r.backlog
	backlogErr := r.backlogErr
	r.mu.Unlock()
	_, stopped := r.stoppedBy()
	if refusal := (*outbox.RefusedError)(nil); errors.As(lastErr, &refusal) && refusal.Whole {
		barred = lastErr.Error() // waiting for the end of the lease changes nothing
	}
	switch {
	case stopped+barred != "":
		h.Reason = cmp.Or(stopped, barred)
	case renewed.IsZero() || now.Sub(renewed) > r.cfg.LeaseTTL:
		h.Reason = since("leases not renewed", now, renewed, reason)
	case h.Lanes > 0 && (progress.IsZero() || now.Sub(progress) > stall+r.publishTimeout()-r.cfg.PublishTimeout):
		h.Reason = since("no batch has made progress", now, progress, reason)
	case backlogErr != nil:
		h.Reason = backlogErr.Error()
	}
	h.Ready = h.Reason == ""
	return h
}

func since(what string, now, began time.Time, why string) string {
	if !began.IsZero() {
		what += " for " + now.Sub(began).Round(time.Second).String()
	}
	if why != "" {
		what += ": " + why
	}
	return what
}

// measure counts the tables' backlogs until ctx ends, one after another: all at once would take as
// many connections. It has the database told what hinders the relay, for whoever cannot ask the
// relay itself, but for the first moments, when nothing has made progress yet.
func measure(ctx context.Context, of serving) error {
	begun := false
	return repeat(ctx, func(ctx context.Context) {
		for _, t := range of.tables {
			t.measure(ctx)
			if begun {
				t.keeper.tell(t.hindrance(of.sinks))
			}
		}
		begun = true
	})
}

// hindrance is LeaseRequest.Health: what the table's health and that of its sinks say, without how
// long, which would be another text each time.
func (r *tableRelay) hindrance(sinks map[string]*sinkState) string {
	h := struct {
		Table string            `json:"table,omitempty"`
		Sinks map[string]string `json:"sinks,omitempty"`
		Slow  map[string]string `json:"slow,omitempty"`
		// Yields: a sink has been unavailable for a lease, so another relay should have the lanes.
		Yields bool `json:"yields,omitempty"`
	}{Table: forColumn(r.health(time.Now()).Reason), Sinks: map[string]string{}, Slow: map[string]string{}}
	for _, name := range r.cfg.table.sinks() {
		if sinks[name] == nil {
			continue
		}
		switch s := sinks[name].health(); {
		case !s.Ready || s.Down:
			h.Sinks[name] = forColumn(cmp.Or(s.Reason, "it acknowledges nothing, and is only probed"))
			h.Yields = h.Yields || sinks[name].unavailable(time.Now()) >= r.cfg.LeaseTTL
		case s.Lags > 0:
			h.Slow[name] = fmt.Sprintf("a batch takes %s or longer", s.Lags)
		}
	}
	if h.Table == "" && len(h.Sinks)+len(h.Slow) == 0 {
		return ""
	}
	text, err := json.Marshal(h)
	if err != nil {
		return "" // texts can be encoded
	}
	return string(text)
}

var lasting = regexp.MustCompile(` for [0-9hms]+s(:|$)`)

// forColumn makes a reason one short line that any database takes.
func forColumn(reason string) string {
	reason = strings.Join(strings.Fields(strings.ReplaceAll(lasting.ReplaceAllString(reason, "$1"), "\x00", " ")), " ")
	if runes := []rune(reason); len(runes) > 300 {
		reason = string(runes[:300]) + "…"
	}
	return reason
}

func (r *tableRelay) measure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var counted *outbox.Backlog
	b, err := r.store.Backlog(ctx, backlogLimit)
	if err == nil {
		counted = &b
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlog, r.backlogErr = counted, err
}
