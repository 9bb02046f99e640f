package wire

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/sink"
)

// outlet is a sink of the settings. It is opened after the tables: a relay that cannot serve those must not wait for a
// broker first.
type outlet struct {
	config.Sink
	open sink.Sink // nil: not needed, or not yet
}

// Publish implements outbox.Sink.
func (o *outlet) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	return o.open.Publish(ctx, batch)
}

// Ping implements outbox.Pinger.
func (o *outlet) Ping(ctx context.Context) error { return o.open.Ping(ctx) }

// Probe implements outbox.Prober.
func (o *outlet) Probe(ctx context.Context) error { return sink.Probe(ctx, o.open) }

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
func (all outlets) sinks() map[string]outbox.Sink {
	sinks := map[string]outbox.Sink{}
	for name, one := range all {
		sinks[name] = one
	}
	return sinks
}

// connect opens the sinks of these names. It waits for servers that are not there yet.
func (all outlets) connect(ctx context.Context, p process, of *part, names []string) error {
	for _, name := range names {
		one := all[name]
		err := await(ctx, p.log, of, one.String(), func(ctx context.Context) error {
			open, err := one.Driver.Open(ctx, one.URL, p.sinkOptions())
			if err != nil {
				return lastingUnlessUnavailable(err)
			}
			one.open = sink.Limit(open, p.cfg.LimitsOf(one.Name))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lastingUnlessUnavailable keeps await from waiting for what a driver says waiting does not cure.
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
		if one.open != nil {
			err = errors.Join(err, one.open.Close())
		}
	}
	return err
}

// attr names the open sinks for the log.
func (all outlets) attr() slog.Attr {
	var group []any
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name].open != nil {
			group = append(group, slog.String(name, all[name].Masked()))
		}
	}
	return slog.Group("sink", group...)
}

// sinkOptions are what the settings say of every sink. The setting's "not at all" is 0, which is the sinks' default.
func (p process) sinkOptions() sink.Options {
	o := sink.Options{Window: p.cfg.DedupWindow, Logger: p.log}
	if o.Window == 0 {
		o.Window = -1
	}
	return o
}
