package retention

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

// Letters is job_dlq as a retention has it: replayed letters are removed.
func Letters() outbox.Layout {
	return outbox.Layout{Table: "job_dlq", ID: "id", DeliveredAt: "replayed_at"}
}

// Serve removes from a table what is due, as r says, until ctx ends, and then returns nil. Where
// open, which opens the table, fails, it is called again after r.Every. Housekeeping that does not
// work, for want of a privilege for instance, is no reason not to deliver. After ErrNoAge it is
// not.
func Serve(
	ctx context.Context, layout outbox.Layout, r outbox.Retention,
	open func(context.Context, outbox.Layout) (*Table, error),
) error {
	cfg, err := configOf(layout.Table, r)
	if err != nil {
		return err
	}
	store := opening(ctx, cfg, layout, open)
	if store == nil {
		return nil
	}
	keeper, err := New(store, cfg)
	if err != nil {
		return err
	}
	return keeper.Run(ctx)
}

// Look is Serve for a table of which work does one run, as it sees fit, while the table's turn is
// this process's.
func Look(
	ctx context.Context, table string, r outbox.Retention, turns Turns, work func(context.Context) error,
) error {
	cfg, err := configOf(table, r)
	if err != nil {
		return err
	}
	cfg.LeaseTTL = lookTTL
	keeper, err := newKeeper(turns, cfg)
	if err != nil {
		return err
	}
	keeper.turn = func(ctx context.Context, _ *run) error { return work(ctx) }
	return keeper.Run(ctx)
}

// lookTTL is how long a run of Look may take.
const lookTTL = time.Minute

func configOf(table string, r outbox.Retention) (Config, error) {
	archive, err := ParseArchive(r.Archive)
	if err != nil {
		return Config{}, fmt.Errorf("configure retention of %s: archive %w", table, err)
	}
	cfg, err := Config{
		Table: table, OlderThan: r.After, Archive: archive, Batch: r.Batch, Every: r.Every, Logger: r.Logger,
		Observer: r.Observer,
	}.withDefaults()
	if err != nil {
		return Config{}, fmt.Errorf("configure retention: %w", err)
	}
	return cfg, nil
}

// opening opens the table, at the end. nil: ctx has ended, or there is nothing to do.
func opening(
	ctx context.Context, cfg Config, layout outbox.Layout, open func(context.Context, outbox.Layout) (*Table, error),
) *Table {
	for failing := false; ; failing = true {
		store, err := open(ctx, layout)
		switch {
		case err == nil:
			return store
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrNoAge):
			cfg.Logger.Warn("old rows stay in the table", "table", cfg.Table, "reason", err)
			return nil
		case !failing:
			cfg.Logger.Error("cannot remove old rows, trying again", "table", cfg.Table, "error", err, "retry_in",
				cfg.Every.String())
		}
		if cfg.Observer != nil {
			cfg.Observer.ObserveRun(cfg.Table, err)
		}
		if !backoff.Wait(ctx, cfg.Every) {
			return nil
		}
	}
}
