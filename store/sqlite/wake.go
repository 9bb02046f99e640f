package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
)

// lookEvery is how often Listen looks. A look is a read of shared memory and costs microseconds;
// this many a second are a fraction of a percent of one CPU.
const lookEvery = 5 * time.Millisecond

// Watch implements outbox.Database. A claim that finds nothing is a read of memory already.
func (d served) Watch([]outbox.Store) (func(context.Context, []bool) ([]outbox.Watched, error), error) {
	return nil, nil
}

// Listen implements outbox.Database: it calls wake soon after anybody has committed anything to the
// file, this process or another, with this library or without. It does not know into which table:
// the name is always "". It opens a connection for itself. Waking is a courtesy: one that is lost
// costs the relay's poll interval and nothing else.
func (d served) Listen(ctx context.Context, log *slog.Logger, wake func(table string)) error {
	text, err := plain("wake")
	if err != nil {
		return err
	}
	complained := false
	for {
		err := listen(ctx, d.db, text, func() {
			if complained {
				log.Info("watching for new events again", "file", d.db.path)
			}
			complained = false
		}, wake)
		if ctx.Err() != nil {
			return nil
		}
		if !complained {
			log.Warn("cannot watch for new events, polling only", "file", d.db.path, "error", err)
			complained = true
		}
		if !backoff.Wait(ctx, time.Second) {
			return nil
		}
	}
}

// listen calls ready once it has looked.
func listen(ctx context.Context, db *DB, text string, ready func(), wake func(table string)) (err error) {
	if err := db.check(); err != nil {
		return err
	}
	own, err := sql.Open("sqlite", sqlitefile.Source(db.full, "rw", "deferred", "query_only(1)"))
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, own.Close()) }()
	conn, err := own.Conn(ctx) // one connection: the number is compared with what the same one saw before
	if err != nil {
		return fmt.Errorf("open: %w", explain(err))
	}
	defer func() { _ = conn.Close() }()
	look, err := conn.PrepareContext(ctx, text)
	if err != nil {
		return fmt.Errorf("prepare: %w", explain(err))
	}
	// Or its connection would stay open under the pool's close, and keep the WAL from going.
	defer func() { _ = look.Close() }()
	// With a context that can end, the driver starts a goroutine for each look, which costs as much
	// again.
	alone := context.WithoutCancel(ctx)
	var seen int64
	if err := look.QueryRowContext(alone).Scan(&seen); err != nil {
		return fmt.Errorf("look: %w", explain(err))
	}
	ready()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := db.check(); err != nil {
			return err
		}
		before := seen
		if err := look.QueryRowContext(alone).Scan(&seen); err != nil {
			return fmt.Errorf("look: %w", explain(err))
		}
		if seen != before {
			wake("")
		}
	}
}
