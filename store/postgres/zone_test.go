package postgres_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/store/postgres"
)

// An adopted event_outbox or job_dlq may have times without a zone, in a database of another zone
// than UTC: they are read as the instants that now() meant.
func TestTimesWithoutZone(t *testing.T) {
	b := newBus(t)
	_, err := b.Exec(t.Context(), `DO $do$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Shanghai''', current_database()); END $do$;
		ALTER TABLE event_outbox ALTER published_at TYPE TIMESTAMP; ALTER TABLE job_dlq ALTER replayed_at TYPE TIMESTAMP`)
	ok(t, err)
	b.Pool = newPool(t, b.url) // whose sessions have the zone
	e := b.event("order.placed", "")
	b.offer(t, e)
	b.inTx(t, func(tx pgx.Tx) {
		_, err := b.MarkPublished(t.Context(), tx, e.ID)
		ok(t, err)
	})
	b.inTx(t, func(tx pgx.Tx) {
		got, err := b.ByEventID(t.Context(), tx, e.EventID)
		ok(t, err)
		if got.PublishedAt == nil || time.Since(*got.PublishedAt).Abs() > time.Minute {
			t.Errorf("published at %v, and it is %v", got.PublishedAt, time.Now().UTC())
		}
	})

	_, err = b.Exec(t.Context(), `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history, replayed_at)
		VALUES (gen_random_uuid(), $1, 'send_mail', '{}', 'Timeout', 1, '[]', now())`, b.app)
	ok(t, err)
	letters, err := postgres.OpenDeadLetters(t.Context(), b.Pool,
		postgres.DeadLettersConfig{Layouts: []outbox.Layout{outbox.EventOutbox()}})
	ok(t, err)
	all, _, err := letters.List(t.Context(), deadletter.Filter{State: deadletter.StateReplayed})
	ok(t, err)
	if len(all) != 1 || all[0].ReplayedAt == nil || time.Since(*all[0].ReplayedAt).Abs() > time.Minute {
		t.Errorf("letters: %+v, and it is %v", all, time.Now().UTC())
	}
}
