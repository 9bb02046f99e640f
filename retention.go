package outbox

import (
	"cmp"
	"log/slog"
	"time"
)

// Retention is how long rows stay in a table that need not, delivered ones and replayed dead
// letters, and what becomes of them then. Zero means the default in parentheses.
type Retention struct {
	After   time.Duration // since delivery or replay (7 days; negative: they stay)
	Archive string        // table (into outbox_archive), none, or a directory for compressed files (table)
	Batch   int           // rows a transaction (1000)
	Every   time.Duration // between looking for them (1 min)

	Logger   *slog.Logger // (the relay's, or slog.Default)
	Observer Observer     // may be nil
}

// WithDefaults returns r with its zero fields filled in.
func (r Retention) WithDefaults() Retention {
	return Retention{
		After:    cmp.Or(r.After, 7*24*time.Hour),
		Archive:  cmp.Or(r.Archive, "table"),
		Batch:    cmp.Or(r.Batch, 1000),
		Every:    cmp.Or(r.Every, time.Minute),
		Logger:   cmp.Or(r.Logger, slog.Default()),
		Observer: r.Observer,
	}
}
