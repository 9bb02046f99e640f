package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/relay"
)

// Relay serves the tables of cfg until ctx ends, then finishes the batches in flight, gives up the
// lanes and returns nil. It waits for servers that are not there yet. Errors are those that waiting
// does not cure, and a batch that did not finish in time.
func Relay(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	p := newProcess(cfg, log, partRelay)
	return p.run(ctx, func(ctx context.Context) error { return newRelay(p, &waker{}).run(ctx) })
}

// relay is the part that delivers.
type relayPart struct {
	process
	part    *part
	outlets outlets // the sinks, by name
	waker   *waker  // is told of the relay
}

func newRelay(p process, w *waker) *relayPart {
	return &relayPart{process: p, part: p.health.part(partRelay), outlets: newOutlets(p.cfg), waker: w}
}

func (r *relayPart) run(ctx context.Context) error {
	wanted, err := r.cfg.Tables()
	if err != nil {
		return err
	}
	// For each table, and what each of its sinks owes, one connection a worker, one to renew
	// leases, one to measure the backlog and one for retention. Two are to spare.
	served := len(wanted)
	for _, t := range wanted {
		served += owing(r.cfg, t)
	}
	db, err := r.open(ctx, r.part, use{name: "outbox relay", alike: r.cfg.Fingerprint(), relay: true,
		conns: (workers+3)*served + 2})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer db.Close()
	if err := await(ctx, r.log, r.part, "database "+MaskDatabase(r.cfg.Database), db.Ping); err != nil {
		return unlessStopped(ctx, err)
	}
	cfg, err := r.config(wanted)
	if err != nil {
		return err
	}
	one, err := relay.New(db, nil, cfg)
	if err != nil {
		return err
	}
	if err := one.Open(ctx); err != nil {
		return unlessStopped(ctx, err)
	}
	r.warnPlaintext(ctx, db)
	opened := one.Health()
	used := slices.Sorted(maps.Keys(opened.Sinks))
	var needed []string // a table goes there alone: what waiting does not cure is the end
	for _, t := range cfg.Tables {
		_, served := opened.Tables[t.Layout.Name()]
		if served && len(t.Routes) == 0 && !slices.Contains(needed, t.Sink) {
			needed = append(needed, t.Sink)
		}
	}
	late, err := r.outlets.connect(ctx, r.process, needed)
	if err != nil {
		return unlessStopped(ctx, errors.Join(err, r.outlets.close()))
	}
	others := slices.DeleteFunc(used, func(name string) bool { return slices.Contains(needed, name) })
	opening, stop := context.WithCancel(ctx)
	connected := r.outlets.connectLater(opening, r.process, append(others, late...))
	var counting sync.WaitGroup
	counting.Go(func() { r.observeFacts(opening, db) })
	counting.Go(func() { r.examine(opening, db) })
	r.log.Info("connected", "database", MaskDatabase(r.cfg.Database), r.outlets.attr())
	r.waker.own.Store(one)
	r.health.watch(one)
	r.part.wait("")
	err = one.Run(ctx)
	stop()
	connected()
	counting.Wait()
	return errors.Join(err, r.outlets.close())
}

const (
	workers = 2 // loops of a table; docs/adr/0004 has the measurement

	factsEvery = 15 * time.Second
	factsLimit = 10_000 // of one count
)

// observeFacts reads the facts for the metrics of dead letters, groups and subscriptions until ctx
// ends.
func (r *relayPart) observeFacts(ctx context.Context, db Database) {
	tables := condition.WatchKnown(r.cfg)
	every(ctx, factsEvery, func() {
		asking, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		r.metrics.ObserveFacts(db.Facts(asking, tables, factsLimit))
	})
}

// owing is how many sinks a relay of their own serves what they did not take of a table.
func owing(cfg config.Config, t config.Table) int {
	if !t.Layout.KeepsState() {
		return max(len(cfg.SinksOwing(t.Name())), 1)
	}
	return len(cfg.SinksOwing(t.Name()))
}

// unlessStopped drops an error that came of being told to stop.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// config returns what the settings say to the library.
func (r *relayPart) config(wanted []config.Table) (relay.Config, error) {
	cfg := relay.Config{
		Workers: workers, BatchRecords: r.cfg.Batch, PollMax: r.cfg.PollMax,
		RouteTimeout: r.cfg.RouteTimeout, LeaseTTL: r.cfg.LeaseTTL,
		Sinks: r.outlets.sinks(r.telemetry), Logger: r.log, Observer: r.metrics,
		LetterRetention: r.retention(config.Letters),
	}
	if slices.ContainsFunc(wanted, func(t config.Table) bool { return owing(r.cfg, t) > 0 }) {
		cfg.Retention = r.retention(outbox.DeliveriesOf("", "").Table)
	}
	for _, t := range wanted {
		table := relay.Table{
			Layout: t.Layout, Optional: !t.Required, MaxAttempts: t.MaxAttempts, Backoff: relay.Backoff{Base: t.BackoffBase},
			Policies: r.cfg.Policies(t.Name()), Retention: r.retention(t.Name()),
		}
		var err error
		if table.Routes = r.cfg.RoutesOf(t.Name()); len(table.Routes) == 0 {
			to, err := r.cfg.SinkOf(t.Name())
			if err != nil {
				return cfg, err
			}
			table.Sink = to.Name
		}
		table.Envelope = r.cfg.EnvelopeOf(t.Name())
		if t.Destination != "" {
			if table.Destination, err = outbox.ParseTemplate(t.Destination); err != nil {
				return cfg, err
			}
		}
		if !r.cfg.OwnRunChannels(t.Name(), t.Destination) {
			table.Reserved = r.cfg.ReservedChannels()
		}
		cfg.Tables = append(cfg.Tables, table)
	}
	return cfg, nil
}

// retention returns what the settings say of a table's old rows.
func (r *relayPart) retention(table string) outbox.Retention {
	age, archive := r.cfg.RetentionOf(table)
	kept := outbox.Retention{After: age, Archive: archive.String(), Observer: r.metrics}
	if age == 0 {
		kept.After = -1 // the setting's "for ever"; the relay's zero is its default
		return kept
	}
	r.metrics.Retaining(table, archive)
	return kept
}
