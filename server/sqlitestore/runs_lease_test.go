package sqlitestore

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/store/sqlite"
)

func exec(t *testing.T, db *sqlite.DB, text string, args ...any) {
	t.Helper()
	if _, err := db.Writes().ExecContext(t.Context(), text, args...); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func TestRunsFromBeforeAClockWasSetBack(t *testing.T) {
	t.Parallel()
	db := runsFile(t)
	runs := runsOf(t, db)
	exec(t, db, `UPDATE crawl_runs SET status = 'COMPLETED'`)
	run, _, err := runs.CreateRun(t.Context(), "default",
		crawl.NewRun{AppPackage: "com.example", MaxSteps: 3, Crawler: "demo"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	const ttl = 200 * time.Millisecond
	claim := func() (crawl.Claim, error) {
		return runs.ClaimRun(t.Context(), uuid.New(), []string{"demo"}, ttl, nil)
	}
	first, err := claim()
	if err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE crawl_runs SET lease_expires_at = ?1 WHERE id = ?2",
		sqlitetime.Stamp(time.Now().Add(6*time.Hour)), run.ID)
	if _, err := claim(); !errors.Is(err, crawl.ErrNoRun) {
		t.Errorf("its worker had no time to show that it lives: error %v", err)
	}
	if _, held, err := runs.RenewRun(t.Context(), run.ID, first.Hold, ttl); err != nil || !held {
		t.Errorf("its worker holds it: %t, error %v", held, err)
	}
	exec(t, db, "UPDATE crawl_runs SET lease_expires_at = ?1 WHERE id = ?2",
		sqlitetime.Stamp(time.Now().Add(6*time.Hour)), run.ID)
	for began := time.Now(); ; time.Sleep(ttl / 4) {
		second, err := claim()
		if err == nil {
			if second.Hold.Epoch != first.Hold.Epoch+1 || !second.Resumed {
				t.Errorf("claimed again: %+v", second.Hold)
			}
			break
		}
		if time.Since(began) > tier.Patience() {
			t.Fatalf("error %v", err)
		}
	}
}
