package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
)

func failedJob(kind string) deadletter.Job {
	return deadletter.Job{ID: uuid.New(), Type: kind, Payload: json.RawMessage(`{"to": "x"}`),
		Reason: deadletter.JobMaxRetries, Attempts: 3, Errors: []deadletter.Failure{{Error: "no", Timestamp: time.Now()}}}
}

func single(t *testing.T, db *DB, query string) (n int) {
	t.Helper()
	if err := db.read.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// A job's letter is part of the transaction that it is recorded in.
func TestJobLettersInATransaction(t *testing.T) {
	t.Parallel()
	db := filled(t)
	rolledBack := errors.New("rolled back")
	for _, want := range []error{rolledBack, nil} {
		if err := db.inTx(t.Context(), func(tx *sql.Tx) error {
			if _, err := deadletter.Add(t.Context(), NewJobLetters(tx), failedJob("mail")); err != nil {
				return err
			}
			return want
		}); !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	if n := single(t, db, "SELECT count(*) FROM job_dlq"); n != 1 {
		t.Errorf("%d letters, want that of the transaction that committed", n)
	}
}

// Jobs go back to their runner in the transaction that marks their letter.
func TestReplayOfJobs(t *testing.T) {
	t.Parallel()
	db := filled(t, "CREATE TABLE jobs (id TEXT PRIMARY KEY, args TEXT)")
	d, err := OpenDeadLetters(t.Context(), db,
		DeadLettersConfig{ReplayJob: func(ctx context.Context, tx *sql.Tx, l deadletter.Letter) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO jobs VALUES (?, ?)", l.OriginalID.String(),
				string(l.Payload)); err != nil {
				return err
			}
			if l.Type == "refused" {
				return errors.New("no such queue")
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"mail", "refused", "mail"} {
		id, err := deadletter.Add(t.Context(), NewJobLetters(db.Writes()), failedJob(kind))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Show(t.Context(), id, "default"); err != nil {
			t.Error(err)
		}
		if _, err := d.Show(t.Context(), id, "acme"); !errors.Is(err, deadletter.ErrNoLetter) {
			t.Errorf("another tenant's letter: got %v, want ErrNoLetter", err)
		}
	}
	if p, err := d.Preview(t.Context(), deadletter.Selection{All: true}, time.Minute); err != nil || p.Letters != 3 ||
		p.Tables[0].Stuck != 0 {
		t.Errorf("preview %+v, error %v", p, err)
	}
	sum, err := deadletter.Replay(t.Context(), d,
		deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"}})
	if err != nil || sum.Letters != 2 || sum.Tables[""] != 2 || len(sum.Reasons) != 1 ||
		sum.Reasons[0].Why != "its runner did not take it: no such queue" {
		t.Errorf("got %+v, error %v", sum, err)
	}
	if n := single(t, db,
		"SELECT count(*) FROM jobs JOIN job_dlq ON jobs.id = original_job_id AND replayed_at IS NOT NULL AND args "+
			"= payload"); n != 2 {
		t.Errorf("%d jobs are back and marked, want 2", n)
	}
	if n := single(t, db, "SELECT count(*) FROM jobs"); n != 2 {
		t.Errorf("%d jobs, want 2: what was done for the refused one must be undone", n)
	}
}

// Rows of somebody else's table, with what makes finding them and putting them back hard.
func TestReplayOfOtherTables(t *testing.T) {
	t.Parallel()
	const letter = `INSERT INTO job_dlq (source, app_id, type, payload, error_reason, attempts, error_history, original_job_id, outbox_table, position, origin)
		SELECT 'event', id, 't', '{"n": 2}', 'DeliveryFailed', 1, '[{"error": "no"}]', '01900000-0000-7000-8000-00000000000`
	db := filled(t,
		`CREATE TABLE marked (n INTEGER PRIMARY KEY, uid NOT NULL, what, body, tries, due, state, dests)`,
		`INSERT INTO marked VALUES (1, '01900000-0000-7000-8000-00000000000A', 't', '{}', 5, NULL, 'dead', NULL), (2, x'0190000000007000800000000000000b', 't', '{}', 5, NULL, 'dead', NULL),
			(3, '01900000-0000-7000-8000-00000000000f', 't', '{}', 5, NULL, 'dead', NULL)`,
		`CREATE TABLE "left ""it" ("No" INTEGER PRIMARY KEY, uid NOT NULL, what, "Body", tries, due, sent DATETIME, secret BLOB, amount REAL, twice AS ("No" * 2), note)`,
		letter+`a', 'marked', 1, NULL FROM apps`, letter+`b', 'marked', 2, NULL FROM apps`,
		letter+`c', 'marked', 3, NULL FROM apps`,
		letter+
			`a', 'left "it', 7, json_object('No', 7, 'uid', '01900000-0000-7000-8000-00000000000a', 'what', 't', 'Body', NULL, 'tries', 5, 'due', NULL, 'sent', NULL, 'secret', json('{"blob":"BEEF"}'), 'amount', 0.1, 'twice', 14, 'note', 'a') FROM apps`)
	d, err := OpenDeadLetters(t.Context(), db, DeadLettersConfig{Layouts: []outbox.Layout{
		{Table: "marked", ID: "uid", Position: "n", Topic: "what", Payload: "body", Attempts: "tries", NextRetryAt: "due",
			Status: "state", Pending: "new", Delivered: "done", Dead: "dead"},
		{Table: `left "it`, ID: "uid", Position: "no", Topic: "what", Payload: "body", Attempts: "tries", NextRetryAt: "due",
			DeliveredAt: "sent"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := deadletter.Replay(t.Context(), d,
		deadletter.ReplayOptions{Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"}})
	if err != nil || sum.Tables["marked"] != 2 || sum.Tables[`left "it`] != 1 || len(sum.Reasons) != 1 ||
		!strings.Contains(sum.Reasons[0].Why, "no longer in marked") {
		t.Errorf("got %+v, error %v", sum, err)
	}
	if n := single(t, db, "SELECT count(*) FROM marked WHERE state = 'new' AND n < 3 AND tries = 0"); n != 2 {
		t.Errorf("%d rows were put back, want the two with the event's id", n)
	}
	if n := single(t, db,
		`SELECT count(*) FROM "left ""it" WHERE "No" = 7 AND secret = x'beef' AND amount = 0.1 AND twice = 14 AND note = 'a' AND "Body" = '{"n": 2}' AND tries = 0`); n != 1 {
		t.Error("the row that left did not come back as it was")
	}
}
