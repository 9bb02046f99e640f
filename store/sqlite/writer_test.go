package sqlite

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

func someEvents(n int) []outbox.Event {
	events := make([]outbox.Event, n)
	for i := range events {
		events[i] = outbox.Event{ID: uuid.New(), Topic: fmt.Sprint(i), Source: "test",
			Payload: json.RawMessage(`{"a":   1.50}`)}
	}
	return events
}

// A call of several statements is in the transaction wholly or not at all, although SQLite, unlike
// PostgreSQL, lets a transaction go on after an error.
func TestWriteOfManyStatementsIsAtomic(t *testing.T) {
	t.Parallel()
	db := filled(t,
		`CREATE TRIGGER picky BEFORE INSERT ON outbox_events WHEN NEW.event_topic = 'never' BEGIN SELECT raise(ABORT, 'it may not'); END`)
	for _, refuse := range []bool{false, true} {
		w, err := NewWriter(outbox.WriterConfig{RefuseDuplicates: refuse})
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []int{0, 1, rowsPerInsert - 1, rowsPerInsert, 3*rowsPerInsert - 1} {
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			events := someEvents(3 * rowsPerInsert)
			events[bad].Topic = "never"
			if err := w.Write(t.Context(), tx, events...); err == nil || !strings.Contains(err.Error(), "it may not") {
				t.Errorf("number %d: got error %v", bad, err)
			}
			if err := w.Write(t.Context(), tx, someEvents(2)...); err != nil {
				t.Errorf("number %d: afterwards: %v", bad, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			if got := value(t, db, "SELECT count(*) FROM outbox_events"); got != "2" {
				t.Errorf("number %d: %s events are there, want the 2 of the second call", bad, got)
			}
			exec(t, db, "DELETE FROM outbox_events")
		}
	}
}

func TestWriteOfManyStatementsFindsDuplicates(t *testing.T) {
	t.Parallel()
	db := filled(t)
	w, err := NewWriter(outbox.WriterConfig{RefuseDuplicates: true})
	if err != nil {
		t.Fatal(err)
	}
	events := someEvents(3*rowsPerInsert + 1)
	for _, tt := range []struct {
		events    []outbox.Event
		duplicate bool
		total     string
	}{
		{events[:2*rowsPerInsert], false, fmt.Sprint(2 * rowsPerInsert)},
		{events[2*rowsPerInsert-1:], true, fmt.Sprint(len(events))},
		{events, true, fmt.Sprint(len(events))},
	} {
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), tx, tt.events...); errors.Is(err, outbox.ErrDuplicateEvent) != tt.duplicate {
			t.Errorf("got error %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if got := value(t, db, "SELECT count(*) FROM outbox_events"); got != tt.total {
			t.Errorf("%s events, want %s", got, tt.total)
		}
	}
	if got := value(t, db,
		"SELECT group_concat(event_topic) FROM (SELECT event_topic FROM outbox_events ORDER BY position "+
			"LIMIT 3)"); got != "0,1,2" {
		t.Errorf("the first are %s", got)
	}
	if got := value(t, db, "SELECT payload FROM outbox_events LIMIT 1"); got != `{"a":   1.50}` {
		t.Errorf("the payload is %s", got)
	}
}

// The transaction need not be ours: an application opens the file as it likes, and its transactions
// are deferred.
func TestWriteInATransactionOfTheApplications(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	db := reopened(t, path)
	if err := upAll(t, db); err != nil {
		t.Fatal(err)
	}
	app, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = app.Close() }()
	w, err := NewWriter(outbox.WriterConfig{Table: "main.outbox_events", Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	for i, commit := range []bool{true, false, true} {
		tx, err := app.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), tx, someEvents(1+i)...); err != nil {
			t.Fatal(err)
		}
		if commit {
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := value(t, db, "SELECT count(*) FROM outbox_events"); got != "4" {
		t.Errorf("%s events, want 4", got)
	}
	if _, err := NewWriter(outbox.WriterConfig{Table: "a.b.c"}); err == nil {
		t.Error("a name of three parts was taken")
	}
}

// A DB's own writer writes in the transactions of that DB, and refuses others.
func TestWriterOfADatabase(t *testing.T) {
	t.Parallel()
	db, other := filled(t), filled(t)
	w, err := db.NewWriter(t.Context(), outbox.WriterConfig{RefuseDuplicates: true})
	if err != nil {
		t.Fatal(err)
	}
	event := someEvents(1)[0]
	for _, tt := range []struct {
		db     *DB
		events []outbox.Event
		want   string
	}{{db, []outbox.Event{event}, ""}, {db, []outbox.Event{event}, "duplicate event"}, {db, someEvents(3), ""},
		{other, someEvents(1), "different database"}} {
		tx, err := tt.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), tx, tt.events...); (err == nil) != (tt.want == "") || err != nil &&
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("got error %v, want %q", err, tt.want)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if got := value(t, db, "SELECT count(*) FROM outbox_events"); got != "4" {
		t.Errorf("%s events, want 4", got)
	}
}
