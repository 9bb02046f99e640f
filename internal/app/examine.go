package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pooler"
)

// Examine looks for conditions in the database and the sinks of the settings, which it connects to
// and leaves again. It writes nothing.
func Examine(
	ctx context.Context, cfg config.Config, limits condition.Limits, which condition.Selection, canary condition.Canary,
) (condition.Report, error) {
	p := newProcess(cfg, slog.New(slog.DiscardHandler))
	x := examination(cfg, nil)
	x.Limits, x.Canary = limits, canary
	db, err := openSoon(ctx, cfg, use{name: "outbox doctor", conns: 2})
	if errors.As(err, new(*pooler.SuperuserError)) {
		return condition.Report{}, err
	}
	if err != nil {
		x.DBErr = err
	} else {
		defer db.Close()
		x.DB = db
	}
	all := newOutlets(cfg)
	x.Sink = func(ctx context.Context, s config.Sink) (outbox.Sink, error) {
		one := all[s.Name]
		return one, one.open(ctx, p)
	}
	report := x.Examine(ctx, which)
	return report, errors.Join(ctx.Err(), all.close())
}

// examination is that of a database, which may be nil, by the usual limits and without sinks.
func examination(cfg config.Config, db condition.Database) condition.Examination {
	x := condition.Examination{Config: cfg, DB: db, Limits: condition.Usual,
		Migrations: func(ctx context.Context) ([]migration.SetStatus, error) {
			return MigrationsOf(cfg.Database).Status(ctx)
		}}
	x.Required = MigrationsOf(cfg.Database).Required
	x.File, _ = FileOf(cfg.Database)
	return x
}

// Status reads the facts of the tables of the settings and judges them, in at most 5 s. A database
// that does not answer is a finding, and no error.
func Status(ctx context.Context, cfg config.Config) (condition.Status, error) {
	x := examination(cfg, nil)
	db, err := openSoon(ctx, cfg, use{name: "outbox status", conns: 1})
	if errors.As(err, new(*pooler.SuperuserError)) {
		return condition.Status{}, err
	}
	if x.DBErr = err; err == nil {
		defer db.Close()
		x.DB = db
	}
	limited, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	return x.Status(limited), ctx.Err()
}

// The database must accept a connection within openPatience, and then answer within answerPatience,
// so that its absence is reported within 5 s.
const (
	openPatience   = 3 * time.Second
	answerPatience = 2 * time.Second
)

func openSoon(ctx context.Context, cfg config.Config, u use) (Database, error) {
	ctx, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	return openNow(ctx, cfg.Database, u)
}

// Why explains where an event is: in the named table, or "" for any that the settings know.
func Why(ctx context.Context, cfg config.Config, table, tenant, id string) (condition.Explanation, error) {
	db, err := openNow(ctx, cfg.Database, use{name: "outbox why", conns: 2})
	if err != nil {
		return condition.Explanation{}, err
	}
	defer db.Close()
	x := examination(cfg, db)
	e, err := x.Why(ctx, table, tenant, id)
	if errors.Is(err, operate.ErrNoEvent) {
		return whyLogged(ctx, cfg, db, table, tenant, id)
	}
	return e, err
}

// examineEvery is how often a relay looks for conditions.
const examineEvery = time.Minute

// examine looks for conditions until ctx ends, for the metric and for /readyz. The sinks are those
// that the relay has open.
func (r *relayPart) examine(ctx context.Context, db Database) {
	x := examination(r.cfg, db)
	x.Sink = func(_ context.Context, s config.Sink) (outbox.Sink, error) { return r.outlets[s.Name].opened() }
	every(ctx, examineEvery, func() {
		report := x.Examine(ctx, condition.Selection{})
		if ctx.Err() == nil {
			r.metrics.ObserveConditions(report)
			r.health.found(report)
		}
	})
}
