package operate

import (
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// suspectAfter is package outbox's: so many relays in a row vanished from a lane before its events
// are tried in small batches.
const suspectAfter = 2

// LaneReport says who serves a table, and how far behind each lane is.
type LaneReport struct {
	Table string `json:"table"`
	// Reader is the table's reader, "sinks" or "group:NAME", or "" if none is recorded. A log that
	// no relay has served has its groups here, and its backlog is not counted.
	Reader string      `json:"reader,omitempty"`
	Relays []RelayView `json:"relays"`
	Lanes  []LaneView  `json:"lanes"` // all of them, in order
	// Counted is how many undelivered rows were counted. If Bounded, there may be more, in any
	// lane: the count stopped at the oldest of them.
	Counted int  `json:"counted"`
	Bounded bool `json:"bounded"`
	// Pauses are those that concern the table.
	Pauses []Pause `json:"pauses"`
	// Troubles are for whoever asks for them, as EventRow.Paused.
	Troubles []Trouble `json:"troubles,omitempty"`
	// Hidden says that row-level security hides the rows from this role, so that no backlog is
	// known.
	Hidden bool `json:"hidden,omitempty"`
}

// RelayView is a relay that serves the table, or did within the last minute.
type RelayView struct {
	Owner     uuid.UUID `json:"owner"`
	Name      string    `json:"name"`
	JoinedAt  time.Time `json:"joinedAt"`
	SeenAt    time.Time `json:"seenAt"`           // its last renewal
	ExpiresIn float64   `json:"expiresInSeconds"` // below 0: it is gone
	Lanes     int       `json:"lanes"`            // that it holds
	Share     int       `json:"share"`            // that it should hold
	Serves    string    `json:"-"`                // LeaseRequest.Serves
}

// LaneView is one lane.
type LaneView struct {
	Lane      int        `json:"lane"`
	State     string     `json:"state"` // held, lapsed or free
	Owner     *uuid.UUID `json:"owner,omitempty"`
	Name      *string    `json:"name,omitempty"` // of the owner, while it is remembered
	Epoch     int64      `json:"epoch"`
	ExpiresIn *float64   `json:"expiresInSeconds,omitempty"` // by the database's clock
	Backlog   int        `json:"backlog"`
	Oldest    *float64   `json:"oldestSeconds,omitempty"` // age of its first undelivered row; none if that tells no time
	// Of Backlog, Retrying wait for their next attempt, and Held wait behind those of their keys,
	// which are HeldKeys.
	Retrying int `json:"retrying"`
	HeldKeys int `json:"heldKeys"`
	Held     int `json:"held"`
	// Suspect says that relays died at this lane, and that its events are tried in small batches;
	// see Crashes and Trial.
	Suspect    bool       `json:"suspect,omitempty"`
	Crashes    int        `json:"crashes,omitempty"`
	TrialSize  int        `json:"trialSize,omitempty"`
	TrialEvent *uuid.UUID `json:"trialEvent,omitempty"`
}

// newLaneReport returns a report without relays, in which every lane is free: a lane's row is made
// when a relay first serves the table.
func newLaneReport(table string) LaneReport {
	r := LaneReport{Table: table, Relays: []RelayView{}, Pauses: []Pause{}, Lanes: make([]LaneView, outbox.LaneCount)}
	for n := range r.Lanes {
		r.Lanes[n] = LaneView{Lane: n, State: "free"}
	}
	return r
}

// judge fills in State and Suspect from what was read.
func (l *LaneView) judge() {
	switch {
	case l.Owner == nil:
		l.State = "free"
	case l.ExpiresIn == nil || *l.ExpiresIn <= 0:
		l.State = "lapsed"
	default:
		l.State = "held"
	}
	l.Suspect = l.Crashes >= suspectAfter || l.TrialSize > 0
}
