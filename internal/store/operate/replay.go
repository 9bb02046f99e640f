package operate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Delivered chooses events that were delivered: those that match all of it.
type Delivered struct {
	Topic       string    `json:"topic,omitempty"` // a name, or a pattern in which * stands for any text
	Key         string    `json:"key,omitempty"`
	Tenant      string    `json:"tenant,omitempty"`
	Destination string    `json:"destination,omitempty"` // of events with several: it alone is served again
	Since       time.Time `json:"since,omitzero"`        // when they were delivered: inclusive
	Until       time.Time `json:"until,omitzero"`        // exclusive; zero, and what is to come: now
}

// Place is a delivered event, where it stands.
type Place struct {
	Position int64
	ID       uuid.UUID
	Archived bool // its row is in outbox_archive
}

// Replay is one replay of delivered events.
type Replay struct {
	Delivered
	Actor, Reason string
	Run           uuid.UUID // the same for all pages, for the record
}

// Replayer puts delivered events back to be delivered again.
type Replayer interface {
	// Replayable returns the events that are chosen, in the order of their positions, and the Until that the database's
	// clock gives. It reads the table, and the archive, once. A choice that does not fit the table is an ErrFilter.
	Replayable(ctx context.Context, d Delivered) (places []Place, until time.Time, err error)
	// ReplayPage puts events back under their ids, at their positions, and says how many: not what is gone, or has been
	// put back since. They get new attempts, and a generation that no sink has seen. It is one transaction with its
	// record in outbox_audit.
	ReplayPage(ctx context.Context, r Replay, places []Place) (int, error)
}

// Check reports what of the choice does not fit a layout, as an ErrFilter.
func (d Delivered) Check(l outbox.Layout) error {
	switch {
	case l.DeliveredAt == "":
		return fmt.Errorf("%w in %s: its layout names no delivered_at, so nothing tells when an event was delivered",
			ErrFilter, l.Table)
	case l.Settle == outbox.SettleDelete:
		return fmt.Errorf("%w in %s: its settle mode is delete, so nothing is kept of what was delivered; "+
			"with archive, later events can be replayed", ErrFilter, l.Table)
	case d.Since.IsZero():
		return fmt.Errorf("%w in %s: say since when", ErrFilter, l.Table)
	case d.Destination != "" && (l.Destinations == "" || l.DeliveredTo == ""):
		return fmt.Errorf("%w in %s: its events have no destinations of their own, so all of them go where they went",
			ErrFilter, l.Table)
	}
	return nil
}
