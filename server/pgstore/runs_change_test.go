package pgstore

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/pgtest"
	"github.com/outboxrelay/outbox/server/crawl"
)

// A refused change leaves no transaction open that others would wait for, and a session that can be
// used.
func TestRefusedChangeLeavesNoTransaction(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r).ID
	refused := crawl.NewEvent{Type: strings.Repeat("B", 51), Payload: json.RawMessage("1")} // by the server
	if _, err := r.Change(t.Context(), acme, run,
		crawl.Change{To: crawl.Failed, Events: append(of("A"), refused)}); !errors.Is(err, crawl.ErrInvalid) {
		t.Errorf("got %v, want ErrInvalid", err)
	}
	if open := pgtest.Query[int](t, pool,
		"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in "+
			"transaction%'"); open != 0 {
		t.Errorf("%d transactions were left open", open)
	}
}

// A change waits for plain SQL that appends, and numbers what it writes after it.
func TestChangeSeesWhatItWaitedFor(t *testing.T) {
	t.Parallel()
	r, pool := opened(t)
	run := started(t, r).ID
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const insert = "INSERT INTO crawl_events (crawl_id, event_type, payload, event_id) VALUES ($1, 'A', '{\"n\": 1}', $2)"
	theirs := of("A")[0]
	if _, err := tx.Exec(t.Context(), insert, run, theirs.ID); err != nil {
		t.Fatal(err)
	}
	result := make(chan crawl.Changed)
	go func() {
		c, err := r.Change(t.Context(), acme, run, crawl.Change{Events: append(of("B"), theirs)})
		if err != nil {
			t.Error(err)
		}
		result <- c
	}()
	time.Sleep(100 * time.Millisecond)
	select {
	case <-result:
		t.Error("it did not wait")
	default:
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := <-result; c.First != 2 || c.Last != 3 || c.Appended != 1 || c.Run.LastSeq != 3 {
		t.Errorf("got %+v", c)
	}
}
