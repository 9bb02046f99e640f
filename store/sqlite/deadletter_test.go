package sqlite

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/letters"
	"github.com/outboxrelay/outbox/internal/store/replayplace"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// filled returns a file with all tables.
func filled(t *testing.T, statements ...string) *DB {
	t.Helper()
	db, err := Create(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := migrations.Up(t.Context(), db.Writes(), "core", "events", "crawl"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := db.write.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return db
}

// planOf is what SQLite says of how it runs a statement.
func planOf(t *testing.T, db *DB, statement string, args ...any) string {
	t.Helper()
	for len(args) < strings.Count(statement, "?") {
		args = append(args, nil)
	}
	rows, err := db.read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer func() { _ = rows.Close() }()
	var lines []string
	for rows.Next() {
		var id, parent, unused int
		var line string
		if err := rows.Scan(&id, &parent, &unused, &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// Plans are those of a file that nobody has analysed.
func TestDeadLetterPlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	d, err := OpenDeadLetters(t.Context(), db,
		DeadLettersConfig{Layouts: []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox()}})
	if err != nil {
		t.Fatal(err)
	}
	known := d.(*letters.Store)
	id := uuid.New()
	pending := letters.Query{State: "pending", Limit: 100, Reason: "r", Now: time.Now(), Cut: time.Now()}
	with := func(change func(*letters.Query)) *letters.Query {
		q := pending
		change(&q)
		return &q
	}
	named := with(func(q *letters.Query) { q.IDs = []uuid.UUID{id} })
	for _, c := range []struct {
		name  string
		q     *letters.Query
		index string
	}{
		{"dlq_list", &pending, "sqlite_autoindex_job_dlq_1"},
		{"dlq_list", with(func(q *letters.Query) { q.F.After = id.String() }), "sqlite_autoindex_job_dlq_1 (id<?)"},
		{"dlq_list", with(func(q *letters.Query) { q.F.Type = "none" }), "idx_job_dlq_pending_type (type>? AND type<?)"},
		{"dlq_list", with(func(q *letters.Query) { q.F.Tenant = "none" }), "idx_job_dlq_pending_app (app_id=?)"},
		{"dlq_list", named, "sqlite_autoindex_job_dlq_1 (id=?)"},
		{"dlq_show", named, "idx_job_dlq_original_job_id (original_job_id=?)"},
		{"dlq_lock", &pending, "USING INDEX job_dlq_replay"},
		{"dlq_lock",
			with(func(q *letters.Query) {
				q.After = &replayplace.Place{Table: "outbox_events", Position: 10000, Event: id}
			}),
			"job_dlq_replay (<expr>=? AND <expr>>?)"},
		{"dlq_lock",
			with(func(q *letters.Query) {
				q.After = &replayplace.Place{Table: "outbox_events", Position: 10000, Event: id}
			}),
			"job_dlq_replay (<expr>>?)"},
		{"dlq_lock", named, "sqlite_autoindex_job_dlq_1 (id=?)"},
		{"dlq_discard", &pending, "job_dlq_replay"},
		{"dlq_purge", with(func(q *letters.Query) { q.State, q.Since = "replayed", "replayed_at" }),
			"job_dlq_replayed (replayed_at>? AND replayed_at<?)"},
		{"dlq_purge", with(func(q *letters.Query) { q.State, q.Since = "discarded", "discarded_at" }),
			"job_dlq_discarded (discarded_at>? AND discarded_at<?)"},
		{"dlq_purgeable", with(func(q *letters.Query) { q.State, q.Since = "replayed", "replayed_at" }),
			"job_dlq_replayed (replayed_at>? AND replayed_at<?)"},
		{"dlq_mark", &pending, "sqlite_autoindex_job_dlq_1 (id=?)"},
		{"dlq_revive", known.Of("outbox_events", pending), "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"},
		{"dlq_why", known.Of("outbox_events", pending), "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"},
		{"dlq_revive", known.Of("event_outbox", pending), "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"},
		{"dlq_insert", known.Of("crawl_outbox", pending), "SEARCH x USING INTEGER PRIMARY KEY (rowid=?)"},
		{"dlq_why", known.Of("crawl_outbox", pending), "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)"},
		{"dlq_actions", &pending, "sqlite_autoindex_outbox_audit_1"},
		// The one that reads all of an outbox table must do it once, not once a key.
		{"dlq_order", known.Of("outbox_events", pending), "SEARCH k USING AUTOMATIC COVERING INDEX"},
		{"dlq_order", known.Of("crawl_outbox", pending), "SEARCH k USING AUTOMATIC COVERING INDEX"},
	} {
		statement, args, err := cold.Statement(sqlitecold.DB{}, c.name, c.q)
		if err != nil {
			t.Fatal(err)
		}
		plan := planOf(t, db, statement, args...)
		if !strings.Contains(plan, c.index) {
			t.Errorf("%s is not served by %s:\n%s", c.name, c.index, plan)
		}
		// A page must not cost what all that follows costs.
		if paged := c.q.After != nil || c.q.F.After != "" || c.q == &pending; paged && c.name != "dlq_order" &&
			strings.Contains(plan, "FOR ORDER BY") {
			t.Errorf("%s sorts:\n%s", c.name, plan)
		}
	}
}
