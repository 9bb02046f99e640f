package outbox

import (
	"log/slog"
	"time"
)

// Retention is how long rows stay in a table that need not, delivered ones and replayed dead letters, and what becomes
// of them then. Package retention has what is guaranteed. Zero means the default in parentheses, which is the relay's.
type Retention struct {
	After   time.Duration // since delivery or replay (7 days; negative: they stay)
	Archive string        // table (into outbox_archive), none, or a directory for compressed files (table)
	Batch   int           // rows a transaction (1000)
	Every   time.Duration // between looking for them (1 min)

	Logger   *slog.Logger // (the relay's)
	Observer Observer     // may be nil
}
