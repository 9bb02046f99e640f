package operate

import (
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

// check reports what of the choice does not fit a layout, as an ErrFilter.
func (d Delivered) check(l outbox.Layout) error {
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
