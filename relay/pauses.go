package relay

import (
	"log/slog"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
)

// pauses are those of the relay's table, as its last lease check found them.
type pauses struct {
	outbox.Paused
	changes int
	since   time.Time // of the last change
}

// change takes over what a lease check found, and tells whether it is something new.
func (p *pauses) change(found outbox.Paused) bool {
	if samePauses(p.Paused, found) {
		return false
	}
	p.Paused = found
	p.changes++
	p.since = time.Now()
	return true
}

func (p *pauses) log(logger *slog.Logger, table string) {
	switch {
	case p.Table:
		logger.Warn("table paused by an operator", "table", table)
	case p.Parts():
		logger.Warn("topics or destinations paused by an operator", "table", table,
			"topics", p.Topics, "destinations", p.Destinations)
	default:
		logger.Info("resumed by an operator", "table", table)
	}
}

func samePauses(p, other outbox.Paused) bool {
	return p.Table == other.Table && slices.Equal(p.Topics, other.Topics) &&
		slices.Equal(p.Destinations, other.Destinations)
}
