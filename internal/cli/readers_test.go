package cli_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// The reader of a table is changed while a relay of the former one runs, is paused, and wakes.
func TestLanesReader(t *testing.T) { onStores(t, testLanesReader) }

func testLanesReader(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	e.says(2, "lanes reader --to broker --reason x", `--to is "broker", want sinks or group:NAME`)
	e.says(2, "lanes reader --to sinks", "--reason is required")
	one, _ := e.relaying("--table", "outbox_events", "--lease-ttl", "2s")
	awaitLanes(e, "held", func(r laneReport) bool { return len(r.in("held")) == 1 })
	const move = "lanes reader --to group:billing --reason handlers -o json"
	e.says(1, move, "still serve it for sinks", "stop all of them")
	e.stop(one)
	e.eventually("the reader is changed once the lease has ended", func() bool {
		r := e.run("", strings.Fields(move)...)
		return r.code == 0 && strings.Contains(r.out, `"from": "sinks"`)
	})
	e.says(0, move, `"from": "group:billing"`, `"reader": "group:billing"`)
	one.signal(syscall.SIGCONT)
	refusal := `lease table "outbox_events" for sinks: the reader of the table is group:billing`
	if code := one.wait(); code != 1 || !strings.Contains(one.err.String(), refusal) {
		t.Errorf("the relay that woke ended with %d: %s", code, one.err)
	}
	e.says(1, "relay --table outbox_events", refusal, "outbox lanes reader --table outbox_events --to sinks")
	e.says(0, "lanes", "outbox_events is read by group:billing")
	e.says(3, "doctor --only OBX-030 --table outbox_events", "no process of group billing serves outbox_events")
	e.ok("1", "write", "--topic", "order.placed", "--source", "shop", "--key", "7")
	event := decode[listOf[struct{ ID string }]](t, e.ok("", "events", "-o", "json")).Items[0].ID
	e.says(0, "why "+event, "no process of group billing is alive that serves outbox_events: start a process of the group")
	if r := e.run("", "groups", "show", "billing"); !strings.Contains(r.out, "start a process of group billing") {
		t.Errorf("groups show says\n%s%s", r.out, r.err)
	}
	e.says(0, "audit", "reader", "handlers")
	e.says(0, "lanes reader --to sinks --reason back", "reader of outbox_events is sinks now (before: group:billing)")
	e.relaying("--table", "outbox_events")
	awaitLanes(e, "held again", func(r laneReport) bool { return len(r.in("held")) == 1 })
}
