package tracetest

import (
	"context"
	"errors"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/test/model"
)

// consume takes what the sink has, until ctx ends. It dies now and then: before its transaction is committed, or behind
// that and before anybody hears of it. What it has not acknowledged comes again.
func (s *system) consume(ctx context.Context) {
	in, err := s.guard.New(inbox.Config{Consumer: "trace"})
	if err == nil {
		err = s.in(func(tx outbox.SQLTx) error { return in.Register(ctx, tx) })
	}
	if err != nil {
		s.t.Error(err)
		return
	}
	for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
		s.Lock()
		if len(s.sent) > 0 {
			s.handle(in, s.sent[0])
		}
		s.Unlock()
	}
}

// handle handles the message of an event. Caller holds the lock.
func (s *system) handle(in *inbox.Inbox[outbox.SQLTx], event int) {
	step := model.Action{Name: "effect", Relay: -1, Lane: -1, Event: int8(event)}
	dies := s.random.IntN(4)
	died := errors.New("the consumer has died")
	var result inbox.Result
	err := s.in(func(tx outbox.SQLTx) (err error) {
		result, err = in.Once(s.t.Context(), tx, inbox.ID{Event: s.events[event].String()}, func() error {
			_, err := tx.ExecContext(s.t.Context(), "INSERT INTO effects (n) VALUES (1)")
			return err
		})
		if err == nil && dies == 0 {
			return died
		}
		return err
	})
	switch {
	case errors.Is(err, died):
		return
	case err != nil:
		s.t.Error(err)
	case result == inbox.Done:
		s.note(step, s.rows())
	}
	if dies == 1 {
		return
	}
	s.sent = s.sent[1:]
	step.Name = "acknowledge"
	s.note(step, s.rows())
}

// in runs fn in a transaction of the consumer's, which it commits unless fn fails.
func (s *system) in(fn func(tx outbox.SQLTx) error) error {
	tx, err := s.guard.Begin(context.WithoutCancel(s.t.Context()))
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
