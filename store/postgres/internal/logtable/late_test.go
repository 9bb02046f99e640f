package logtable_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/store/postgres/internal/logtable"
)

const insertRow = "INSERT INTO outbox_log (event_topic, occurred_at, source_bc, payload) VALUES ('t', now(), 's', '{}')"

// Three transactions draw positions in the order in-progress, unknown, committed, and transaction
// numbers in the order in-progress, committed, unknown. The snapshot of the claim that reads the
// committed row therefore lists the first as in progress, and its xmax is the number of the last.
// This test is not parallel: transactions of other tests would raise xmax.
func TestClaimReturnsRowsCommittedBehindItsPosition(t *testing.T) {
	pool := newLog(t)
	s, owner, lanes := openLog(t, pool)
	begin := func(statements ...string) pgx.Tx {
		t.Helper()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		run(t, tx, statements...)
		return tx
	}
	if rows := deliver(t, s, owner, lanes); len(rows) > 0 { // the first claim writes, and later ones do not
		t.Fatalf("%d rows in an empty log", len(rows))
	}
	inProgress, committed := begin(insertRow), begin("SELECT pg_current_xact_id()")
	unknown := begin(insertRow)
	run(t, committed, insertRow)
	for _, step := range []struct {
		name     string
		commit   pgx.Tx
		position int64
	}{{"the committed row", committed, 3}, {"the unknown row", unknown, 2}, {"the row in progress", inProgress, 1}} {
		if err := step.commit.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		var got []int64
		for _, r := range deliver(t, s, owner, lanes) {
			got = append(got, r.Position)
		}
		if !slices.Equal(got, []int64{step.position}) {
			t.Errorf("%s: claimed positions %v, want %d", step.name, got, step.position)
		}
	}
	if again := deliver(t, s, owner, lanes); len(again) > 0 {
		t.Errorf("claimed %d settled rows again", len(again))
	}
}

func run(t *testing.T, tx pgx.Tx, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

// A part of the log may be emptied only if every subscription has fetched all its rows and had them
// acknowledged. xid is the transaction number of the part's last row, at position 2.
func TestSubscribedReportsUnreadRowsOfAPart(t *testing.T) {
	t.Parallel()
	pool := newLog(t)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	run(t, tx, insertRow, insertRow, "SELECT outbox_subscribe('s', '-infinity')")
	const fetched = "INSERT INTO outbox_subscription_events (subscription, subscription_id, position, part, id, origin) " +
		"VALUES ('s', (SELECT id FROM outbox_subscriptions), 1, "
	set := func(position, snapshot string) string {
		return "UPDATE outbox_subscriptions SET position = " + position + ", snapshot = format(" + snapshot +
			", xid, xid::text::bigint + 1)::pg_snapshot FROM (SELECT max(xid::text::bigint) AS xid FROM outbox_log) l"
	}
	for _, tt := range []struct {
		name, state string
		want        bool
	}{
		{"everything fetched", set("2", "'%2$s:%2$s:'"), true},
		{"fetched up to the row before the last", set("1", "'%2$s:%2$s:'"), false},
		{"nothing fetched", set("0", "'%2$s:%2$s:'"), false},
		{"the rows' transaction was in progress", set("2", "'%1$s:%2$s:%1$s'"), false},
		{"the rows' transaction was unknown", set("2", "'%1$s:%1$s:'"), false},
		{"a pass over late rows has not ended",
			set("2", "'%2$s:%2$s:'") + "; UPDATE outbox_subscriptions SET late_position = 1, late_snapshot = snapshot", false},
		{"a row of the part is not acknowledged",
			set("2", "'%2$s:%2$s:'") + "; " + fetched + "0, gen_random_uuid(), NULL)", false},
		{"a subscription without a consumer", set("0", "'%2$s:%2$s:'") + "; " + fetched + "0, gen_random_uuid(), NULL); " +
			"UPDATE outbox_subscriptions SET seen_at = now() - keep - interval '1 second'", true},
		{"a row of another part is not acknowledged",
			set("2", "'%2$s:%2$s:'") + "; " + fetched + "1, gen_random_uuid(), NULL)", true},
		{"a replayed dead letter is not acknowledged",
			set("2", "'%2$s:%2$s:'") + "; " + fetched + "0, gen_random_uuid(), '{}')", true},
	} {
		run(t, tx, "SAVEPOINT s", tt.state)
		subscriptions, acknowledged, err := logtable.Subscribed(t.Context(), tx, outbox.OutboxLog(), 0)
		if err != nil || subscriptions != 1 || acknowledged != tt.want {
			t.Errorf("%s: acknowledged %t of %d subscriptions, error %v; want %t", tt.name, acknowledged, subscriptions,
				err, tt.want)
		}
		run(t, tx, "ROLLBACK TO s")
	}
}
