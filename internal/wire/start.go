package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/tables"
)

// openLimit bounds one attempt to open something, so that a server that takes connections and says nothing is noticed
// too.
const openLimit = 15 * time.Second

// await calls open until it succeeds, ctx ends, or it fails in a way that waiting does not cure: a daemon is often
// started before its servers are. what is named in the log and in the part's readiness report.
func await(ctx context.Context, log *slog.Logger, p *part, what string, open func(context.Context) error) error {
	pause := 500 * time.Millisecond
	for {
		attempt, cancel := context.WithTimeout(ctx, openLimit)
		err := open(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		p.wait("waiting for " + what + ": " + err.Error())
		log.Warn("waiting for "+what, "part", p.name, "error", err, "retry_in", pause.String())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause = min(2*pause, 5*time.Second)
	}
}

// served is a table, opened, and what its relay needs to know.
type served struct {
	config.Table
	store tables.Store
}

var errNoTable = errors.New("there is no table to serve")

// openTables opens the tables that must exist and, of the others, those that do.
func openTables(ctx context.Context, db ForRelay, wanted []config.Table) ([]served, error) {
	var open []served
	var missing []string
	for _, t := range wanted {
		store, err := db.Table(ctx, t.Layout)
		var schema *outbox.SchemaError
		if errors.As(err, &schema) && schema.Table == t.Name() && len(schema.Missing) == 0 && !t.Required {
			missing = append(missing, t.Name())
			continue
		}
		if err != nil {
			return nil, err
		}
		open = append(open, served{t, store})
	}
	if len(open) == 0 {
		return nil, fmt.Errorf("%w: none of %s exists: run: outbox migrate up, or map a table of your own with --layout",
			errNoTable, strings.Join(missing, ", "))
	}
	return open, nil
}
