package inbox

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// DefaultWindow is how long ids are remembered at least where nothing says how long copies can
// come: longer than the fortnight for which brokers and archives are commonly told to keep
// messages.
const DefaultWindow = 15 * 24 * time.Hour

// What callers branch on.
var (
	// ErrOtherPayload is matched by an *OtherPayloadError.
	ErrOtherPayload = errors.New("the same id came with another payload")
	// ErrWindow says that a window is shorter than copies can be late.
	ErrWindow = errors.New("the window is too short")
	// ErrBusy says that a transaction held Sweep up: the next call tries again.
	ErrBusy = errors.New("a transaction that remembers something is open")
	// ErrClaimLost says that a claim's lease ended and another has taken over: the answer was not
	// stored.
	ErrClaimLost = errors.New("the claim was lost")
)

// Config says who consumes, and for how long copies are found out.
type Config struct {
	// Consumer is the name of what has the effect. Ids are remembered by it. A new name knows
	// nothing: keep it when a program is renamed. Required, at most 200 bytes.
	Consumer string
	// Window is how long the id of a delivery is remembered at least. 0: a day more than the
	// longest of Copies, or DefaultWindow if there are none.
	Window time.Duration
	// IntentWindow is for how long a second event of the same intent is a copy, to the second. 0:
	// Window.
	IntentWindow time.Duration
	// Copies are how late a copy can come, by why: how long the broker keeps messages, how old
	// events operators replay, for how long the relay tries. A Window that is shorter than one of
	// them is ErrWindow.
	Copies map[string]time.Duration
}

// withDefaults completes c, or says what is wrong with it.
func (c Config) withDefaults() (Config, error) {
	if c.Consumer == "" || len(c.Consumer) > 200 {
		return c, &outbox.FieldError{Field: "Consumer", Problem: "is required, and has at most 200 bytes"}
	}
	if c.Window < 0 || c.IntentWindow < 0 {
		return c, &outbox.FieldError{Field: "Window", Problem: "is negative"}
	}
	var longest time.Duration
	for _, late := range c.Copies {
		longest = max(longest, late)
	}
	switch {
	case c.Window == 0 && longest > 0:
		c.Window = longest + 24*time.Hour
	case c.Window == 0:
		c.Window = DefaultWindow
	}
	for why, late := range c.Copies {
		if c.Window < late {
			return c, fmt.Errorf("inbox %s: %w: ids are remembered for %s, and copies can come %s later (%s)", c.Consumer,
				ErrWindow, c.Window, late, why)
		}
	}
	if c.IntentWindow == 0 {
		c.IntentWindow = c.Window
	}
	return c, nil
}

// ID says which delivery it is.
type ID struct {
	Event   string // of the delivery: the event's id, or the broker's, whatever is the same for all copies; required
	Intent  string // what was meant, such as "order-42/placed": the same for two events of one wish; "": none
	Tenant  string
	Payload []byte // as it came, to notice another one under the same id; nil: not compared
}

// Result is what became of a delivery.
type Result int

// The results. A Duplicate had no effect.
const (
	Done Result = iota + 1
	Duplicate
)

func (r Result) String() string { return map[Result]string{Done: "done", Duplicate: "duplicate"}[r] }

// Hash tells one thing from another: the first half of a SHA-256.
type Hash [16]byte

func (h Hash) String() string { return fmt.Sprintf("%x", h[:]) }

// OtherPayloadError says that an id came again with another payload: a producer that uses an id
// twice, or one that changes what it has sent. Nothing was done.
type OtherPayloadError struct {
	ID         string // which of the two: the event's or the intent's
	Have, Came Hash   // of the payload that had the effect, and of this one
}

func (e *OtherPayloadError) Error() string {
	return fmt.Sprintf("%v: %s had %s, and came with %s: look for who uses the id twice", ErrOtherPayload, e.ID, e.Have,
		e.Came)
}

