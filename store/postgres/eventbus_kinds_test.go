package postgres_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/eventbus"
	"github.com/outboxrelay/outbox/store/postgres"
)

// TestEventBusByTransaction goes once through all methods with each kind of transaction. (Another
// driver: internal/test/integration.)
func TestEventBusByTransaction(t *testing.T) {
	t.Run("pgx", func(t *testing.T) {
		b := newBus(t)
		byTransaction(t, b, postgres.NewEventBus(0),
			func(f func(pgx.Tx) error) error { return pgx.BeginFunc(t.Context(), b, f) })
	})
	t.Run("database/sql with pgx", func(t *testing.T) {
		b := newBus(t)
		byTransaction(t, b, postgres.NewSQLEventBus(0), inSQL(t, stdlib.OpenDBFromPool(b.Pool)))
	})
}

func inSQL(t *testing.T, db *sql.DB) func(func(outbox.SQLTx) error) error {
	t.Cleanup(func() { _ = db.Close() })
	return func(f func(outbox.SQLTx) error) error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		if err := f(twoMethods{tx}); err != nil {
			return errors.Join(err, tx.Rollback())
		}
		return tx.Commit()
	}
}

func byTransaction[Tx any](t *testing.T, b bus, repository eventbus.Bus[Tx], inTx func(func(Tx) error) error) {
	first, second, third := b.event("order.placed", "42"), b.event("order.paid", "42"), b.event("order.shipped", "43")
	ok(t, inTx(func(tx Tx) error {
		ok(t, postgres.SetTenant(t.Context(), tx, b.app))
		for _, e := range []eventbus.Event{first, second, third} {
			ok(t, repository.Offer(t.Context(), tx, e))
		}
		if err := repository.Offer(t.Context(), tx, first); !errors.Is(err, outbox.ErrDuplicateEvent) {
			t.Errorf("offered again: %v", err)
		}
		var refused *outbox.FieldError
		if err := repository.Offer(t.Context(), tx,
			eventbus.Event{AppID: b.app, EventType: "undotted", Payload: json.RawMessage("1")}); !errors.As(err, &refused) {
			t.Errorf("an invalid event: %v", err)
		}
		return nil
	}))
	failed := errors.New("the consumer could not")
	if err := inTx(func(tx Tx) error {
		ok(t, repository.Offer(t.Context(), tx, b.event("order.lost", "")))
		return failed
	}); !errors.Is(err, failed) {
		t.Fatal(err)
	}
	ok(t, inTx(func(tx Tx) error {
		if n, err := repository.CountPending(t.Context(), tx); err != nil || n != 3 {
			t.Errorf("%d pending (%v), want 3", n, err)
		}
		listed, err := repository.ListPending(t.Context(), tx, uuid.Nil, 2)
		if err != nil || len(listed) != 2 {
			t.Errorf("listed %s (%v)", types(listed), err)
		}
		found, err := repository.ByEventID(t.Context(), tx, first.EventID)
		if err != nil || found.ID != first.ID || found.AppID != b.app || found.Key != "42" ||
			string(found.Payload) != `{"a": 1}` || found.Status != eventbus.Pending {
			t.Errorf("found %+v (%v)", found, err)
		}
		if _, err := repository.ByEventID(t.Context(), tx, uuid.New()); !errors.Is(err, eventbus.ErrNoEvent) {
			t.Errorf("no such event: %v", err)
		}
		taken, err := repository.TakePending(t.Context(), tx, 0)
		if err != nil || types(taken) != "order.placed order.paid order.shipped" {
			t.Errorf("took %s (%v)", types(taken), err)
		}
		if n, err := repository.MarkPublished(t.Context(), tx, first.ID); err != nil || n != 1 {
			t.Errorf("marked %d (%v)", n, err)
		}
		var wrong *deadletter.ReasonError
		if _, err := repository.Fail(t.Context(), tx, outbox.Failure{Reason: "Panic"}, second.ID); !errors.As(err, &wrong) {
			t.Errorf("a job's reason: %v, want a *deadletter.ReasonError", err)
		}
		why := outbox.Failure{Reason: outbox.ReasonHandlerTimeout, Error: "no answer for 30 s"}
		if n, err := repository.Fail(t.Context(), tx, why, first.ID, second.ID, second.ID); err != nil || n != 1 {
			t.Errorf("failed %d (%v), want the one that is pending", n, err)
		}
		n, err := repository.MarkFailed(t.Context(), tx, third.ID)
		if err != nil || n != 1 {
			t.Errorf("failed %d (%v)", n, err)
		}
		return nil
	}))
	ok(t, inTx(func(tx Tx) error {
		e, err := repository.ByEventID(t.Context(), tx, first.EventID)
		if err != nil || e.Status != eventbus.Published || e.PublishedAt == nil || e.PublishedAt.IsZero() {
			t.Errorf("published: %+v (%v)", e, err)
		}
		return nil
	}))

	operator, err := postgres.OpenDeadLetters(t.Context(), b.Pool,
		postgres.DeadLettersConfig{Layouts: []outbox.Layout{outbox.EventOutbox()}})
	ok(t, err)
	for id, want := range map[uuid.UUID][2]string{second.EventID: {"HandlerTimeout", "no answer for 30 s"},
		third.EventID: {"DeliveryFailed", "marked as failed"}} {
		shown, err := operator.Show(t.Context(), id, "")
		ok(t, err)
		if len(shown) != 1 {
			t.Fatalf("%d letters of %s", len(shown), id)
		}
		l := shown[0]
		var history []deadletter.Failure
		ok(t, json.Unmarshal(l.ErrorHistory, &history))
		if l.Source != deadletter.SourceEvent || l.Reason != want[0] || l.LastError != want[1] || l.Attempts != 1 ||
			l.Table != "event_outbox" || l.Key == "" ||
			l.Position == nil || l.Tenant != "mine" || len(history) != 1 || history[0].Timestamp.IsZero() ||
			string(l.Payload) != `{"a": 1}` {
			t.Errorf("letter %+v, history %v, want %v", l, history, want)
		}
	}
	page, err := operator.ReplayPage(t.Context(),
		deadletter.ReplayRequest{Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"},
			Limit: 10})
	if err != nil || page.Replayed["event_outbox"] != 2 || len(page.Skipped) != 0 {
		t.Fatalf("replayed %+v (%v)", page, err)
	}
	ok(t, inTx(func(tx Tx) error {
		taken, err := repository.TakePending(t.Context(), tx, 0)
		if err != nil || types(taken) != "order.paid order.shipped" {
			t.Errorf("after the replay took %s (%v), want the events that had failed", types(taken), err)
		}
		n, err := repository.MarkFailed(t.Context(), tx, second.ID) // again: a second letter
		if err != nil || n != 1 {
			t.Errorf("failed again: %d (%v)", n, err)
		}
		return nil
	}))
	if shown, err := operator.Show(t.Context(), second.EventID, ""); err != nil || len(shown) != 2 {
		t.Errorf("%d letters (%v), want one a failure", len(shown), err)
	}
}

