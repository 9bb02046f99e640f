package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// LaneCount is into how many ordering shards the keys of a table are hashed. The hash is computed
// by the database, so that writers in any language agree. It is fixed: changing it would let two
// relays hold the same key at once.
const LaneCount = 64

// Store is a Relay's view of one outbox table in one database. It shares the table's lanes among
// the relays that are alive, reads what is due and records what became of it. The database's clock,
// and no other, decides who holds a lane.
type Store interface {
	// Lease enrols the caller among the table's relays, or keeps it enrolled, renews the lanes it
	// holds, and takes free and lapsed ones up to its share. It takes none from a relay that is
	// alive: one that holds more than its share gives the rest up with Release. A lane's epoch
	// rises whenever it changes hands.
	Lease(ctx context.Context, request LeaseRequest) (Leased, error)
	// Release gives lanes up at once, so that another relay need not wait for them to lapse. Those
	// that it cannot, because somebody holds their rows locked, stay the owner's.
	Release(ctx context.Context, owner uuid.UUID, lanes []Lane) error
	// Leave is Release for everything, and the end of the caller's enrolment.
	Leave(ctx context.Context, owner uuid.UUID) error
	// Mark records Crashes and Trial of those lanes that owner still holds at their epoch. It is
	// durable when it returns.
	Mark(ctx context.Context, owner uuid.UUID, lanes []Lane) error

	// Claim reads the oldest undelivered records of the lanes, at most limit.Records and, but for
	// the first, at most limit.Bytes of them. It locks and writes nothing. Records behind a key
	// that waits for a retry are left out, and so are those of paused topics with what is behind
	// them in their keys. A *RefusedError with Whole says that none of the table's events can be
	// delivered in order, or once, until what it names is repaired.
	Claim(ctx context.Context, lanes []Lane, limit ClaimLimit) ([]*Record, error)
	// Settle records the outcomes of those records whose lane owner still holds at the given epoch;
	// the others are left as they are and counted as Lost. It does so in one transaction, unless
	// the database is well and refuses one of them. Then the others are settled, and the refused
	// ones are in a *RefusedError beside their counts, with what is behind them in their keys. It
	// waits for no row that somebody else holds locked: that is a refusal too. Where the row takes
	// it, a refusal becomes its error: it is counted as Retried, and what was served is noted, so
	// that none of it is published again.
	Settle(ctx context.Context, owner uuid.UUID, lanes []Lane, outcomes []Outcome) (Settled, error)
	// Backlog counts undelivered rows, those that wait for a retry among them, up to limit.
	Backlog(ctx context.Context, limit int) (Backlog, error)
}

// Backlog is how far behind a table's relays are.
type Backlog struct {
	Count  int           // undelivered rows; counting stops at the limit asked for
	Oldest time.Duration // age of the oldest one by the database's clock; 0 if there is none or the table keeps no time
}

// LeaseRequest is one relay's request for its share of the lanes.
type LeaseRequest struct {
	Owner uuid.UUID
	Name  string // of the relay, for people
	TTL   time.Duration
	// Health is what hinders the relay, as a JSON object for people who look into the database
	// ({"table": reason, "sinks": {name: reason}, "slow": {name: how slow}}), or "". The database
	// keeps it, with when it began, while the relay is enrolled. With "yields": true the relay's
	// share is 0 while another relay of the table is alive and has no "sinks" and no "table".
	Health string
	// Serves describes the relay's sinks and routes for the table, one per line, or is "". The
	// database keeps the text of the first request, so that operators can find relays that differ.
	Serves string
	// Paused is the Leased.Paused that the relay obeys: nothing of it is in flight. The database
	// keeps it while the relay is enrolled, so that a command that pauses something can wait for
	// it.
	Paused Paused
	// Leaving keeps what the caller holds and takes nothing more: it is finishing what is in
	// flight, and its enrolment has ended. Share is 0 then.
	Leaving bool
	// Returning renews what the caller holds and takes free lanes, but no lapsed ones: the database
	// was away, for the other relays too, and they come for theirs.
	Returning bool
}

// Leased is what a relay holds.
type Leased struct {
	Lanes []Lane
	// Share is how many lanes the caller should hold: LaneCount divided by the relays alive, none
	// of them more than one lane ahead of another.
	Share int
	// Remaining is how long the first of Lanes to lapse was still held when the database answered.
	Remaining time.Duration
	// Paused is what operators have paused of the table.
	Paused Paused
	// Origin names the database and the table: Delivery.Origin of all its events.
	Origin uint64
}

// Lane is one of the ordering shards, held at an epoch.
type Lane struct {
	Number int16
	Epoch  int64
	// Crashes is how often in a row the lane was taken over from a relay that vanished without
	// finishing a turn on it. Relays die of many things; of one that dies again and again at the
	// same lane the lane may be the cause (see quarantine.go).
	Crashes int
	Trial   Trial
}

// Trial is a small batch of a suspect lane that was begun and has not been finished. The zero value
// is none.
type Trial struct {
	// Size is how many of the lane's oldest records are being tried. If Event is set, one record
	// is, and Size counts how often it was tried alone.
	Size  int
	Event uuid.UUID // of the record that is being tried alone
}

// ClaimLimit bounds one Claim, and with it the memory of a relay.
type ClaimLimit struct {
	Records int
	Bytes   int // of payload
	// Fair asks for an equal share of Records for each tenant that has undelivered records, so that
	// a flood of one does not hold back another's trickle. A table that does not tell tenants apart
	// gives its oldest records all the same.
	Fair bool
	// WithoutKeys and WithoutEvents are left out, because the relay has not recorded their outcome
	// yet. They are all events of an OrderKey, and single events by their ids, with or without a
	// key.
	WithoutKeys   []int64
	WithoutEvents []uuid.UUID
	// Paused is left out: its topics, its destinations, and what is behind them in their keys. With
	// any a store may leave Fair aside. A paused table is not claimed from.
	Paused Paused
	// Destination is where events go that have no list of their own.
	Destination Template
}

