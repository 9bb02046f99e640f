package pgmigrations_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A job_dlq of before 05-01 has no source, and a check of the reasons of jobs. It is extended under
// its application, and given back as it was.
func TestLettersOfBeforeTheSeedAreExtended(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := testenv.Database(t)
	conn := connect(t, url)
	for _, sql := range []string{
		"CREATE TABLE apps (id UUID PRIMARY KEY, name TEXT NOT NULL, namespace TEXT NOT NULL, settings JSONB, " +
			"updated_at TIMESTAMPTZ NOT NULL DEFAULT now())",
		"CREATE UNIQUE INDEX ON apps (lower(namespace))",
		`CREATE TABLE job_dlq (id UUID PRIMARY KEY, original_job_id UUID NOT NULL, app_id UUID NOT NULL REFERENCES apps (id),
			user_id UUID, request_id UUID, type TEXT NOT NULL, payload JSONB NOT NULL,
			error_reason TEXT NOT NULL CHECK (error_reason IN ('MaxRetries', 'Validation', 'HandlerMissing', 'RunnerUnavailable', 'Timeout', 'Panic')),
			attempts INTEGER NOT NULL, error_history JSONB NOT NULL, replayed_at TIMESTAMPTZ)`,
		"INSERT INTO apps VALUES (gen_random_uuid(), 'Shop', 'shop')",
	} {
		run(t, conn, sql)
	}
	const letter = `INSERT INTO job_dlq (id, original_job_id, app_id, type, payload, error_reason, attempts, error_history)
		SELECT gen_random_uuid(), gen_random_uuid(), id, 'mail', '{}', 'Timeout', 3, '[]' FROM apps LIMIT 1`
	run(t, conn, letter)
	before := catalog(t, conn)

	plan, err := pgmigrations.Plan(t.Context(), url)
	if err != nil || len(plan.Problems) > 0 ||
		!slices.ContainsFunc(plan.Notes, func(n string) bool { return strings.Contains(n, "is replaced by job_dlq_error") }) {
		t.Fatalf("plan: %q, %q, %v", plan.Problems, plan.Notes, err)
	}
	writer := connect(t, url)
	stop, wrote, failed := make(chan struct{}), make(chan int), error(nil)
	go func() {
		n := 0
		defer func() { wrote <- n }()
		for failed == nil {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if _, failed = writer.Exec(t.Context(), letter); failed == nil {
				n++
			}
		}
	}()
	up(t, url)
	run(t, conn, `INSERT INTO job_dlq (source, original_job_id, app_id, type, payload, error_reason, attempts, error_history)
		SELECT 'event', gen_random_uuid(), id, 't', '{}', 'DeliveryFailed', 1, '[]' FROM apps LIMIT 1`)
	refused(t, conn, "23514", strings.Replace(letter, "'Timeout'", "'DeliveryFailed'", 1))
	if n := one[int](t, conn, `SELECT count(*) FROM pg_constraint
		WHERE conrelid = 'job_dlq'::regclass AND NOT convalidated`); n > 0 {
		t.Errorf("%d constraints are not validated", n)
	}
	run(t, conn, "DELETE FROM job_dlq WHERE source = 'event'")
	for _, set := range []string{"crawl", "events", "core"} {
		if err := pgmigrations.Down(t.Context(), url, math.MaxInt, set); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if n := <-wrote; n == 0 || failed != nil {
		t.Errorf("the application wrote %d letters meanwhile: %v", n, failed)
	}
	if after := catalog(t, conn); !reflect.DeepEqual(before, after) {
		t.Errorf("given back as\n%s\nwas\n%s", strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}
