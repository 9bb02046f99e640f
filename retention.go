package outbox

import (
	"fmt"
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

// withDefaults returns r with its zero fields taken from def.
func (r Retention) withDefaults(def Retention) Retention {
	if r.After == 0 {
		r.After = def.After
	}
	if r.Archive == "" {
		r.Archive = def.Archive
	}
	if r.Batch == 0 {
		r.Batch = def.Batch
	}
	if r.Every == 0 {
		r.Every = def.Every
	}
	if r.Logger == nil {
		r.Logger = def.Logger
	}
	if r.Observer == nil {
		r.Observer = def.Observer
	}
	return r
}

func (r Retention) check(field string, problems *[]error) {
	if r.Batch < 0 {
		*problems = append(*problems, fmt.Errorf("%s.Batch is %d, must be positive", field, r.Batch))
	}
	if r.Every < 0 {
		*problems = append(*problems, fmt.Errorf("%s.Every is %s, must be positive", field, r.Every))
	}
}