// Unwrap is ErrOtherPayload.
func (e *OtherPayloadError) Unwrap() error { return ErrOtherPayload }

// Store keeps ids in a database. postgres.NewInbox and sqlite.NewInbox bring theirs.
type Store[Tx any] interface {
	// Register notes a consumer and how long its ids are kept at least.
	Register(ctx context.Context, tx Tx, consumer string, keep time.Duration) error
	// Remember remembers deliveries in tx, in their order: of each its ids, until one is known for
	// less than its window. A transaction that remembers one of them is waited for.
	Remember(ctx context.Context, tx Tx, deliveries []Delivery) ([]Known, error)
	// Sweep forgets what is older than any consumer's window, if it is time, and tells whether it
	// did.
	Sweep(ctx context.Context, tx Tx) (bool, error)
	// Claim makes owner the one who is at it until a lease ends, unless somebody else is, or it is
	// done.
	Claim(ctx context.Context, tx Tx, id Key, payload *Hash, owner uuid.UUID, lease time.Duration) (Claimed, error)
	// Finish stores the answer of owner's claim. It is false if he has it no more.
	Finish(ctx context.Context, tx Tx, id Key, owner uuid.UUID, answer []byte) (bool, error)
	// Release gives owner's claim up.
	Release(ctx context.Context, tx Tx, id Key, owner uuid.UUID) error
}

// Key is an id as a Store keeps it.
type Key struct {
	Hash   Hash // of consumer, tenant, kind and id
	Window time.Duration
}

// Delivery is a message as a Store remembers it.
type Delivery struct {
	IDs     []Key // of the delivery, and of its intent if it has one
	Payload *Hash
}

// Known is what a Store knows of a Delivery.
type Known struct {
	ID      int   // which of its ids is known; -1: none was
	Payload *Hash // that it had
}

// Claimed is what a Store knows of a claim.
type Claimed struct {
	Owner   uuid.UUID
	Until   time.Time // of the lease
	Done    bool
	Answer  []byte
	Payload *Hash
}

// Inbox is safe for concurrent use. Make one with postgres.NewInbox, postgres.NewSQLInbox or
// sqlite.NewInbox.
type Inbox[Tx any] struct {
	cfg   Config
	store Store[Tx]
}

// New returns an Inbox on a Store. Errors: an *outbox.FieldError, or ErrWindow.
func New[Tx any](store Store[Tx], cfg Config) (*Inbox[Tx], error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Inbox[Tx]{cfg, store}, nil
}

// Window is how long the id of a delivery is remembered at least.
func (in *Inbox[Tx]) Window() time.Duration { return in.cfg.Window }

// Register notes the consumer and its windows in the database; until it has, another's may end what
// it remembers. Call it at the start, in a transaction of its own. It is an *outbox.SchemaError
// where migration core/006 is missing.
func (in *Inbox[Tx]) Register(ctx context.Context, tx Tx) error {
	if err := in.store.Register(ctx, tx, in.cfg.Consumer, max(in.cfg.Window, in.cfg.IntentWindow)); err != nil {
		return fmt.Errorf("register consumer %s: %w", in.cfg.Consumer, err)
	}
	return nil
}

// Once has an effect in tx, unless a copy of the delivery, or another of the same intent, has had
// it. The id is remembered by the same transaction: commit it, and both are there; roll it back,
// and neither is. It costs one round trip.
//
// A copy that is being handled in another transaction is waited for: until that commits (a
// Duplicate) or rolls back (this one goes on). An error of effect is returned as it is, and a panic
// passes: roll back then. Another payload under the same id is an *OtherPayloadError, and a
// Duplicate that had no effect.
func (in *Inbox[Tx]) Once(ctx context.Context, tx Tx, id ID, effect func() error) (Result, error) {
	answers, err := in.Remember(ctx, tx, id)
	switch {
	case err != nil:
		return 0, err
	case answers[0].Result == Duplicate:
		return Duplicate, answers[0].Err
	}
	if err := effect(); err != nil {
		return 0, err
	}
	return Done, nil
}