func TestSQLEventBusRefusesPools(t *testing.T) {
	b := newBus(t)
	db := stdlib.OpenDBFromPool(b.Pool)
	t.Cleanup(func() { _ = db.Close() })
	repository := postgres.NewSQLEventBus(0)
	_, err := repository.TakePending(t.Context(), db, 0)
	_, marked := repository.MarkPublished(t.Context(), db, uuid.New())
	for _, err := range []error{err, marked, repository.Offer(t.Context(), db, b.event("a.b", "")),
		postgres.SetTenant(t.Context(), nil, b.app), postgres.SetTenant(t.Context(), (*pgxpool.Tx)(nil), b.app),
		postgres.SetTenant(t.Context(), (*sql.Tx)(nil), b.app)} {
		if !errors.Is(err, outbox.ErrNoTransaction) {
			t.Errorf("got %v, want ErrNoTransaction", err)
		}
	}
	foreign := stdlib.OpenDBFromPool(newPool(t, b.url+encodingOf(b.url)))
	t.Cleanup(func() { _ = foreign.Close() })
	tx, err := foreign.BeginTx(context.Background(), nil)
	ok(t, err)
	defer func() { _ = tx.Rollback() }()
	ok(t, postgres.SetTenant(t.Context(), tx, b.app))
	var encoding *postgres.EncodingError
	if err := repository.Offer(t.Context(), tx, b.event("a.b", "")); !errors.As(err, &encoding) ||
		encoding.Encoding != "LATIN1" {
		t.Errorf("through LATIN1: %v, want an *EncodingError", err)
	}
}

func encodingOf(url string) string {
	if strings.Contains(url, "?") {
		return "&client_encoding=LATIN1"
	}
	return "?client_encoding=LATIN1"
}
