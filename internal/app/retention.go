package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/user"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/retention"
)

// busyFor is how long a purge by hand waits for a run of a relay, which is usually over in
// milliseconds.
const busyFor = 15 * time.Second

// Purging is one table to purge by hand.
type Purging struct {
	Layout    outbox.Layout
	OlderThan time.Duration
	Archive   retention.Archive
	Required  bool // named, so that its absence is an error
}

// Purge removes old rows of the tables, one after the other, and records it in outbox_audit. A dry
// run counts. The reports are of the tables done, and of the one at which an error occurred.
func Purge(
	ctx context.Context, cfg config.Config, purging []Purging, dryRun bool, progress func(retention.Report),
) (reports []retention.Report, err error) {
	db, err := openNow(ctx, cfg.Database, use{name: "outbox relay", conns: 2, relay: true})
	if err != nil {
		return nil, err
	}
	defer db.Close()
	for _, t := range purging {
		store, err := openRetention(ctx, db, t.Layout)
		var schema *outbox.SchemaError
		if !t.Required && (errors.As(err, &schema) && schema.Table == t.Layout.Table && len(schema.Missing) == 0 ||
			errors.Is(err, retention.ErrNoAge)) {
			continue
		}
		if err != nil {
			return reports, err
		}
		keeper, err := retention.New(store, retention.Config{
			Table: t.Layout.Table, OlderThan: t.OlderThan, Archive: t.Archive,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return reports, err
		}
		var report retention.Report
		if dryRun {
			report, err = keeper.Count(ctx, progress)
		} else {
			report, err = keeper.Purge(ctx, busyFor, progress)
		}
		reports = append(reports, report)
		if !dryRun && report.Rows > 0 {
			// Also of one that was interrupted: what it removed is gone.
			auditing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			err = errors.Join(err, store.Audit(auditing, Actor(), t.OlderThan, report))
			cancel()
		}
		if err != nil {
			return reports, err
		}
	}
	return reports, nil
}

// openRetention opens a table to remove old rows from, or the dead letters.
func openRetention(ctx context.Context, db ForRelay, layout outbox.Layout) (*retention.Table, error) {
	if layout.Table == config.Letters {
		layout = retention.Letters()
	}
	return db.OpenRetention(ctx, layout)
}

// Actor is who runs this process, as far as it can find out, for the record of what operators do.
func Actor() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