// Record is one undelivered row of an outbox table. AggregateID is its key as consumers see it.
type Record struct {
	Event
	Position int64 // drawn by the database at insert: the order of events within a key
	Lane     int16
	OrderKey int64 // hash of the ordering key; meaningful only if Keyed
	Keyed    bool
	// Sequence is the number consumers see: the table's own per-key sequence if it has one, else
	// Position. 0: the row has none. Its position would be taken for a place in the sequence.
	Sequence   int64
	Attempts   int       // failed attempts so far
	Generation int       // how often an operator replayed it
	AppID      uuid.UUID // of a table whose layout has App; else uuid.Nil
	WrittenAt  time.Time
	// DeliveredTo lists the destinations already served, if a retry is for the others only.
	DeliveredTo []string
	// RawMetadata is the metadata as stored, JSON or nil; Event.Metadata is not filled.
	RawMetadata json.RawMessage
	// Place is where the store has found the row, for itself to find it again at Settle. Nobody
	// else reads it.
	Place uint64
	// Defect says why the row cannot be delivered as it is (destinations that are no list of
	// strings, a payload that the database cannot hand out), or "".
	Defect string
}

// Outstanding returns where the record still has to go: those of its own destinations, or of the
// one that the template makes, that it was not delivered to.
func (rec *Record) Outstanding(t Template) ([]string, error) {
	wanted := rec.Destinations
	if len(wanted) == 0 {
		d, err := t.Expand(rec)
		if err != nil {
			return nil, err
		}
		wanted = []string{d}
	}
	return rec.Undelivered(wanted), nil
}

// Undelivered returns those of some destinations that the record was not delivered to.
func (rec *Record) Undelivered(wanted []string) (left []string) {
	if len(rec.DeliveredTo) == 0 {
		return wanted
	}
	done := make(map[string]bool, len(rec.DeliveredTo))
	for _, d := range rec.DeliveredTo {
		done[d] = true
	}
	for _, d := range wanted {
		if !done[d] {
			left = append(left, d)
		}
	}
	return left
}

// Outcome is what became of a record.
type Outcome struct {
	Record *Record
	State  State
	// Attempts counts the failed attempts including this one.
	Attempts int
	// RetryIn is how long to wait for the next attempt, by the database's clock (Retry only).
	RetryIn time.Duration
	// Failures holds what failed this time, one entry a destination (Retry and Dead).
	Failures []Failure
	// DeliveredTo lists all destinations served so far.
	DeliveredTo []string
	// Owed is what of a record that is Delivered its sinks have not taken yet (DeliveryStore).
	Owed []Owed
	// Refused is how often the database has refused to record this outcome.
	Refused int
}

// Failure is one destination's error.
type Failure struct {
	Destination string
	Reason      Reason
	Error       string
}

// State is the fate of a record after one turn of the relay.
type State int

// The states an outcome can have.
const (
	Delivered State = iota // to every destination
	Retry                  // again later; what waits behind it in its key waits too
	Dead                   // kept as a dead letter
)

// Settled counts what one Settle changed. Lost is the number of outcomes whose lane had gone to
// another owner, or whose row had changed since its claim. Where delivered rows leave their table,
// one that is gone counts as Delivered: a settle whose reply was lost is sent again.
type Settled struct {
	Delivered, Retried, Dead, Lost int
}

// SchemaError says that the database lacks what a layout needs, and what to do about it.
type SchemaError struct {
	Table   string
	Missing []string // columns, or empty if the whole table is missing
	Remedy  string
}

func (e *SchemaError) Error() string {
	if len(e.Missing) == 0 {
		return fmt.Sprintf("table %s does not exist: %s", e.Table, e.Remedy)
	}
	return fmt.Sprintf("table %s is not what this program needs, it lacks %s: %s",
		e.Table, strings.Join(e.Missing, ", "), e.Remedy)
}

// ReaderError is a Store's answer to Lease if the table has another reader than the caller. A
// reader is "sinks", or "group:NAME" for a consumer group.
type ReaderError struct {
	Table   string // as its lanes are leased
	Reader  string // the caller's
	Current string // the table's
}

func (e *ReaderError) Error() string {
	return fmt.Sprintf("lease table %q for %s: the reader of the table is %s; either leave the table out here, or "+
		"stop all processes of %s and run: outbox lanes reader --table %s --to %s --reason '<why>'",
		e.Table, e.Reader, e.Current, e.Current, e.Table, e.Reader)
}

// RefusedError is a Store's answer to Settle when the database is well and does not record some of
// the outcomes. Their rows are held locked by somebody else, or a trigger, a policy or a time limit
// says no. All other outcomes are settled.
type RefusedError struct {
	Outcomes []Outcome // not settled
	Err      error     // what the database said, of the first of them at least
	// Whole says that the database records nothing of this table for this role, whatever the row: a
	// right is missing, it takes no writes, its disk is full, its positions do not rise. Err then
	// says what to do, and Outcomes is empty.
	Whole bool
}

func (e *RefusedError) Error() string {
	if e.Whole {
		return e.Err.Error()
	}
	return fmt.Sprintf("settle %d of the outcomes: %v", len(e.Outcomes), e.Err)
}

// Unwrap returns what the database said.
func (e *RefusedError) Unwrap() error { return e.Err }
