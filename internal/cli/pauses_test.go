package cli_test

import (
	"net/http"
	"slices"
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

func TestPausesOfASink(t *testing.T) { onStores(t, testPausesOfASink) }

func testPausesOfASink(t *testing.T, e env) {
	says := func(code int, args string, texts ...string) {
		t.Helper()
		r := e.run("", strings.Fields(args)...)
		if contains(t, r.out+r.err, texts...); r.code != code {
			t.Errorf("outbox %s: exit code %d, want %d:\n%s%s", args, r.code, code, r.out, r.err)
		}
	}
	const pause = "pause --reason INC-3 --table outbox_events --to "
	says(0, pause+"mail", "paused sink mail of table outbox_events: relays obey")
	says(0, pause+"audit --sink audit=redis://127.0.0.1:1", "paused sink audit of table outbox_events")
	says(0, pause+"audit --topic a.*", "paused topic a.* of sink audit of table outbox_events")

	// A pause is listed by the names that end it, and by outbox sinks though nothing is owed.
	type row struct {
		Table, To, Topic string
		Sink             string
		Paused           bool
	}
	listed := decode[listOf[row]](t, e.ok("", "pauses", "-o", "json")).Items
	want := []row{{Table: "outbox_events", To: "audit"}, {Table: "outbox_events", To: "audit", Topic: "a.*"},
		{Table: "outbox_events", To: "mail"}}
	if !slices.Equal(listed, want) {
		t.Errorf("got %+v, want %+v", listed, want)
	}
	if got := strings.Fields(e.ok("", "pauses")); !slices.Equal(got[:10], []string{"TABLE", "TO", "TOPIC", "DESTINATION",
		"SINCE", "ACTOR", "REASON", "outbox_events", "audit", "(all)"}) {
		t.Errorf("outbox pauses prints %q", got)
	}
	says(0, "dlq audit -o json", `"to": "mail"`)
	sinks := decode[listOf[row]](t, e.ok("", "sinks", "-o", "json", "--sink", "audit=redis://127.0.0.1:1")).Items
	want = []row{{Table: "outbox_events", Sink: "audit", Paused: true},
		{Table: "outbox_events", Sink: "mail", Paused: true}}
	if !slices.Equal(sinks, want) {
		t.Errorf("got %+v, want %+v", sinks, want)
	}

	for _, p := range decode[listOf[row]](t, e.ok("", "pauses", "-o", "json")).Items {
		args := []string{"resume", "--table", p.Table, "--to", p.To}
		if p.Topic != "" {
			args = append(args, "--topic", p.Topic)
		}
		contains(t, e.ok("", args...), "sink "+p.To+" of table outbox_events")
	}
	says(0, "pauses", "nothing is paused")
	says(1, "resume --table outbox_events --to audit", "resume sink audit of table outbox_events: it is not paused")
}
