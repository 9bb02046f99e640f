package deadletter

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// What callers branch on.
var (
	// ErrFilter says that a Filter or a Selection cannot be meant.
	ErrFilter = errors.New("cannot look for that")
	// ErrNoLetter says that there is no such letter, or that row-level security hides it.
	ErrNoLetter = errors.New("no such dead letter")
	// ErrInvalidJob is matched by every error of Job.Validate.
	ErrInvalidJob = errors.New("invalid job")
	// ErrNoReason says that letters are not discarded without a reason.
	ErrNoReason = errors.New("discarding needs a reason")
)

// Source is what a letter was: a job, or an event's delivery.
type Source string

// The sources of letters.
const (
	SourceJob   Source = "job"
	SourceEvent Source = "event"
)

// State is what was done about a letter.
type State string

// The states of letters. A letter that was discarded and replayed after all is StateReplayed.
const (
	StatePending   State = "pending"
	StateReplayed  State = "replayed"
	StateDiscarded State = "discarded"
	StateAll       State = "all" // in a Filter
)

// Letter is a delivery or a job that failed for good.
type Letter struct {
	ID            uuid.UUID  `json:"id"`
	At            time.Time  `json:"at"` // when it was written, from its id
	Source        Source     `json:"source"`
	State         State      `json:"state"`
	OriginalID    uuid.UUID  `json:"originalId"` // of the event or the job
	Tenant        string     `json:"tenant"`
	UserID        *uuid.UUID `json:"userId,omitempty"`
	RequestID     *uuid.UUID `json:"requestId,omitempty"`
	Type          string     `json:"type"`   // an event's topic
	Reason        string     `json:"reason"` // of an outbox.Reason
	Attempts      int        `json:"attempts"`
	LastError     string     `json:"lastError"`
	Fingerprint   string     `json:"fingerprint"` // the same for errors that differ only in numbers, ids and quoted text
	Table         string     `json:"table,omitempty"`
	Destination   string     `json:"destination,omitempty"`
	Key           string     `json:"key,omitempty"`
	Position      *int64     `json:"position,omitempty"` // order within the key
	Generation    int        `json:"generation"`         // how often the event had been replayed when it died
	ReplayedAt    *time.Time `json:"replayedAt,omitempty"`
	DiscardedAt   *time.Time `json:"discardedAt,omitempty"`
	DiscardReason string     `json:"discardReason,omitempty"`

	// Not in lists.
	ErrorHistory json.RawMessage `json:"errorHistory,omitempty"` // array of {error, timestamp}, oldest first
	Payload      json.RawMessage `json:"payload,omitempty"`
}

// Filter chooses letters by all of its fields that are set. The zero value is every pending letter.
type Filter struct {
	Source      Source    `json:"source,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Type        string    `json:"type,omitempty"`   // a name, or a pattern in which * stands for any text
	Tenant      string    `json:"tenant,omitempty"` // namespace of an application, or its id
	Key         string    `json:"key,omitempty"`
	RequestID   uuid.UUID `json:"requestId,omitzero"` // of the job, or of the event's metadata where that names a UUID
	Table       string    `json:"table,omitempty"`
	Destination string    `json:"destination,omitempty"` // as Type
	Since       time.Time `json:"since,omitzero"`        // inclusive, by the millisecond
	Until       time.Time `json:"until,omitzero"`        // exclusive
	Error       string    `json:"error,omitempty"`       // part of any error of the history, in any case
	Fingerprint string    `json:"fingerprint,omitempty"` // of the last error
	UpTo        uuid.UUID `json:"upTo,omitzero"`         // the last of them, by the order of letters' ids
	// Zero: StatePending; only pending letters are ever replayed or discarded by filter.
	State State `json:"state,omitempty"`

	Limit int    `json:"-"` // of a list: 0 is 50
	After string `json:"-"` // what the list returned with the previous page
}

// Stats says how many letters there are, and of what kind.
type Stats struct {
	Pending   int     `json:"pending"`
	Replayed  int     `json:"replayed"`
	Discarded int     `json:"discarded"`
	Groups    []Group `json:"groups"`    // of the state that the filter names, the largest first, at most its limit
	AllGroups int     `json:"allGroups"` // how many groups there are without the limit
}

// Group is the dead letters whose last errors have one fingerprint.
type Group struct {
	Fingerprint string      `json:"fingerprint"`
	Count       int         `json:"count"`
	Oldest      time.Time   `json:"oldest"`
	Newest      time.Time   `json:"newest"`
	Sample      string      `json:"sample"` // error of the newest
	Types       []GroupType `json:"types"`  // the largest first, at most 20
}

// GroupType is the dead letters of a Group that have one source, type and reason.
type GroupType struct {
	Source Source `json:"source"`
	Type   string `json:"type"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}

// Action is one entry of the record of what operators did.
type Action struct {
	ID      uuid.UUID       `json:"id"`
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`  // as the program was told
	Action  string          `json:"action"` // replay, discard or purge here; others may record theirs
	Letters int             `json:"letters"`
	Filter  json.RawMessage `json:"filter,omitempty"`
	Reason  *string         `json:"reason,omitempty"`
	Detail  json.RawMessage `json:"detail,omitempty"`
	// Login is the database's own word of who it was: the login of the session. Nil where there are
	// none (SQLite), and of entries from before it was kept.
	Login *string `json:"login,omitempty"`
}

// ActionFilter chooses entries of the record by the fields that are set.
type ActionFilter struct {
	Action, Actor string
	Since, Until  time.Time
	Limit         int // 0: 50
	After         string
}

// Operator is who acts, and why, as the record will say.
type Operator struct {
	Actor  string
	Reason string
}

// Selection chooses the letters to act on: pending ones that the filter matches, and of those only
// IDs if there are any. The zero value chooses none: a list of ids that turned out empty must not
// mean everything.
type Selection struct {
	IDs       []uuid.UUID `json:"ids,omitempty"`
	All       bool        `json:"all,omitempty"`       // every pending letter
	Discarded bool        `json:"discarded,omitempty"` // IDs may name discarded letters too
	Filter
}

// check refuses a selection that names no letters.
func (s Selection) check() error {
	s.Limit, s.After = 0, ""
	if len(s.IDs) == 0 && !s.All && s.Filter == (Filter{}) {
		return fmt.Errorf("%w: no ids, no filter, and not all", ErrFilter)
	}
	return nil
}
