package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func TestPauses(t *testing.T) { onStores(t, testPauses) }

func testPauses(t *testing.T, e env) {
	e.ok("1", "write", "--topic", "invoice.sent", "--source", "shop", "--key", "7")
	e.ok("2", "write", "--topic", "order.placed", "--source", "shop", "--key", "8")
	for _, step := range []step{
		{"pauses", "nothing is paused", 0},
		{"pauses -o json", `"items": []`, 0},
		{"pause --topic invoice.*", "--reason is required", 2},
		{"pause --reason r", "--table, --topic or --destination", 2},
		{"pause --reason r --topic a --destination b", "--topic and --destination", 2},
		{"pause --reason r --table nothing", "nothing", 2},
		{"pause --reason INC-1 --topic invoice.*", "paused topic invoice.* of every table", 0},
		{"pause --reason INC-2 --table event_outbox", "paused table event_outbox", 0},
		{"pause --reason r --sink audit", "of which table", 2},
		{"pauses", "invoice.*", 0},
		{"lanes", "topic invoice.* of every table (INC-1)", 0},
		{"events", "paused", 0},
		{"resume --topic invoice", "outbox pauses", 1},
		{"resume --table outbox_events", "outbox pauses", 1},
	} {
		e.says(step.code, step.args, step.says)
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
		for start := time.Now(); time.Since(start) < tier.Patience(); time.Sleep(50 * time.Millisecond) {
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
	contains(t, e.ok("", "audit"), "pause", "resume", "INC-1", "done", "invoice.*")
}

func TestPausesOfASink(t *testing.T) {
	tier.Full(t)
	onStores(t, testPausesOfASink)
}

func testPausesOfASink(t *testing.T, e env) {
	const pause = "pause --reason INC-3 --table outbox_events --sink "
	const advice = "give --config with the relay's settings, or OUTBOX_SINK"
	e.says(2, pause+"audit", "--sink audit: there is no such sink: neither these settings nor the database name any",
		advice)
	e.says(2, "events --sink audit", "--sink audit: there is no such sink", advice)
	e.says(0, "pauses", "nothing is paused")

	// What a sink has taken from outbox_deliveries makes it known too.
	exec1(e, `INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, event_key,
		tenant_id, payload, written_at, status) VALUES ('outbox_events', 'mail', 1,
		'01890a5d-ac96-774b-bcce-b302099a8057', '["orders"]', 'order.placed', '7', 'acme', '1',
		'2025-01-01T00:00:00.000000Z', 'delivered')`)
	e.says(0, "events --sink mail --status pending", "no such events in outbox_events to mail")
	e.says(0, pause+"mail", "paused sink mail of table outbox_events; no process that it concerns is alive")
	e.says(2, pause+"adit", "--sink adit: there is no such sink", "know mail. If")
	for _, args := range []string{"events --sink adit", "events skip --dry-run --sink adit --all",
		"events retry --sink adit --all",
		"events show --sink adit 01890a5d-ac96-774b-bcce-b302099a8057"} {
		e.says(2, args, "--sink adit: there is no such sink", "know mail. If")
	}
	audited := e
	audited.redis = "audit=redis://127.0.0.1:1"
	audited.says(0, pause+"audit", "paused sink audit of table outbox_events")
	e.says(0, pause+"audit --topic a.*", "paused topic a.* of sink audit of table outbox_events") // known by its pause

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
	if got := strings.Fields(e.ok("", "pauses")); !slices.Equal(got[:10], []string{"TABLE", "SINK", "TOPIC", "DESTINATION",
		"SINCE", "ACTOR", "REASON", "outbox_events", "audit", "(all)"}) {
		t.Errorf("outbox pauses prints %q", got)
	}
	e.says(0, "audit -o json", `"to": "mail"`)
	sinks := decode[listOf[row]](t, e.ok("", "sinks", "-o", "json", "--sink", "audit=redis://127.0.0.1:1")).Items
	want = []row{{Table: "outbox_events", Sink: "audit", Paused: true},
		{Table: "outbox_events", Sink: "mail", Paused: true}}
	if !slices.Equal(sinks, want) {
		t.Errorf("got %+v, want %+v", sinks, want)
	}

	// Settings with routes say to which sinks a table's events go. What is paused can be ended
	// whatever they say.
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(file, []byte(`
sink: {default: "redis://127.0.0.1:1", search: "redis://127.0.0.1:2", other: "redis://127.0.0.1:3"}
routes: [{table: outbox_events, to: [default, search]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	here := " --config " + file
	e.says(0, pause+"search"+here, "paused sink search")
	e.says(0, pause+"mail"+here, "paused sink mail")
	e.says(2, pause+"other"+here, "no route of these settings leads from outbox_events there, but to default, search")
	e.says(2, "pause --reason r --table event_outbox --sink search"+here, "event_outbox has no routes in these settings")
	alone := e
	alone.redis = "redis://127.0.0.1:1"
	alone.says(2, pause+"default", "outbox_events has no routes in these settings")
	e.says(0, "events --sink other"+here, "no events in outbox_events to other")
	again := decode[row](t, e.ok("", append(strings.Fields(pause), "search", "-o", "json")...))
	if again != (row{Table: "outbox_events", To: "search", Paused: true}) {
		t.Errorf("outbox pause -o json prints %+v", again)
	}
	again.Paused = false
	ended := decode[row](t, e.ok("", "resume", "--table", "outbox_events", "--sink", "search", "-o", "json"))
	if ended != again {
		t.Errorf("outbox resume -o json prints %+v", ended)
	}
	for _, p := range decode[listOf[row]](t, e.ok("", "pauses", "-o", "json")).Items {
		args := []string{"resume", "--table", p.Table, "--sink", p.To}
		if p.Topic != "" {
			args = append(args, "--topic", p.Topic)
		}
		contains(t, e.ok("", args...), "sink "+p.To+" of table outbox_events")
	}
	e.says(0, "pauses", "nothing is paused")
	e.says(1, "resume --table outbox_events --sink audit", "resume sink audit of table outbox_events: it is not paused")
}
