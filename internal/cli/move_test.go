package cli_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The runbook "Move to another database" of docs/operations/upgrades.md, step by step: everything
// arrives once, in order, and with sequence numbers that go on.
func TestMoveToAnotherDatabase(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	old := migrated(t)
	old.redis = testenv.RedisServer(t).URL()
	next := env{t: t, database: testenv.Database(t), redis: old.redis}
	tail := old.start("tail", "order.placed", "-o", "json")
	tail.await(tail.err, "subscribed")
	write := func(e env, from, to int) {
		for n := from; n < to; n++ {
			e.ok(fmt.Sprintf(`{"n": %d}`, n), "write", "--topic", "order.placed", "--source", "shop", "--aggregate-type",
				"Order", "--key", "7")
		}
	}
	undelivered := func(e env) int {
		return query[int](e, "SELECT count(*) FROM outbox_events WHERE status IN ('NEW', 'FAILED')")
	}
	relay, _ := old.relaying("--table", "outbox_events")
	write(old, 0, 10)

	next.ok("", "migrate", "up") // 1
	old.eventually("the old database is drained", func() bool { return undelivered(old) <= 0 })
	old.ok("", "pause", "--table", "outbox_events", "--reason", "moved") // 4
	relay.await(relay.err, `"table paused by an operator"`)
	// 5.
	exec1(next, fmt.Sprintf("SELECT setval(pg_get_serial_sequence('outbox_events', 'position'), %d)",
		query[int](old, "SELECT max(position) FROM outbox_events")))
	next.relaying("--table", "outbox_events") // 6
	write(old, 90, 91)                        // a producer that was forgotten
	write(next, 10, 20)

	tail.await(tail.out, `"n":19`)
	time.Sleep(time.Second) // for what should not come
	var got []string
	for i, line := range tail.out.lines() {
		m := decode[struct {
			Message struct {
				Sequence string
				Data     struct{ N int }
			}
		}](t, line).Message
		got = append(got, fmt.Sprint(m.Data.N))
		if want := fmt.Sprintf("%019d", i+1); m.Sequence != want {
			t.Errorf("event %d has sequence %s, want %s", i, m.Sequence, want)
		}
	}
	if want := "0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19"; strings.Join(got, " ") != want {
		t.Errorf("received %v, want %s", got, want)
	}
	if n := undelivered(old); n != 1 {
		t.Errorf("%d events are in the old database, want the one of the producer that was forgotten", n)
	}
}
