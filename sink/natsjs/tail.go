package natsjs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboxrelay/outbox/sink"
)

// tail follows subjects, with wildcards as NATS has them (* for a token, > for the rest), until ctx ends or t.Message
// returns an error. A connection that breaks is made again; one that cannot be made in the first place is an error.
func tail(ctx context.Context, url string, subjects []string, t sink.Tail) error {
	at, err := parseURL(url)
	if err != nil {
		return err
	}
	subjects = slices.Compact(slices.Sorted(slices.Values(subjects)))
	for first := true; ; first = false {
		begun, err := at.follow(ctx, subjects, t)
		var stop stopError
		switch {
		case errors.As(err, &stop):
			return stop.error
		case ctx.Err() != nil:
			return nil
		case first && !begun:
			return err
		case begun:
			t.Lost(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// stopError is what trying again does not change.
type stopError struct{ error }

// follow is one connection from its beginning to its end, which is the error. begun tells whether it could subscribe.
func (t *target) follow(ctx context.Context, subjects []string, to sink.Tail) (begun bool, err error) {
	ctx, hangUp := context.WithCancelCause(ctx)
	defer hangUp(nil)
	refuse := func(subject string, err error) {
		hangUp(stopError{fmt.Errorf("subscribe to %s: %w", subject, err)})
	}
	e, err := t.listen(ctx, refuse, hangUp)
	if err != nil {
		return false, err
	}
	defer e.conn.Close()
	for _, subject := range subjects {
		if _, err := e.conn.ChanSubscribe(subject, e.heard); err != nil {
			if errors.Is(err, nats.ErrBadSubject) {
				err = stopError{fmt.Errorf("subscribe to %q: %w", subject, err)}
			}
			return false, err
		}
	}
	err = e.flush(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return false, err
	}
	to.Subscribed(subjects)
	for {
		select {
		case m := <-e.heard:
			if err := to.Message(m.Subject, string(m.Data)); err != nil {
				return true, stopError{err}
			}
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	}
}
