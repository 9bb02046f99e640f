// Package inboxtest is what an inbox of any database must pass.
package inboxtest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
)

// Harness is a database of a test's own, with a table effects (n INTEGER).
type Harness struct {
	New   func(inbox.Config) (*inbox.Inbox[outbox.SQLTx], error)
	Begin func(ctx context.Context) (*sql.Tx, error) // that may write
	// Earlier is SQL for a time of the column that is so much earlier.
	Earlier func(column string, by time.Duration) string
}

// age makes all that is remembered, and the turn, older.
func (h Harness) age(t *testing.T, by time.Duration) {
	t.Helper()
	if err := h.in(t, func(tx outbox.SQLTx) error {
		for table, column := range map[string]string{
			"outbox_inbox_0": "at", "outbox_inbox_1": "at", "outbox_inbox_turn": "since",
		} {
			update := fmt.Sprintf("UPDATE %s SET %s = %s", table, column, h.Earlier(column, by))
			if _, err := tx.ExecContext(t.Context(), update); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// Suite runs all tests, each on a database of its own.
func Suite(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for name, run := range map[string]func(*testing.T, Harness){
		"a copy has no effect": copies, "consumers and tenants are apart": apart, "an intent has one effect": intents,
		"many are remembered at once": many,
		"another payload is told":     payloads, "of many at once one has the effect": atOnce, "turns end and forget": turns,
		"a claim is one's": claims, "windows are checked": windows,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t))
		})
	}
}

