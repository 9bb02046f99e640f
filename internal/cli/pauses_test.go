package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/testenv"
)

func TestPauses(t *testing.T) { onStores(t, testPauses) }

func testPauses(t *testing.T, e env) {
	e.ok("1", "write", "--topic", "invoice.sent", "--source", "shop", "--key", "7")
	e.ok("2", "write", "--topic", "order.placed", "--source", "shop", "--key", "8")
	for _, step := range []struct {
		args, says string
		code       int
	}{
		{"pauses", "nothing is paused", 0},
		{"pauses -o json", `"items": []`, 0},
		{"pause --topic invoice.*", "--reason is required", 2},
		{"pause --reason r", "--table, --topic or --destination", 2},
		{"pause --reason r --topic a --destination b", "--topic and --destination", 2},
		{"pause --reason r --table nothing", "nothing", 2},
		{"pause --reason INC-1 --topic invoice.*", "paused topic invoice.* of every table", 0},
		{"pause --reason INC-2 --table event_outbox", "paused table event_outbox", 0},
		{"pause --reason r --to audit", "of which table", 2},
		{"pause --reason INC-3 --table outbox_events --to audit", "paused table outbox_deliveries/outbox_events/audit", 0},
		{"sinks", "SINK", 0},
		{"resume --table outbox_events --to audit", "resumed table outbox_deliveries/outbox_events/audit", 0},
		{"pauses", "invoice.*", 0},
		{"lanes", "topic invoice.* of every table (INC-1)", 0},
		{"events", "paused", 0},
		{"resume --topic invoice", "outbox pauses", 1},
		{"resume --table outbox_events", "outbox pauses", 1},
	} {
		r := e.run("", strings.Fields(step.args)...)
		if r.code != step.code || !strings.Contains(r.out+r.err, step.says) {
			t.Errorf("outbox %s: exit code %d, want %d, and %q in\n%s%s", step.args, r.code, step.code, step.says, r.out, r.err)
		}
	}
	type row struct {
		ID, Topic string
		Paused    bool
	}
	for _, r := range decode[listOf[row]](t, e.ok("", "events", "-o", "json")).Items {
		shown := e.ok("", "events", "show", r.ID)
		if want := r.Topic == "invoice.sent"; r.Paused != want || strings.Contains(shown, "see outbox pauses") != want {
			t.Errorf("%+v, want paused %t:\n%s", r, want, shown)
		}
	}
	e.redis = testenv.RedisServer(t).URL()
	relay, url := e.relaying("--table", "outbox_events")
	relay.await(relay.err, `"topics or destinations paused by an operator"`)
	sent := func(want string) {
		t.Helper()
		var got string
		for start := time.Now(); time.Since(start) < patience; time.Sleep(50 * time.Millisecond) {
			if got = query[string](e,
				"SELECT coalesce(max(event_topic), '') || count(*) FROM outbox_events WHERE status = 'SENT'"); got == want {
				return
			}
		}
		t.Fatalf("delivered: %s, want %s", got, want)
	}
	sent("order.placed1")
	_, metrics := get(t, url+"/metrics")
	contains(t, metrics, `outbox_paused{table="outbox_events"} 1`)
	code, ready := get(t, url+"/readyz")
	contains(t, ready, `"pausedTopics":["invoice.*"]`)
	if code != http.StatusOK {
		t.Errorf("a relay with a pause is not ready: %s", ready)
	}
	e.ok("", "resume", "--topic", "invoice.*", "--reason", "done")
	sent("order.placed2")
	e.ok("", "pause", "--destination", "refund.*", "--reason", "INC-3")
	relay.await(relay.err, `"destinations":["refund.*"]`)
	e.ok("3", "write", "--topic", "refund.paid", "--source", "shop", "--key", "9")
	e.ok("4", "write", "--topic", "order.placed", "--source", "shop", "--key", "10")
	sent("order.placed3")
	contains(t, e.ok("", "events", "--topic", "refund.paid"), "paused")
	contains(t, e.ok("", "pauses"), "refund.*", "INC-3")
	_, ready = get(t, url+"/readyz")
	contains(t, ready, `"pausedDestinations":["refund.*"]`)
	e.ok("", "resume", "--destination", "refund.*")
	relay.await(relay.err, `"resumed by an operator"`)
	sent("refund.paid4")
	contains(t, e.ok("", "dlq", "audit"), "pause", "resume", "INC-1", "done", "invoice.*")
}
