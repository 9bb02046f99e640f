package operate

import (
	"context"
	"time"
)

// Pause keeps relays from delivering what it names: a table, or a topic or a destination of one table or of all. Events
// wait in their table, uncounted and in their order, and with them what is behind them in their keys. An event that
// goes to several destinations waits as soon as one of them is paused.
type Pause struct {
	Table       string    `json:"table"`       // "": every table
	Topic       string    `json:"topic"`       // a name, or a pattern in which * stands for any text; "": every topic
	Destination string    `json:"destination"` // likewise; never beside a Topic
	Reason      string    `json:"reason"`
	Actor       string    `json:"actor"`
	At          time.Time `json:"pausedAt"`
}

// Names are what the pause is of, by the name of the column.
func (p Pause) Names() map[string]string {
	names := map[string]string{"table": p.Table, "topic": p.Topic}
	if p.Destination != "" {
		names["destination"] = p.Destination
	}
	return names
}

// Pauses are what operators have paused. Running relays obey with their next check of their lease, twice a second.
type Pauses interface {
	// Pauses returns all, those of every table first.
	Pauses(ctx context.Context) ([]Pause, error)
	// Pause adds one, or gives the one of those names a new reason. It is recorded in outbox_audit.
	Pause(ctx context.Context, p Pause) error
	// Resume removes the one of those names, and tells whether it was there. It is recorded likewise, with the actor
	// and reason of p.
	Resume(ctx context.Context, p Pause) (bool, error)
}
