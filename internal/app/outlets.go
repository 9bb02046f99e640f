package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/sink"
)

// outlet is a sink of the settings. It is opened after the tables: a relay that cannot serve those
// must not wait for a broker first.
type outlet struct {
	config.Sink

	mu   sync.Mutex
	sink sink.Sink // nil: not needed, or not yet
	err  error     // why not yet
}

// open opens the sink.
func (o *outlet) open(ctx context.Context, p process) error {
	opened, err := o.Driver.Open(ctx, o.URL, p.sinkOptions())
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err = err; err == nil {
		if p.before != nil {
			opened = p.before(opened)
		}
		o.sink = sink.Limited(opened, p.cfg.LimitsOf(o.Name))
	}
	return err
}

// opened returns the sink. The error is of class outbox.ClassUnavailable.
func (o *outlet) opened() (sink.Sink, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.sink != nil:
		return o.sink, nil
	case o.err != nil:
		return nil, outbox.Unavailable(fmt.Errorf("not connected yet: %w", o.err))
	}
	return nil, outbox.Unavailable(errors.New("not connected yet"))
}

// Publish implements outbox.Sink.
func (o *outlet) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	s, err := o.opened()
	if err == nil {
		return s.Publish(ctx, batch)
	}
	results := make([]outbox.Result, len(batch))
	for i := range results {
		results[i].Err = err
	}
	return results
}

// Abilities implements outbox.Able: they are the sink's, once it is open.
func (o *outlet) Abilities() outbox.Abilities {
	s, err := o.opened()
	if err != nil {
		return outbox.Abilities{Ping: func(context.Context) error { return err }}
	}
	return s.Abilities()
}

// outlets are the sinks of the settings by their names.
type outlets map[string]*outlet

func newOutlets(cfg config.Config) outlets {
	all := outlets{}
	for _, s := range cfg.AllSinks() {
		all[s.Name] = &outlet{Sink: s}
	}
	return all
}

// sinks are the outlets as a relay takes them.
func (all outlets) sinks(t *telemetry) map[string]outbox.Sink {
	sinks := map[string]outbox.Sink{}
	for name, one := range all {
		sinks[name] = t.sink(one, system(one.Driver))
	}
	return sinks
}

// system is what OpenTelemetry calls the servers of a driver.
func system(d sink.Driver) string {
	scheme, _, _ := strings.Cut(d.Schemes[0], "+")
	return cmp.Or(d.System, scheme)
}

// connect opens the sinks of these names, and returns those whose servers are not there yet.
func (all outlets) connect(ctx context.Context, p process, names []string) (late []string, err error) {
	for _, name := range names {
		attempt, cancel := context.WithTimeout(ctx, openLimit)
		err := all[name].open(attempt, p)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && passing(lastingUnlessUnavailable(err)):
			late = append(late, name)
		case err != nil:
			return nil, err
		}
	}
	return late, nil
}

// connectLater opens the sinks of these names beside each other, each in its own time and whatever
// keeps it from opening, until ctx ends. Events for them wait meanwhile, and the relay tells why.
// wait returns after that.
func (all outlets) connectLater(ctx context.Context, p process, names []string) (wait func()) {
	var opening sync.WaitGroup
	for _, name := range names {
		opening.Go(func() {
			one := all[name]
			err := tryOpening(ctx, func(ctx context.Context) error { return one.open(ctx, p) },
				func(err error, tell bool) (again bool) {
					if class, _ := outbox.Classify(err); tell && class == outbox.ClassUnavailable {
						p.log.Warn("waiting for "+one.String(), "error", err)
					} else if tell {
						p.log.Error("cannot open "+one.String()+"; its events wait until it is corrected", "error", err)
					}
					return true
				})
			if err == nil {
				p.log.Info("connected", "sink", name, "server", one.Masked())
			}
		})
	}
	return opening.Wait
}

// lastingUnlessUnavailable is an error that is no passing one, unless the driver says that waiting
// may cure it.
func lastingUnlessUnavailable(err error) error {
	class, _ := outbox.Classify(err)
	if class == outbox.ClassUnavailable || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return outbox.Permanent(err)
}

// close closes what connect has opened.
func (all outlets) close() (err error) {
	for _, one := range all {
		if s, notOpen := one.opened(); notOpen == nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// attr names the open sinks for the log.
func (all outlets) attr() slog.Attr {
	var group []any
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if _, err := all[name].opened(); err == nil {
			group = append(group, slog.String(name, all[name].Masked()))
		}
	}
	return slog.Group("sink", group...)
}

// sinkOptions are what the settings say of every sink. The setting's "not at all" is 0, which is
// the sinks' default.
func (p process) sinkOptions() sink.Options {
	o := sink.Options{Window: p.cfg.DedupWindow, Logger: p.log}
	if o.Window == 0 {
		o.Window = -1
	}
	return o
}
