package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// ErrClaimed is matched by a *ClaimedError.
var ErrClaimed = errors.New("another has claimed it")

// ClaimedError says that another is at an effect, or was when it died.
type ClaimedError struct{ Until time.Time }

func (e *ClaimedError) Error() string {
	return fmt.Sprintf("%v until %s: try again then", ErrClaimed, e.Until.UTC().Format(time.RFC3339))
}

// Unwrap is ErrClaimed.
func (e *ClaimedError) Unwrap() error { return ErrClaimed }

// Claim is an effect outside of the database (a mail, a call of another service) that this process
// is to have.
type Claim[Tx any] struct {
	in    *Inbox[Tx]
	key   Key
	owner uuid.UUID
	event string

	answer []byte
	done   bool
}

// Claim makes this process the one that has an effect outside of the database, until the lease
// ends. tx is a transaction of its own: commit it before the effect begins.
//
// If the effect was had already, Answered is true, and Answer has what Done stored. If another is
// at it, the error is a *ClaimedError. What no database can promise: a process that dies between
// the effect and Done leaves it to the next to have it again. So hand the id of the event on to
// whom you call, as its idempotency key.
func (in *Inbox[Tx]) Claim(ctx context.Context, tx Tx, id ID, lease time.Duration) (*Claim[Tx], error) {
	keys, payload, err := in.keys(id, "claim of ")
	if err != nil {
		return nil, err
	}
	owner, err := uuid.NewRandom()
	if err != nil {
		return nil, err
	}
	c := &Claim[Tx]{in: in, key: keys[len(keys)-1], owner: owner, event: id.Event}
	found, err := in.store.Claim(ctx, tx, c.key, payload, owner, lease)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", id.Event, err)
	}
	if err := differs(id.Event, found.Payload, payload); err != nil {
		return nil, err
	}
	switch {
	case found.Done:
		c.answer, c.done = found.Answer, true
	case found.Owner != owner:
		return nil, fmt.Errorf("claim %s: %w", id.Event, &ClaimedError{found.Until})
	}
	return c, nil
}

// Answered tells whether the effect was had already.
func (c *Claim[Tx]) Answered() bool { return c.done }

// Answer is what Done stored, of whoever had the effect.
func (c *Claim[Tx]) Answer() []byte { return c.answer }

// Done says that the effect was had, and keeps an answer for copies. If the lease has ended and
// another has taken over, it is ErrClaimLost.
func (c *Claim[Tx]) Done(ctx context.Context, tx Tx, answer []byte) error {
	kept, err := c.in.store.Finish(ctx, tx, c.key, c.owner, answer)
	if err == nil && !kept {
		err = ErrClaimLost
	}
	if err != nil {
		return fmt.Errorf("store the answer of %s: %w", c.event, err)
	}
	c.answer, c.done = answer, true
	return nil
}

// Release gives the claim up, so that a copy need not wait for the end of the lease: the effect was
// not had.
func (c *Claim[Tx]) Release(ctx context.Context, tx Tx) error {
	if err := c.in.store.Release(ctx, tx, c.key, c.owner); err != nil {
		return fmt.Errorf("release the claim of %s: %w", c.event, err)
	}
	return nil
}
