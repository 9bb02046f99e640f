package sqlite

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/google/uuid"
)

// FR-005's own statements, word for word: the worker's INSERT, the poll, and the mark.
func TestFR005Statements(t *testing.T) {
	t.Parallel()
	db, runID := filled(t), uuid.New()
	exec(t, db, "INSERT INTO crawl_runs (id, app_package, tenant_id, status) VALUES (?1, 'p', 'acme', 'RUNNING')", runID)
	exec(t, db, "INSERT INTO crawl_outbox (crawl_id, event_type, payload) VALUES (?1, 'RUN_STARTED', '{}')", runID)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // nothing is kept
	const poll = "SELECT * FROM run_outbox WHERE published_at IS NULL ORDER BY id ASC LIMIT 100"
	const mark = "UPDATE run_outbox SET published_at = NOW() WHERE id = $1"
	if _, err := tx.ExecContext(t.Context(), "DELETE FROM crawl_outbox"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"PAGE_FOUND", "PAGE_LEFT"} {
		if _, err := tx.ExecContext(t.Context(),
			"INSERT INTO run_outbox (run_id, event_type, payload) VALUES ($1, $2, '{}')", runID, kind); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"PAGE_FOUND", "PAGE_LEFT"} {
		var (
			id                             int64
			run                            uuid.UUID
			kind, payload, created, marked string
		)
		if err := tx.QueryRowContext(t.Context(), poll).Scan(&id, &run, &kind, &payload, &created, new(any)); err != nil {
			t.Fatal(err)
		}
		if run != runID || kind != want || payload != "{}" {
			t.Errorf("got run %s, %s, %s; want run %s, %s, {}", run, kind, payload, runID, want)
		}
		if _, err := tx.ExecContext(t.Context(), mark, id); err != nil {
			t.Fatal(err)
		}
		if err := tx.QueryRowContext(t.Context(),
			"SELECT published_at FROM crawl_outbox WHERE id = $1 AND tenant_id <> ''", id).Scan(&marked); err != nil {
			t.Fatal(err)
		}
		if at, err := parseTime(marked); err != nil || stamp(at) != marked || marked < created[:20] {
			t.Errorf("written at %s, marked at %q (%v)", created, marked, err)
		}
	}
	if err := tx.QueryRowContext(t.Context(), poll).Scan(); !errors.Is(err, sql.ErrNoRows) {
		t.Errorf("the poll finds more than was written: %v", err)
	}
}

// The two INSERTs of plain SQL are one event, with one id and one number.
func TestTheLogsEventIsTheQueues(t *testing.T) {
	t.Parallel()
	db, runID := filled(t), uuid.New()
	exec(t, db, "INSERT INTO crawl_runs (id, app_package, tenant_id, status) VALUES (?1, 'p', 'acme', 'RUNNING')", runID)
	for range 2 {
		exec(t, db, "INSERT INTO crawl_events (crawl_id, event_type, payload) VALUES (?1, 'RUN_STARTED', '{}')", runID)
	}
	for range 3 {
		exec(t, db, "INSERT INTO run_outbox (run_id, event_type, payload) VALUES (?1, 'RUN_STARTED', '{}')", runID)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // nothing is changed
	var paired, alone int
	if err := tx.QueryRowContext(t.Context(), `SELECT count(e.seq), count(*) FILTER (WHERE o.seq IS NULL)
		FROM crawl_outbox o LEFT JOIN crawl_events e ON e.crawl_id = o.crawl_id AND e.seq = o.seq AND e.event_id = o.event_id
		WHERE o.crawl_id = $1`, runID).Scan(&paired, &alone); err != nil {
		t.Fatal(err)
	}
	if paired != 2 || alone != 1 {
		t.Errorf("%d rows have the id and the number of their event, %d no number; want 2 and 1", paired, alone)
	}
}
