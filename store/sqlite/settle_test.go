package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Whoever waited in vain for another process is told so.
func TestBusyIsExplained(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "outbox.db")
	own, other := reopened(t, path), reopened(t, path)
	if err := upAll(t, own); err != nil {
		t.Fatal(err)
	}
	s, owner, lanes := serving(t, own, outbox.OutboxEvents())
	manyEvents(t, own, 1, "a")
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	outcomes := []outbox.Outcome{{Record: records[0]}}
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own.patience = 50 * time.Millisecond
	if _, err := s.Settle(t.Context(), owner, lanes, outcomes); !errors.Is(err, ErrBusy) ||
		!strings.Contains(err.Error(), "settle in outbox_events") {
		t.Errorf("got error %v", err)
	}
	// A look at the lease needs no lock as long as nothing is due.
	if leased, err := s.Lease(t.Context(),
		outbox.LeaseRequest{Owner: owner, Name: "test", TTL: time.Minute}); err != nil || len(leased.Lanes) != 64 {
		t.Errorf("leased %d lanes, error %v", len(leased.Lanes), err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if settled, err := s.Settle(t.Context(), owner, lanes, outcomes); err != nil || settled.Delivered != 1 {
		t.Errorf("afterwards: settled %+v, error %v", settled, err)
	}
}

// A file that can grow no more takes no row of a settle. That is said with what ends it, and once
// it may grow again all of it is settled.
func TestSettleOnAFullDisk(t *testing.T) {
	t.Parallel()
	own := reopened(t, filepath.Join(t.TempDir(), "outbox.db"))
	if err := upAll(t, own); err != nil {
		t.Fatal(err)
	}
	s, owner, lanes := serving(t, own, outbox.OutboxEvents())
	manyEvents(t, own, 2, "a")
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 2 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	limit := func(pages string) {
		t.Helper()
		if _, err := s.db.write.ExecContext(t.Context(), "PRAGMA max_page_count = "+pages); err != nil {
			t.Fatal(err)
		}
	}
	limit("1") // as many as there are
	failed := []outbox.Failure{{Destination: "x", Error: strings.Repeat("no route ", 10_000)}}
	outcomes := []outbox.Outcome{{Record: records[0], State: outbox.Retry, RetryIn: time.Hour, Failures: failed},
		{Record: records[1], State: outbox.Dead, Failures: failed}}
	settled, err := s.Settle(t.Context(), owner, lanes, outcomes)
	var refusal *outbox.RefusedError
	if !errors.As(err, &refusal) || !refusal.Whole || len(refusal.Outcomes) > 0 || settled != (outbox.Settled{}) ||
		!strings.Contains(err.Error(), "free space") {
		t.Errorf("settled %+v, error %v, want a refusal of the whole", settled, err)
	}
	limit("1073741823")
	if settled, err := s.Settle(t.Context(), owner, lanes, outcomes); err != nil || settled.Retried+settled.Dead != 2 {
		t.Errorf("afterwards: settled %+v, error %v", settled, err)
	}
}

// A pool with one reader is enough: no claim waits for a second connection while it holds one.
func TestOneReaderIsEnough(t *testing.T) {
	t.Parallel()
	db, err := Create(t.Context(), filepath.Join(t.TempDir(), "outbox.db"), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := upAll(t, db); err != nil {
		t.Fatal(err)
	}
	manyEvents(t, db, 5, "a", "b")
	s, owner, lanes := serving(t, db, outbox.OutboxEvents())
	ctx, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	fair := everything
	fair.Fair = true
	records, err := s.Claim(ctx, lanes, fair)
	if err != nil || len(records) != 10 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	if settled, err := s.Settle(ctx, owner, lanes, []outbox.Outcome{{Record: records[0]}}); err != nil ||
		settled.Delivered != 1 {
		t.Errorf("settled %+v, error %v", settled, err)
	}
	if b, err := s.Backlog(ctx, 100); err != nil || b.Count != 9 {
		t.Errorf("backlog %+v, error %v", b, err)
	}
}

// A settle whose context has ended changes nothing, and leaves the connection that writes to
// others.
func TestSettleEndsWithItsContext(t *testing.T) {
	t.Parallel()
	db := filled(t)
	manyEvents(t, db, 3, "a")
	s, owner, lanes := serving(t, db, outbox.OutboxEvents())
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 3 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	outcomes := []outbox.Outcome{{Record: records[0]}}
	tx, err := db.Begin(t.Context()) // somebody of this process is at work
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.Settle(ctx, owner, lanes, outcomes); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if settled, err := s.Settle(t.Context(), owner, lanes, outcomes); err != nil || settled.Delivered != 1 {
		t.Errorf("settled %+v, error %v", settled, err)
	}
}

// What is behind a refused row in its key is refused with it: a process that dies then has both go
// out again, in their order. Other keys are settled.
func TestRefusedRowsHoldTheirKeys(t *testing.T) {
	t.Parallel()
	db := filled(t)
	manyEvents(t, db, 40, "a") // of ten keys
	s, owner, lanes := serving(t, db, outbox.OutboxEvents())
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 40 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	outcomes := make([]outbox.Outcome, len(records))
	for i, r := range records {
		outcomes[i] = outbox.Outcome{Record: r}
	}
	behind := 0
	for _, r := range records {
		if r.OrderKey == records[2].OrderKey && r.Position >= records[2].Position {
			behind++
		}
	}
	exec(t, db, fmt.Sprintf("CREATE TRIGGER mine BEFORE UPDATE ON outbox_events WHEN OLD.position = %d "+
		"BEGIN SELECT raise(ABORT, 'not this one'); END", records[2].Position))
	settled, err := s.Settle(t.Context(), owner, lanes, outcomes)
	var refusal *outbox.RefusedError
	if !errors.As(err, &refusal) || behind < 2 || len(refusal.Outcomes) != behind || settled.Delivered != 40-behind {
		t.Fatalf("settled %+v, error %v, want %d refused", settled, err, behind)
	}
	exec(t, db, "DROP TRIGGER mine")
	if settled, err := s.Settle(t.Context(), owner, lanes, refusal.Outcomes); err != nil || settled.Delivered != behind {
		t.Errorf("afterwards: settled %+v, error %v", settled, err)
	}
}

// A trigger that ends the transaction ends the settle: what came after it would be settled without
// the lease's guard, and what came before it is undone.
func TestSettleEndsWithItsTransaction(t *testing.T) {
	t.Parallel()
	db := filled(t)
	manyEvents(t, db, 5, "a")
	s, owner, lanes := serving(t, db, outbox.OutboxEvents())
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != 5 {
		t.Fatalf("%d records, error %v", len(records), err)
	}
	outcomes := make([]outbox.Outcome, len(records))
	for i, r := range records {
		outcomes[i] = outbox.Outcome{Record: r}
	}
	dead := []outbox.Failure{{Error: "x"}}
	for _, last := range []outbox.Outcome{{Record: records[2]}, {Record: records[2], State: outbox.Dead, Failures: dead},
		{Record: records[2], State: outbox.Retry}} {
		outcomes[2] = last
		exec(t, db,
			"CREATE TRIGGER mine BEFORE UPDATE ON outbox_events WHEN OLD.position = 3 BEGIN SELECT raise(ROLLBACK, 'not this "+
				"one'); END")
		_, err := s.Settle(t.Context(), owner, lanes, outcomes)
		if err == nil || !strings.Contains(err.Error(), "not this one") || strings.Contains(err.Error(), "roll back:") {
			t.Errorf("got error %v", err)
		}
		if left := value(t, db, "SELECT count(*) FROM outbox_events WHERE status = 'NEW' AND retry_count = 0"); left != "5" {
			t.Errorf("%s of 5 rows are as they were", left)
		}
		exec(t, db, "DROP TRIGGER mine")
	}
	if settled, err := s.Settle(t.Context(), owner, lanes, outcomes); err != nil ||
		settled != (outbox.Settled{Delivered: 4, Retried: 1}) {
		t.Errorf("afterwards: settled %+v, error %v", settled, err)
	}
}
