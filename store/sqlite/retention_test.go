package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/letters"
	"github.com/outboxrelay/outbox/internal/store/retention"
)

func TestRetentionPlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	const rowid = "SEARCH e USING INTEGER PRIMARY KEY (rowid"
	for _, layout := range []outbox.Layout{
		retention.Letters(), outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox(),
	} {
		r, err := db.OpenRetention(t.Context(), layout)
		if err != nil {
			t.Fatal(err)
		}
		q := r.Query(retention.Search{})
		q.Places = []int64{1}
		sweep := q
		sweep.ByColumn, sweep.ByType = "rowid", "rowid"
		walk, found := rowid+">?)", rowid+"=?)"
		if layout.Position == "" {
			walk = "SEARCH e USING INDEX job_dlq_replayed (replayed_at>? AND replayed_at<?)"
			found = "sqlite_autoindex_job_dlq_1 (id=?)"
		}
		for _, s := range []struct {
			name, index string
			data        retention.Query
		}{
			{"retention_walk", walk, q}, {"retention_walk", rowid + ">?)", sweep}, {"retention_keep", found, q},
			{"retention_remove", found, q}, {"retention_held", "SEARCH m USING PRIMARY KEY", q},
		} {
			statement, _, err := cold.Statement(newAging(db), s.name, s.data)
			if err != nil {
				t.Fatal(err)
			}
			plan := planOf(t, db, statement)
			if !strings.Contains(plan, s.index) || strings.Contains(plan, "FOR ORDER BY") {
				t.Errorf("%s: not served by %s:\n%s\n%s", layout.Table, s.index, plan, statement)
			}
			if s.name == "retention_remove" && layout.Destinations != "" &&
				!strings.Contains(plan, "idx_job_dlq_original_job_id") {
				t.Errorf("letters of %s are not looked up by an index:\n%s", layout.Table, plan)
			}
		}
	}
}

