package app

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/metrics"
	"github.com/outboxrelay/outbox/sink"
)

// process is what the parts of a process share.
type process struct {
	cfg       config.Config
	log       *slog.Logger
	health    *Health
	metrics   *metrics.Metrics
	databases *shared
	telemetry *telemetry
	before    func(sink.Sink) sink.Sink // of Extras
}

func newProcess(cfg config.Config, log *slog.Logger, parts ...string) process {
	p := process{cfg: cfg, log: log, health: newHealth(parts...), metrics: metrics.New(), databases: new(shared),
		telemetry: new(telemetry)}
	p.metrics.Watch(p.health.ofRelay)
	return p
}

// open opens the database for one of the parts, which closes it.
// It waits for a file that another process keeps locked, as it would for a server.
func (p process) open(ctx context.Context, of *part, u use) (db Database, err error) {
	err = await(ctx, p.log, of, "database "+MaskDatabase(p.cfg.Database), func(ctx context.Context) error {
		db, err = p.databases.open(ctx, p.cfg.Database, u)
		return err
	})
	return db, err
}

// run runs main, and serves metrics and health meanwhile if an address is set for them.
func (p process) run(ctx context.Context, main func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer context.AfterFunc(ctx, p.health.stop)()
	p.telemetry.start(ctx, p)
	defer p.telemetry.end(ctx, p.log)
	var telling sync.WaitGroup
	telling.Go(func() { p.health.notify(ctx, p.log) })
	defer telling.Wait()
	defer cancel()
	if p.cfg.Listen == "" {
		return main(ctx)
	}
	// Before anything else, so that one can see what a process waits for; and after everything
	// else, to see it drain.
	server, err := listen(ctx, p.cfg.Listen, p.metrics, p.health, p.log)
	if err != nil {
		return err
	}
	var serving errgroup.Group
	serving.Go(func() error {
		defer cancel() // a process that nobody can watch any more stops, rather than go on unseen
		return server.serve()
	})
	err = main(ctx)
	return errors.Join(err, server.shutdown(ctx), serving.Wait())
}

// openLimit bounds one attempt to open something, so that a server that takes connections and says
// nothing is noticed too.
const openLimit = 15 * time.Second

// await calls open until it succeeds, ctx ends, or it fails in a way that waiting does not cure: a
// daemon is often started before its servers are. what is named in the log and in the part's
// readiness report.
func await(ctx context.Context, log *slog.Logger, p *part, what string, open func(context.Context) error) error {
	return tryOpening(ctx, open, func(err error, tell bool) (again bool) {
		if !passing(err) {
			return false
		}
		p.wait("waiting for " + what + ": " + err.Error())
		if tell {
			log.Warn("waiting for "+what, "part", p.name, "error", err)
		}
		return true
	})
}

// tryOpening calls open until it succeeds, ctx ends, or failed, which is told each failure, does
// not want it again. The log is to tell of each new one, and once a minute of one that stays.
func tryOpening(
	ctx context.Context, open func(context.Context) error, failed func(err error, tell bool) (again bool),
) error {
	said, at := "", time.Time{}
	for pause := 500 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		attempt, cancel := context.WithTimeout(ctx, openLimit)
		err := open(attempt)
		cancel()
		tell := err != nil && (err.Error() != said || time.Since(at) > time.Minute)
		if tell {
			said, at = err.Error(), time.Now()
		}
		if err == nil || ctx.Err() != nil || !failed(err, tell) {
			return err
		}
		if !backoff.Wait(ctx, pause) {
			return ctx.Err()
		}
	}
}
