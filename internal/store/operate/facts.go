package operate

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Facts is a snapshot of the state of an outbox, read by three SQL statements. A part that could
// not be read is marked by its Sight, so that it is not mistaken for a count of zero.
type Facts struct {
	At            time.Time          `json:"at"`                 // by the database's clock
	Observer      bool               `json:"observer"`           // this login has a documented role, but not a relay's
	ReadOnly      string             `json:"readOnly,omitempty"` // why the database takes no writes
	Sets          map[string]Applied `json:"sets"`               // migration sets that are recorded
	Parts         map[string]Sight   `json:"parts"`              // by table, for the tables that hold state
	Queues        []Queue            `json:"queues"`
	Subscriptions []Subscribed       `json:"subscriptions"`
	DeadLetters   []Pending          `json:"deadLetters"` // pending ones, by source and table
	Pauses        []Pause            `json:"pauses"`
	Waits         []LockWait         `json:"lockWaits"`
	Locked        map[string]Session `json:"locked"` // sessions that have a table locked against reads
	Dead          map[[2]string]int  `json:"-"`      // dead deliveries by table and sink
}

// Applied is a migration set that the database has.
type Applied struct {
	Version int64 `json:"version"`
	Dirty   bool  `json:"dirty,omitempty"` // a migration failed half way
}

// Sight tells whether a fact is known. If it is not, Why has the reason.
type Sight struct {
	State string `json:"state"`         // Known, Unknown, NotInstalled or NotVisible
	Why   string `json:"why,omitempty"` // reason and remedy, if it is not known
}

// The states of a Sight.
const (
	Known        = "known"
	Unknown      = "unknown"
	NotInstalled = "not installed"
	NotVisible   = "not visible" // this role lacks the right
)

// Queue describes undelivered events that have the same reader. A queue is one of these: an outbox
// table; the deliveries of a table that one sink has not acknowledged; or the rows of a log that
// one consumer group, or the relays of the log, have not read yet.
type Queue struct {
	Name  string `json:"name"`            // in leases
	Table string `json:"table"`           // that the events were written into
	Sink  string `json:"sink,omitempty"`  // whose pending deliveries these are; for a group its name
	Group string `json:"group,omitempty"` // the consumer group that reads the queue
	Log   bool   `json:"log,omitempty"`
	// Subscribed is true for a log that no relay and no group reads, but subscriptions do. The
	// events of the queue are not counted; Facts.Subscriptions has a count for each subscription.
	Subscribed bool `json:"subscribed,omitempty"`
	Hidden     bool `json:"-"` // this login reads the rows of one tenant at a time
	Sight

	Held      int        `json:"lanesHeld"`
	Expired   int        `json:"lanesExpired"`
	Suspect   int        `json:"lanesSuspect,omitempty"`
	LastLease *time.Time `json:"lastLease,omitempty"` // end of the latest lease
	Processes []Process  `json:"processes"`           // alive, or alive within the last minute
	Paused    bool       `json:"paused,omitempty"`

	Waiting  int       `json:"waiting"`
	Bounded  bool      `json:"bounded,omitempty"`       // Waiting is the bound of the count: there may be more
	Oldest   *float64  `json:"oldestSeconds,omitempty"` // age of the oldest waiting event
	Retrying int       `json:"retrying"`                // wait for their next attempt
	Blocked  int       `json:"blocked"`                 // wait behind those, in BlockedKeys keys
	Keys     int       `json:"blockedKeys"`
	Inserted *int64    `json:"-"`                 // rows ever inserted, about
	Failing  []Failing `json:"failing,omitempty"` // the oldest events that wait for a retry; at most 20
}

// Alive returns the processes that hold a lease or stand by for one.
func (q *Queue) Alive() []Process {
	return slices.DeleteFunc(slices.Clone(q.Processes), func(p Process) bool { return p.ExpiresIn <= 0 })
}

// Process is a relay, or a process of a group, as it was at its last sign of life.
type Process struct {
	Owner     uuid.UUID         `json:"owner"`
	Name      string            `json:"name"`
	JoinedAt  time.Time         `json:"joinedAt"`
	SeenAt    time.Time         `json:"seenAt"`           // its last renewal
	ExpiresIn float64           `json:"expiresInSeconds"` // below 0: its lease has ended
	Lanes     int               `json:"lanes"`
	Since     *time.Time        `json:"since,omitempty"`   // when it began to report a problem
	Problem   string            `json:"problem,omitempty"` // why it does not serve the queue
	Sinks     map[string]string `json:"sinks,omitempty"`   // problems of sinks that do not acknowledge
	Slow      map[string]string `json:"slow,omitempty"`    // sinks that acknowledge late
	Serves    string            `json:"-"`                 // LeaseRequest.Serves
}

// Failing is an event that waits for its next attempt.
type Failing struct {
	ID       string     `json:"id"`
	Key      *string    `json:"key,omitempty"`
	Topic    *string    `json:"topic,omitempty"`
	Attempts int        `json:"attempts"`
	Error    string     `json:"error,omitempty"`
	NextAt   *time.Time `json:"nextRetryAt,omitempty"`
	At       *time.Time `json:"writtenAt,omitempty"`
}

// Subscribed is a subscription of a log.
type Subscribed struct {
	Name   string  `json:"name"`
	Tenant *string `json:"tenant,omitempty"`
	Sight
	AskedAt   time.Time  `json:"askedAt"`   // by a consumer, 10 s early at most
	KeepUntil time.Time  `json:"keepUntil"` // without a consumer, the log keeps its events until then
	PausedAt  *time.Time `json:"pausedAt,omitempty"`
	Waiting   int        `json:"waiting"` // events to fetch or acknowledge
	Bounded   bool       `json:"bounded,omitempty"`
	Oldest    *float64   `json:"oldestSeconds,omitempty"`
}

// Session is a session of the database server. What the role may not see of it is empty.
type Session struct {
	PID         int      `json:"pid"` // 0: a prepared transaction
	Application string   `json:"application,omitempty"`
	Login       string   `json:"login,omitempty"`
	Seconds     *float64 `json:"seconds,omitempty"` // age of its transaction
}

// String names the session in messages.
func (s Session) String() string {
	if s.PID == 0 {
		return "a prepared transaction (see pg_prepared_xacts)"
	}
	text := fmt.Sprintf("session %d of login %s (application %q", s.PID, s.Login, s.Application)
	if s.Seconds != nil {
		age := time.Duration(*s.Seconds * float64(time.Second)).Round(time.Second)
		text += fmt.Sprintf(", in a transaction for %s", age)
	}
	return text + ")"
}

// End returns the statement that ends the session.
func (s Session) End() string {
	if s.PID == 0 {
		return "ROLLBACK PREPARED or COMMIT PREPARED it"
	}
	return fmt.Sprintf("SELECT pg_terminate_backend(%d)", s.PID)
}

// LockWait is a session that waits for a lock while it uses one of the tables.
type LockWait struct {
	Table   string    `json:"table"`
	Waits   Session   `json:"waits"`
	Seconds float64   `json:"seconds"`
	By      []Session `json:"by"` // the sessions that block it
}
