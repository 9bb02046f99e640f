package postgres_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/outboxrelay/outbox"
)

// While the database refuses to keep what a sink owes, its lane waits, the others go on, and
// nothing is published again.
func TestLogKeepsWhatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	bad := keyed("bad", 1)
	tries := 0
	l.failing(func(d outbox.Delivery) error {
		if d.ID != bad.ID {
			return nil
		}
		if tries++; tries > 1 {
			return nil
		}
		return errors.New("refused")
	})
	stop := l.relay()
	first := keyed("first", 1)
	l.write(first)
	eventually(t, "the relay is there", func() bool { return len(l.arrived()) == 1 })
	locked, err := l.pool.Begin(t.Context())
	ok(t, err)
	defer func() { _ = locked.Rollback(context.Background()) }()
	_, err = locked.Exec(t.Context(), "LOCK TABLE outbox_deliveries IN SHARE ROW EXCLUSIVE MODE")
	ok(t, err)
	behind := keyed("bad", 2)
	var others []outbox.Event
	for i := range 300 {
		others = append(others, keyed("other", i))
	}
	l.write(slices.Concat([]outbox.Event{bad}, others, []outbox.Event{behind})...)
	eventually(t, "the others arrive", func() bool { return len(l.arrived()) >= 301 })
	more := keyed("other", 300)
	l.write(more)
	eventually(t, "and go on", func() bool { return slices.Contains(l.arrived(), more.ID.String()) })
	if got := l.arrived(); slices.Contains(got, behind.ID.String()) {
		t.Error("an event passed an earlier one of its key")
	}
	ok(t, locked.Rollback(t.Context()))
	eventually(t, "what waited arrives", func() bool { return len(l.arrived()) >= 304 })
	stop()
	l.relay() // from what is noted
	last := keyed("last", 1)
	l.write(last)
	eventually(t, "the last one arrives", func() bool { return slices.Contains(l.arrived(), last.ID.String()) })
	want := slices.Concat(ids([]outbox.Event{first}), ids(others), ids([]outbox.Event{more, bad, behind, last}))
	if got := l.arrived(); !slices.Equal(got, want) {
		t.Errorf("%d deliveries of %d events, or out of order", len(got), len(want))
	}
	l.unchanged(0)
}