// Answer is what Remember says of a delivery.
type Answer struct {
	Result Result // Done: it is new
	Err    error  // of a Duplicate that has another payload: an *OtherPayloadError
}

// Remember is Once for many deliveries that have one effect together, such as rows of one INSERT:
// it remembers each for itself and answers in their order. A PostgreSQL server is asked once for
// all of them.
func (in *Inbox[Tx]) Remember(ctx context.Context, tx Tx, ids ...ID) ([]Answer, error) {
	deliveries, err := in.deliveries(ids)
	if err != nil {
		return nil, err
	}
	known, err := in.store.Remember(ctx, tx, deliveries)
	if err != nil {
		return nil, fmt.Errorf("remember deliveries: %w", err)
	}
	return answersOf(ids, deliveries, known), nil
}

func (in *Inbox[Tx]) deliveries(ids []ID) ([]Delivery, error) {
	deliveries := make([]Delivery, len(ids))
	for i, id := range ids {
		keys, payload, err := in.keys(id, "")
		if err != nil {
			return nil, err
		}
		deliveries[i] = Delivery{keys, payload}
	}
	return deliveries, nil
}

func answersOf(ids []ID, deliveries []Delivery, known []Known) []Answer {
	answers := make([]Answer, len(ids))
	for i, k := range known {
		if answers[i].Result = Done; k.ID >= 0 {
			id := []string{ids[i].Event, ids[i].Intent}[k.ID]
			answers[i] = Answer{Duplicate, differs(id, k.Payload, deliveries[i].Payload)}
		}
	}
	return answers
}

// Sweep forgets what is older than the windows of all consumers, and tells whether it did: call it
// now and then, such as once a minute, in a transaction of its own. Deliveries wait for it for some
// milliseconds; where a transaction holds it up for more than 100 ms it gives up with ErrBusy, and
// the next call tries again.
func (in *Inbox[Tx]) Sweep(ctx context.Context, tx Tx) (bool, error) {
	ended, err := in.store.Sweep(ctx, tx)
	if err != nil {
		return false, fmt.Errorf("forget old deliveries: %w", err)
	}
	return ended, nil
}

// keys are what is remembered of an id.
func (in *Inbox[Tx]) keys(id ID, kind string) (keys []Key, payload *Hash, err error) {
	if id.Event == "" {
		return nil, nil, &outbox.FieldError{Field: "ID.Event", Problem: "is required: without it nothing tells a copy"}
	}
	delivery := in.hash(kind+"delivery", id.Tenant, id.Event)
	if len(id.Event) >= 36 {
		if event, err := uuid.Parse(id.Event[:36]); err == nil && event.Version() == 7 {
			copy(delivery[:6], event[:6]) // its time: what comes together stands together in the index (docs/adr/0041)
		}
	}
	keys = []Key{{delivery, in.cfg.Window}}
	if id.Intent != "" {
		keys = append(keys, Key{in.hash(kind+"intent", id.Tenant, id.Intent), in.cfg.IntentWindow})
	}
	if id.Payload != nil {
		sum := sha256.Sum256(id.Payload)
		half := Hash(sum[:16])
		payload = &half
	}
	return keys, payload, nil
}

// hash takes lengths along, so that no two lists of parts are one text.
func (in *Inbox[Tx]) hash(parts ...string) Hash {
	var text []byte
	for _, part := range append([]string{in.cfg.Consumer}, parts...) {
		text = append(append(strconv.AppendInt(text, int64(len(part)), 10), ':'), part...)
	}
	sum := sha256.Sum256(text)
	return Hash(sum[:16])
}

func differs(id string, have, came *Hash) error {
	if have == nil || came == nil || *have == *came {
		return nil
	}
	return &OtherPayloadError{ID: id, Have: *have, Came: *came}
}
