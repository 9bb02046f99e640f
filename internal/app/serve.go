package app

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/sink"
)

// Extras are what outbox dev adds to a process. Each may be nil.
type Extras struct {
	// Home answers / and what is below /dev/, where the API has nothing. m are the process's
	// figures, which /metrics shows beside it.
	Home    func(m prometheus.Gatherer) http.Handler
	Sink    func(sink.Sink) sink.Sink // is put before each sink of the relay
	Serving func(address string)      // is told once that the API is served; must not block
}

// Serve runs the parts of cfg.Serve that are on until ctx ends: the gateway, the relay, the worker.
// Each waits for its own servers and stops in its own way; it returns when all have stopped, within
// the streams' window and a few seconds. An error of one, which waiting does not cure, ends all.
func Serve(ctx context.Context, cfg config.Config, log *slog.Logger) error {
	if cfg.Serve.Has(partGateway) && cfg.Serve.Auth == "none" {
		log.Warn("the API asks nobody who he is: whoever reaches its address may do everything as tenant default; "+
			"leave --auth at token for anything but a trial", "address", cfg.Serve.HTTP)
	}
	return ServeWith(ctx, cfg, log, Extras{})
}

// ServeWith is Serve with something added to the gateway.
func ServeWith(ctx context.Context, cfg config.Config, log *slog.Logger, extras Extras) error {
	crawlers, err := builtin(cfg.Serve.Crawlers)
	if err != nil {
		return err
	}
	var on []string
	for _, part := range []string{partGateway, partRelay, partWorker} {
		if cfg.Serve.Has(part) {
			on = append(on, part)
		}
	}
	p := newProcess(cfg, log, on...)
	p.before = extras.Sink
	w := &waker{}
	var parts []func(context.Context) error
	var gateway *api
	for _, name := range on {
		switch name {
		case partGateway:
			gateway = &api{process: p, part: p.health.part(name), waker: w, crawlers: crawlers, extras: extras}
			parts = append(parts, gateway.run)
		case partRelay:
			parts = append(parts, newRelay(p, w).run)
		case partWorker:
			parts = append(parts, (&worker{process: p, part: p.health.part(name), waker: w, crawlers: crawlers}).run)
		}
	}
	return p.run(ctx, func(ctx context.Context) error {
		if gateway != nil {
			// Before a part begins: a process that cannot have its address must not claim runs and
			// lanes on its way out.
			if err := gateway.listen(ctx); err != nil {
				return err
			}
		}
		group, ctx := errgroup.WithContext(ctx)
		for _, run := range parts {
			group.Go(func() error { return run(ctx) })
		}
		return group.Wait()
	})
}
