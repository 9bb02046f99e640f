package sqlitemigrations_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/sqlitemigrations"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// What the relay would refuse, the INSERT is told.
func TestInsertIsToldWhatTheRelayRefuses(t *testing.T) {
	t.Parallel()
	db, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := sqlitemigrations.Up(t.Context(), db.Writes()); err != nil {
		t.Fatal(err)
	}
	const insertion = `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, tenant_id, destination_topics,
		metadata) VALUES (?, '2026-01-01T00:00:00.000000Z', 's', '{}', ?, ?, ?)`
	for says, rows := range map[string][][]any{
		"event_topic is empty": {{"", "a", nil, nil}},
		"tenant_id is empty":   {{"t", "", nil, nil}},
		"no array of texts": {{"t", "a", `"b"`, nil}, {"t", "a", `{"b":1}`, nil}, {"t", "a", `["b",1]`, nil},
			{"t", "a", `[""]`, nil}, {"t", "a", `[null]`, nil}, {"t", "a", `1`, nil}},
		"no JSON object": {{"t", "a", nil, `[1]`}, {"t", "a", nil, `"x"`}, {"t", "a", nil, `1`}},
		"CHECK":          {{"t", "a", `[`, nil}, {"t", "a", nil, `{`}},
		"":               {{"t", "a", nil, nil}, {"t", "a", `[]`, `{}`}, {"t", "a", `null`, `null`}, {"t", "a", `["a"]`, `{"a":[1]}`}},
	} {
		for _, values := range rows {
			_, err := db.Writes().ExecContext(t.Context(), insertion, values...)
			if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
				t.Errorf("%v: %v, want %q", values, err, says)
			}
		}
	}
	_, err = db.Writes().ExecContext(t.Context(), `INSERT INTO event_outbox (app_id, event_id, event_type, payload)
		SELECT id, '0190a2b4-0000-7000-8000-000000000001', '', '{}' FROM apps`)
	if err == nil || !strings.Contains(err.Error(), "event_type is empty") {
		t.Errorf("event_outbox: %v", err)
	}
}
