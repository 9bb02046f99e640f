package sqlite

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/retention"
	"github.com/outboxrelay/outbox/tables"
)

func TestRetentionPlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	letters, err := OpenLetterRetention(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	all := map[*Retention]map[string]string{letters: {
		letters.sql.walk: "SEARCH e USING INDEX job_dlq_replayed (replayed_at>? AND replayed_at<?)", letters.sql.sweep: "SEARCH e USING INTEGER PRIMARY KEY (rowid>?)",
		letters.sql.keep: "sqlite_autoindex_job_dlq_1 (id=?)", letters.sql.remove: "sqlite_autoindex_job_dlq_1 (id=?)", letters.sql.held: "SEARCH m USING PRIMARY KEY",
	}}
	for _, layout := range []tables.Layout{tables.OutboxEvents(), tables.EventOutbox(), tables.CrawlOutbox()} {
		r, err := OpenRetention(t.Context(), db, layout)
		if err != nil {
			t.Fatal(err)
		}
		all[r] = map[string]string{
			r.sql.walk: "SEARCH e USING INTEGER PRIMARY KEY (rowid>?)", r.sql.sweep: "SEARCH e USING INTEGER PRIMARY KEY (rowid>?)",
			r.sql.keep: "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)", r.sql.remove: "USING INTEGER PRIMARY KEY (rowid=?)",
		}
		if plan := planOf(t, db, r.sql.remove); layout.Destinations != "" && !strings.Contains(plan, "idx_job_dlq_original_job_id") {
			t.Errorf("letters of %s are not looked up by an index:\n%s", layout.Table, plan)
		}
	}
	for r, plans := range all {
		for statement, index := range plans {
			if plan := planOf(t, db, statement); !strings.Contains(plan, index) || strings.Contains(plan, "FOR ORDER BY") {
				t.Errorf("%s: not served by %s:\n%s\n%s", r.layout.Table, index, plan, statement)
			}
		}
	}
}

// Times that plain SQL wrote in another of SQLite's forms count as what they are, what is no time never grows old, and ids may have any form.
func TestRetentionOfOtherTimesAndIDs(t *testing.T) {
	t.Parallel()
	db := filled(t,
		`CREATE TABLE mine (n INTEGER PRIMARY KEY, uid NOT NULL, what, body, tries, due, done, secret BLOB, twice AS (n * 2))`,
		`INSERT INTO mine (n, uid, done, secret) VALUES (1, 'A', datetime('now', '-8 days'), x'beef'), (2, x'00', strftime('%Y-%m-%dT%H:%M:%SZ', 'now', '-8 days'), NULL), (3, 'C', datetime('now', '-6 days'), NULL),
			(4, 'D', 'long ago', NULL), (5, 'E', NULL, NULL), (6, 'F', julianday('now', '-8 days'), NULL)`)
	layout := tables.Layout{Table: "mine", ID: "uid", Position: "n", Topic: "what", Payload: "body", Attempts: "tries", NextRetryAt: "due", DeliveredAt: "done"}
	r, err := OpenRetention(t.Context(), db, layout)
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
	if err := db.read.QueryRowContext(t.Context(), `SELECT (SELECT group_concat(n) FROM mine), (SELECT row FROM outbox_archive WHERE position = 1)`).Scan(&left, &kept); err != nil {
		t.Fatal(err)
	}
	if left != "3,4,5" || !strings.Contains(kept, `"secret":"\\xbeef"`) || strings.Contains(kept, "twice") {
		t.Errorf("left %s, archived %s", left, kept)
	}
	if err := r.Audit(t.Context(), "me", time.Hour, report); err != nil {
		t.Fatal(err)
	}
	var action, filter string
	if err := db.read.QueryRowContext(t.Context(), `SELECT actor || ' ' || action || ' ' || letters || ' ' || (detail ->> 'action'), filter FROM outbox_audit`).Scan(&action, &filter); err != nil {
		t.Fatal(err)
	}
	if action != "me purge 3 archived" || filter != `{"older_than":"1h0m0s","table":"mine"}` {
		t.Errorf("recorded %s, %s", action, filter)
	}
}

func TestRetentionRefusesWhatItCannotServe(t *testing.T) {
	t.Parallel()
	db := filled(t, `CREATE TABLE bare (n INTEGER PRIMARY KEY, uid, what, body, tries, due, state, done) WITHOUT ROWID`)
	layout := tables.Layout{Table: "bare", ID: "uid", Position: "n", Topic: "what", Payload: "body", Attempts: "tries", NextRetryAt: "due", Status: "state", Pending: "new", Delivered: "done", Dead: "dead"}
	if _, err := OpenRetention(t.Context(), db, layout); !errors.Is(err, tables.ErrNoAge) || !strings.Contains(err.Error(), "delivered_at or written_at") {
		t.Errorf("got %v, want ErrNoAge with a remedy", err)
	}
	layout.DeliveredAt = "done"
	if _, err := OpenRetention(t.Context(), db, layout); err == nil || !strings.Contains(err.Error(), "rowid") {
		t.Errorf("got %v, want one that says that there is no rowid", err)
	}
	if _, err := db.write.ExecContext(t.Context(), "DROP TABLE outbox_archive"); err != nil {
		t.Fatal(err)
	}
	var schema *tables.SchemaError
	if _, err := OpenRetention(t.Context(), db, tables.OutboxEvents()); !errors.As(err, &schema) || !strings.Contains(err.Error(), "outbox migrate up --set core") {
		t.Errorf("got %v, want a SchemaError with a remedy", err)
	}
}
