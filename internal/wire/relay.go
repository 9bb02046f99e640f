package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
)

// Relay serves the tables of cfg until ctx ends, then finishes the batches in flight, gives up the lanes and returns
// nil. It waits for servers that are not there yet. Errors are those that waiting does not cure, and a batch that did
// not finish in time.
func Relay(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	p, err := newProcess(cfg, log, partRelay)
	if err != nil {
		return err
	}
	return p.run(ctx, func(ctx context.Context) error { return newRelay(p, &waker{}).run(ctx) })
}

type relay struct {
	process
	part    *part
	breaker *outbox.Breaker // of the one sink that all tables share
	waker   *waker          // is told of the relay of crawl_outbox
}

func newRelay(p process, w *waker) *relay {
	r := &relay{process: p, part: p.health.part(partRelay), breaker: outbox.NewBreaker(), waker: w}
	r.metrics.WatchSink(r.breaker.Open)
	return r
}

func (r *relay) run(ctx context.Context) error {
	wanted, err := r.cfg.Tables()
	if err != nil {
		return err
	}
	// For each table one connection a worker, one to renew leases, one to measure the backlog and one for retention;
	// and two to spare.
	db, err := r.open(ctx, r.part, use{name: "outbox relay", conns: (r.cfg.Workers+3)*len(wanted) + 2, relay: true})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	defer db.Close()
	var tables []served
	err = await(ctx, r.log, r.part, "database "+config.MaskDatabase(r.cfg.Database),
		func(ctx context.Context) (err error) {
			tables, err = openTables(ctx, db, wanted)
			return err
		})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	r.warnPlaintext(ctx, db)
	var sink brokerSink
	err = await(ctx, r.log, r.part, r.broker.name(), func(ctx context.Context) (err error) {
		sink, err = r.broker.sink(ctx)
		return err
	})
	if err != nil {
		return unlessStopped(ctx, err)
	}
	return errors.Join(r.serve(ctx, db, sink, tables), sink.Close())
}

// unlessStopped drops an error that came of being told to stop.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (r *relay) serve(ctx context.Context, db Database, sink brokerSink, tables []served) error {
	relays := map[string]*outbox.Relay{}
	var watched []*watchedTable
	var names []string
	for _, t := range tables {
		observer := r.metrics.Table(t.Name())
		one, err := r.build(t, sink, observer)
		if err != nil {
			return fmt.Errorf("build relay of %s: %w", t.Name(), err)
		}
		relays[t.Name()] = one
		watched = append(watched, &watchedTable{name: t.Name(), relay: one, store: t.store, metrics: observer})
		names = append(names, t.Name())
	}
	if one, ok := relays[runEvents]; ok {
		r.waker.own.Store(one)
	}
	r.log.Info("relaying", "tables", names, "database", config.MaskDatabase(r.cfg.Database), r.broker.attr())
	group, ctx := errgroup.WithContext(ctx)
	for _, one := range relays {
		group.Go(func() error { return one.Run(ctx) })
	}
	group.Go(func() error {
		return db.Listen(ctx, r.log, func(table string) {
			for name, one := range relays {
				if table == name || table == "" {
					one.Wake()
				}
			}
		})
	})
	r.part.serve(ctx, group, sink.Ping)
	r.health.watch(ctx, group, watched)
	r.retain(ctx, group, db, tables)
	err := group.Wait()
	if err == nil {
		r.log.Info("stopped relaying", "tables", names)
	}
	return err
}

func (r *relay) build(t served, sink outbox.Sink, observer outbox.Observer) (*outbox.Relay, error) {
	cfg := outbox.RelayConfig{
		Name: t.Name(), Workers: r.cfg.Workers, BatchRecords: r.cfg.Batch, BatchBytes: r.cfg.BatchBytes,
		PollMin: r.cfg.PollMin, PollMax: r.cfg.PollMax,
		LeaseTTL: r.cfg.LeaseTTL, MaxAttempts: t.MaxAttempts,
		Backoff:  outbox.Backoff{Base: t.BackoffBase, Factor: r.cfg.BackoffFactor, Cap: r.cfg.BackoffCap},
		Policies: r.cfg.Policies(t.Name()), Breaker: r.breaker, RecoveryRate: r.cfg.RecoveryRate, Logger: r.log,
		Observer: observer,
	}
	var err error
	if cfg.Envelope, err = r.cfg.EnvelopeOf(t.Name()); err != nil {
		return nil, err
	}
	if cfg.RecoveryRate == 0 {
		cfg.RecoveryRate = -1 // the setting's "as many as possible"; the relay's zero is its default
	}
	if !r.cfg.OwnRunChannels(t.Name(), t.Destination) {
		cfg.Reserved = r.cfg.ReservedChannels()
	}
	if t.Destination != "" {
		template, err := outbox.ParseTemplate(t.Destination)
		if err != nil {
			return nil, err
		}
		cfg.Destination = template
	}
	return outbox.NewRelay(t.store, sink, cfg)
}