// in runs fn in a transaction, which it commits unless fn fails.
func (h Harness) in(t *testing.T, fn func(tx outbox.SQLTx) error) error {
	t.Helper()
	tx, err := h.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (h Harness) consumer(t *testing.T, cfg inbox.Config) *inbox.Inbox[outbox.SQLTx] {
	t.Helper()
	in, err := h.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.in(t, func(tx outbox.SQLTx) error { return in.Register(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
	return in
}

// handle has an effect once, and says what became of it.
func (h Harness) handle(
	t *testing.T, in *inbox.Inbox[outbox.SQLTx], id inbox.ID, fail error,
) (result inbox.Result, err error) {
	t.Helper()
	err = h.in(t, func(tx outbox.SQLTx) (err error) {
		result, err = in.Once(t.Context(), tx, id, func() error {
			if _, err := tx.ExecContext(t.Context(), "INSERT INTO effects (n) VALUES (1)"); err != nil {
				return err
			}
			return fail
		})
		return err
	})
	return result, err
}

func (h Harness) want(t *testing.T, in *inbox.Inbox[outbox.SQLTx], id inbox.ID, want inbox.Result) {
	t.Helper()
	if got, err := h.handle(t, in, id, nil); err != nil || got != want {
		t.Errorf("%+v: got %v, error %v, want %v", id, got, err, want)
	}
}

func (h Harness) effects(t *testing.T, want int) {
	t.Helper()
	n := 0
	if err := h.in(t, func(tx outbox.SQLTx) error {
		rows, err := tx.QueryContext(t.Context(), "SELECT count(*) FROM effects")
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			if err := rows.Scan(&n); err != nil {
				return err
			}
		}
		return rows.Err()
	}); err != nil {
		t.Fatal(err)
	}
	if n != want {
		t.Errorf("%d effects, want %d", n, want)
	}
}

func copies(t *testing.T, h Harness) {
	in := h.consumer(t, inbox.Config{Consumer: "billing"})
	no := errors.New("no")
	if _, err := h.handle(t, in, inbox.ID{Event: "1"}, no); !errors.Is(err, no) {
		t.Errorf("an effect that fails: %v", err)
	}
	h.want(t, in, inbox.ID{Event: "1"}, inbox.Done) // nothing was remembered
	h.want(t, in, inbox.ID{Event: "1"}, inbox.Duplicate)
	h.want(t, in, inbox.ID{Event: "2"}, inbox.Done)
	h.effects(t, 2)
	var field *outbox.FieldError
	if _, err := h.handle(t, in, inbox.ID{}, nil); !errors.As(err, &field) || field.Field != "ID.Event" {
		t.Errorf("without an id: %v", err)
	}
}

func many(t *testing.T, h Harness) {
	in := h.consumer(t, inbox.Config{Consumer: "billing"})
	h.want(t, in, inbox.ID{Event: "2"}, inbox.Done)
	for _, want := range [][]inbox.Result{
		{inbox.Done, inbox.Duplicate, inbox.Done, inbox.Duplicate, inbox.Done},
		{inbox.Duplicate, inbox.Duplicate, inbox.Duplicate, inbox.Duplicate, inbox.Duplicate},
	} {
		var got []inbox.Result
		err := h.in(t, func(tx outbox.SQLTx) error {
			answers, err := in.Remember(t.Context(), tx, inbox.ID{Event: "1"}, inbox.ID{Event: "2"}, inbox.ID{Event: "3"},
				inbox.ID{Event: "1"}, inbox.ID{Event: "2", Tenant: "another"})
			for _, a := range answers {
				got = append(got, a.Result)
			}
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, error %v, want %v", got, err, want)
		}
	}
	h.want(t, in, inbox.ID{Event: "3"}, inbox.Duplicate)
	if err := h.in(t, func(tx outbox.SQLTx) error {
		_, err := in.Remember(t.Context(), tx, inbox.ID{Event: "4"}, inbox.ID{})
		return err
	}); !errors.Is(err, outbox.ErrInvalidEvent) {
		t.Errorf("one without an id: %v", err)
	}
	h.want(t, in, inbox.ID{Event: "4"}, inbox.Done)
}

func apart(t *testing.T, h Harness) {
	billing, mail := h.consumer(t, inbox.Config{Consumer: "billing"}), h.consumer(t, inbox.Config{Consumer: "mail"})
	h.want(t, billing, inbox.ID{Event: "1"}, inbox.Done)
	h.want(t, mail, inbox.ID{Event: "1"}, inbox.Done)
	h.want(t, mail, inbox.ID{Event: "1", Tenant: "acme"}, inbox.Done)
	h.want(t, mail, inbox.ID{Event: "1", Tenant: "acme"}, inbox.Duplicate)
	h.want(t, mail, inbox.ID{Event: "acme1"}, inbox.Done)
}

func intents(t *testing.T, h Harness) {
	in := h.consumer(t, inbox.Config{Consumer: "billing", IntentWindow: time.Hour})
	h.want(t, in, inbox.ID{Event: "1", Intent: "order-42/placed"}, inbox.Done)
	h.want(t, in, inbox.ID{Event: "2", Intent: "order-42/placed"}, inbox.Duplicate) // clicked twice
	h.want(t, in, inbox.ID{Event: "order-42/placed"}, inbox.Done)                   // an event's id is no intent
	h.age(t, 61*time.Minute)
	h.want(t, in, inbox.ID{Event: "3", Intent: "order-42/placed"}, inbox.Done) // meant again
	h.want(t, in, inbox.ID{Event: "2", Intent: "order-42/placed"}, inbox.Duplicate)
	h.effects(t, 3)
}

func payloads(t *testing.T, h Harness) {
	in := h.consumer(t, inbox.Config{Consumer: "billing"})
	h.want(t, in, inbox.ID{Event: "1", Payload: []byte("a")}, inbox.Done)
	h.want(t, in, inbox.ID{Event: "1", Payload: []byte("a")}, inbox.Duplicate)
	h.want(t, in, inbox.ID{Event: "1"}, inbox.Duplicate)
	result, err := h.handle(t, in, inbox.ID{Event: "1", Payload: []byte("b")}, nil)
	var other *inbox.OtherPayloadError
	if !errors.As(err, &other) || !errors.Is(err, inbox.ErrOtherPayload) || result != inbox.Duplicate ||
		other.Have == other.Came || other.ID != "1" {
		t.Errorf("got %v, error %v", result, err)
	}
	h.effects(t, 1)
}

func atOnce(t *testing.T, h Harness) {
	in := h.consumer(t, inbox.Config{Consumer: "billing"})
	const ids, copies = 20, 6
	var done, duplicates atomic.Int32
	var group sync.WaitGroup
	for n := range ids * copies {
		group.Go(func() {
			id := inbox.ID{Event: fmt.Sprint("e", n%ids), Intent: fmt.Sprint("i", n%ids), Payload: []byte("p")}
			switch result, err := h.handle(t, in, id, nil); {
			case err != nil:
				t.Errorf("%s: %v", id.Event, err)
			case result == inbox.Done:
				done.Add(1)
			default:
				duplicates.Add(1)
			}
		})
	}
	group.Wait()
	if done.Load() != ids || duplicates.Load() != ids*(copies-1) {
		t.Errorf("%d done, %d duplicates, want %d and %d", done.Load(), duplicates.Load(), ids, ids*(copies-1))
	}
	h.effects(t, ids)
}

func (h Harness) sweep(t *testing.T, in *inbox.Inbox[outbox.SQLTx], want bool) {
	t.Helper()
	var ended bool
	err := h.in(t, func(tx outbox.SQLTx) (err error) {
		ended, err = in.Sweep(t.Context(), tx)
		return err
	})
	if err != nil || ended != want {
		t.Errorf("a turn ended: %t, error %v, want %t", ended, err, want)
	}
}

// What is remembered in one table is found when the other has its turn, and is gone when its own
// comes again.
func turns(t *testing.T, h Harness) {
	const window = time.Hour
	in := h.consumer(t, inbox.Config{Consumer: "billing", Window: window})
	h.age(t, window)
	h.sweep(t, in, true) // the turn begins now
	h.want(t, in, inbox.ID{Event: "before"}, inbox.Done)
	h.sweep(t, in, false) // too early
	h.age(t, window/2)
	h.want(t, in, inbox.ID{Event: "late"}, inbox.Done)
	h.age(t, window/2)
	h.sweep(t, in, true)
	h.sweep(t, in, false)
	h.want(t, in, inbox.ID{Event: "late"}, inbox.Duplicate)
	h.want(t, in, inbox.ID{Event: "before"}, inbox.Done) // its window is over
	h.want(t, in, inbox.ID{Event: "before"}, inbox.Duplicate)
	h.age(t, window)
	h.sweep(t, in, true)
	h.want(t, in, inbox.ID{Event: "late"}, inbox.Done)
	// Another consumer's longer window counts for all.
	h.consumer(t, inbox.Config{Consumer: "ledger", Window: 3 * window})
	h.age(t, 2*window)
	h.sweep(t, in, false)
}

func claims(t *testing.T, h Harness) {
	in := h.consumer(t, inbox.Config{Consumer: "mail"})
	claim := func(id inbox.ID, lease time.Duration) (c *inbox.Claim[outbox.SQLTx], err error) {
		err = h.in(t, func(tx outbox.SQLTx) (err error) {
			c, err = in.Claim(t.Context(), tx, id, lease)
			return err
		})
		return c, err
	}
	finish := func(c *inbox.Claim[outbox.SQLTx], answer string) error {
		return h.in(t, func(tx outbox.SQLTx) error { return c.Done(t.Context(), tx, []byte(answer)) })
	}
	id := inbox.ID{Event: uuid.NewString(), Payload: []byte("p")}
	first, err := claim(id, time.Minute)
	if err != nil || first.Answered() {
		t.Fatalf("got %+v, error %v", first, err)
	}
	var claimed *inbox.ClaimedError
	if _, err := claim(id, time.Minute); !errors.As(err, &claimed) || time.Until(claimed.Until) < 50*time.Second {
		t.Errorf("while another is at it: %v", err)
	}
	if err := finish(first, "sent"); err != nil {
		t.Fatal(err)
	}
	again, err := claim(id, time.Minute)
	if err != nil || !again.Answered() || !slices.Equal(again.Answer(), []byte("sent")) {
		t.Errorf("after it: %+v, error %v", again, err)
	}
	if _, err := claim(inbox.ID{Event: id.Event, Payload: []byte("q")}, time.Minute); !errors.Is(err,
		inbox.ErrOtherPayload) {
		t.Errorf("with another payload: %v", err)
	}
	// A process that died: its lease ends, and what it says then comes too late.
	dead := inbox.ID{Event: uuid.NewString()}
	slow, err := claim(dead, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	next, err := claim(dead, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := finish(slow, "twice"); !errors.Is(err, inbox.ErrClaimLost) {
		t.Errorf("the one that was taken over from: %v", err)
	}
	if err := h.in(t, func(tx outbox.SQLTx) error { return next.Release(t.Context(), tx) }); err != nil {
		t.Fatal(err)
	}
	if c, err := claim(dead, time.Minute); err != nil || c.Answered() {
		t.Errorf("after a release: %+v, error %v", c, err)
	}
}

func windows(t *testing.T, h Harness) {
	for _, c := range []struct {
		cfg  inbox.Config
		want time.Duration
	}{
		{inbox.Config{Consumer: "c"}, inbox.DefaultWindow},
		{inbox.Config{Consumer: "c", Copies: map[string]time.Duration{"retention of Kafka": 7 * 24 * time.Hour}},
			8 * 24 * time.Hour},
		{inbox.Config{Consumer: "c", Window: time.Hour}, time.Hour},
	} {
		if in, err := h.New(c.cfg); err != nil || in.Window() != c.want {
			t.Errorf("%+v: error %v, want %s", c.cfg, err, c.want)
		}
	}
	_, err := h.New(inbox.Config{Consumer: "c", Window: time.Hour,
		Copies: map[string]time.Duration{"outbox replay": 2 * time.Hour}})
	if !errors.Is(err, inbox.ErrWindow) {
		t.Errorf("a window that is too short: %v", err)
	}
	var field *outbox.FieldError
	if _, err := h.New(inbox.Config{}); !errors.As(err, &field) {
		t.Errorf("without a name: %v", err)
	}
}
