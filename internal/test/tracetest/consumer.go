package tracetest

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/outboxrelay/outbox/inbox"
	"github.com/outboxrelay/outbox/internal/test/model"
)

// consume takes what the sink has, until ctx ends. It dies now and then: before its transaction is
// committed, or behind that and before anybody hears of it. What it has not acknowledged comes
// again.
func (s *system) consume(ctx context.Context) {
	in, err := s.guard.Inbox(inbox.Config{Consumer: "trace"})
	if err == nil {
		err = s.guard.Register(ctx, in, func() error { return nil }, func(err error) { s.t.Error(err) })
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
func (s *system) handle(in *inbox.Inbox[*sql.Tx], event int) {
	step := model.Action{Name: "effect", Relay: -1, Lane: -1, Event: int8(event)}
	dies := s.random.IntN(4)
	died := errors.New("the consumer has died")
	var result inbox.Result
	ctx := context.WithoutCancel(s.t.Context())
	err := s.guard.Do(ctx, func(tx *sql.Tx) (err error) {
		result, err = in.Once(ctx, tx, inbox.ID{Event: s.events[event].String()}, func() error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects (n) VALUES (1)")
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