// Times that plain SQL wrote in another of SQLite's forms count as what they are, what is no time
// never grows old, and ids may have any form.
func TestRetentionOfOtherTimesAndIDs(t *testing.T) {
	t.Parallel()
	db := filled(t,
		`CREATE TABLE mine (n INTEGER PRIMARY KEY, uid NOT NULL, what, body, tries, due, done, secret BLOB, twice AS (n * 2))`,
		`INSERT INTO mine (n, uid, done, secret) VALUES (1, 'A', datetime('now', '-8 days'), x'beef'), (2, x'00', strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-8 days'), NULL), (3, 'C', datetime('now', '-6 days'), NULL),
			(4, 'D', 'long ago', NULL), (5, 'E', NULL, NULL), (6, 'F', julianday('now', '-8 days'), NULL)`)
	layout := outbox.Layout{Table: "mine", ID: "uid", Position: "n", Topic: "what", Payload: "body", Attempts: "tries",
		NextRetryAt: "due", DeliveredAt: "done"}
	r, err := db.OpenRetention(t.Context(), layout)
	if err != nil {
		t.Fatal(err)
	}
	k, err := retention.New(r, retention.Config{Table: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	report, err := k.Purge(t.Context(), 0, nil)
	if err != nil || report.Rows != 3 {
		t.Errorf("got %+v, error %v, want 3 rows", report, err)
	}
	var left, kept string
	if err := db.read.QueryRowContext(t.Context(),
		`SELECT (SELECT group_concat(n) FROM mine), (SELECT row FROM outbox_archive WHERE position = 1)`).Scan(&left,
		&kept); err != nil {
		t.Fatal(err)
	}
	if left != "3,4,5" || !strings.Contains(kept, `"secret":"\\xbeef"`) || strings.Contains(kept, "twice") {
		t.Errorf("left %s, archived %s", left, kept)
	}
	if err := r.Audit(t.Context(), "me", time.Hour, report); err != nil {
		t.Fatal(err)
	}
	var action, filter string
	if err := db.read.QueryRowContext(t.Context(),
		`SELECT actor || ' ' || action || ' ' || letters || ' ' || (detail ->> 'action'), filter FROM outbox_audit`).Scan(&action, &filter); err != nil {
		t.Fatal(err)
	}
	if action != "me purge 3 archived" || filter != `{"older_than":"1h0m0s","table":"mine"}` {
		t.Errorf("recorded %s, %s", action, filter)
	}
}

func TestRetentionRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	db := filled(t, `CREATE TABLE bare (n INTEGER PRIMARY KEY, uid, what, body, tries, due, state, done) WITHOUT ROWID`)
	layout := outbox.Layout{Table: "bare", ID: "uid", Position: "n", Topic: "what", Payload: "body", Attempts: "tries",
		NextRetryAt: "due", Status: "state", Pending: "new", Delivered: "done", Dead: "dead"}
	if _, err := db.OpenRetention(t.Context(), layout); !errors.Is(err, retention.ErrNoAge) ||
		!strings.Contains(err.Error(), "delivered_at or written_at") {
		t.Errorf("got %v, want ErrNoAge with a remedy", err)
	}
	layout.DeliveredAt = "done"
	if _, err := db.OpenRetention(t.Context(), layout); err == nil || !strings.Contains(err.Error(), "rowid") {
		t.Errorf("got %v, want one that says that there is no rowid", err)
	}
	if _, err := db.write.ExecContext(t.Context(), "DROP TABLE outbox_archive"); err != nil {
		t.Fatal(err)
	}
	var schema *outbox.SchemaError
	if _, err := db.OpenRetention(t.Context(), outbox.OutboxEvents()); !errors.As(err, &schema) ||
		!strings.Contains(err.Error(), "outbox migrate up --set core") {
		t.Errorf("got %v, want a SchemaError with a remedy", err)
	}
}

// replaying is a store in which an operator replays the first row after it was found and before it
// is removed.
type replaying struct {
	retention.Store
	replay func()
}

func (r replaying) Remove(ctx context.Context, removal retention.Removal) (retention.Removed, error) {
	r.replay()
	return r.Store.Remove(ctx, removal)
}

func TestRetentionKeepsRowsReplayedBeforeTheDelete(t *testing.T) {
	t.Parallel()
	db := filled(t, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, status, processed_at)
		SELECT 't', '2020-01-01', 'test', '{}', 'SENT', '2020-01-01' FROM json_each('[1, 2, 3]')`)
	r, err := db.OpenRetention(t.Context(), outbox.OutboxEvents())
	if err != nil {
		t.Fatal(err)
	}
	k, err := retention.New(replaying{r, func() {
		exec(t, db, "UPDATE outbox_events SET status = 'NEW', processed_at = NULL WHERE position = 1")
	}}, retention.Config{Table: "outbox_events"})
	if err != nil {
		t.Fatal(err)
	}
	report, err := k.Purge(t.Context(), 0, nil)
	if err != nil || report.Rows != 2 {
		t.Errorf("got %+v, error %v, want 2 rows", report, err)
	}
	var left, archived string
	if err := db.read.QueryRowContext(t.Context(), `SELECT (SELECT group_concat(position) FROM outbox_events),
		(SELECT group_concat(position) FROM (SELECT position FROM outbox_archive ORDER BY position))`).
		Scan(&left, &archived); err != nil {
		t.Fatal(err)
	}
	if left != "1" || archived != "2,3" {
		t.Errorf("left %s, archived %s, want the replayed row 1 left and 2,3 archived", left, archived)
	}
}

// A clock that is set back leaves times that are yet to come: they must not keep everybody out
// until they come.
func TestRetentionAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	db := filled(t)
	r, err := db.OpenRetention(t.Context(), outbox.OutboxEvents())
	if err != nil {
		t.Fatal(err)
	}
	lease := func() retention.Lease {
		t.Helper()
		l, err := r.Lease(t.Context(), retention.LeaseRequest{Owner: uuid.New(), TTL: 30 * time.Second, Least: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	exec(t, db, "INSERT INTO outbox_maintenance (table_name, ran_at, swept_at) VALUES ('outbox_events', ?1, ?1)",
		stamp(time.Now().Add(6*time.Hour)))
	if l := lease(); !l.Held || l.SinceSweep < 365*24*time.Hour {
		t.Errorf("a run that has yet to begin: got %+v, want it held, and a sweep due", l)
	}
	for _, tt := range []struct {
		ahead time.Duration
		held  bool
	}{{time.Minute, false}, {9 * time.Minute, false}, {6 * time.Hour, true}} { // 10 minutes are more than ten leases
		exec(t, db, "UPDATE outbox_maintenance SET owner = 'another', ran_at = ?1, expires_at = ?2",
			stamp(time.Now().Add(-time.Hour)), stamp(time.Now().Add(tt.ahead)))
		if l := lease(); l.Held != tt.held {
			t.Errorf("another's lease that ends in %s: held %t", tt.ahead, l.Held)
		}
	}
}

// A table is leased and archived under one name, in whatever way its name is spelled.
func TestRetentionOfATableUnderOtherNames(t *testing.T) {
	t.Parallel()
	db := filled(t)
	for i, name := range []string{"outbox_events", "OUTBOX_EVENTS", "main.Outbox_Events"} {
		layout := outbox.OutboxEvents()
		layout.Table = name
		r, err := db.OpenRetention(t.Context(), layout)
		if err != nil {
			t.Fatal(err)
		}
		if l, err := r.Lease(t.Context(), retention.LeaseRequest{Owner: uuid.New(), TTL: time.Minute}); err != nil ||
			l.Held != (i == 0) {
			t.Errorf("%s: held %t, error %v", name, l.Held, err)
		}
		d, err := OpenDeadLetters(t.Context(), db, DeadLettersConfig{Layouts: []outbox.Layout{layout}})
		if err != nil {
			t.Fatal(err)
		}
		if known := d.(*letters.Store).Of("outbox_events", letters.Query{}); known.RawTable == "" {
			t.Errorf("%s: letters of outbox_events find no table", name)
		}
	}
}
