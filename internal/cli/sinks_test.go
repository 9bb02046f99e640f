package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// What a sink owes while it is down is the same in the metrics, in outbox sinks and in outbox
// events, and nothing of it is the table's backlog.
func TestSinksOwe(t *testing.T) { onStores(t, testSinksOwe) }

func testSinksOwe(t *testing.T, e env) {
	const events = 5
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(file, []byte(`
sink: {default: `+testenv.RedisServer(t).URL()+`, audit: "redis://127.0.0.1:1"}
routes: [{to: [default, audit]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	e.extra = []string{"OUTBOX_CONFIG=" + file}
	e.ok(strings.Join(numbered(events), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	relay, url := e.relaying("--table", "outbox_events")
	says := func(line string) bool {
		_, text := get(t, url+"/metrics")
		return strings.Contains(text, line+"\n")
	}
	for start := time.Now(); !says(`outbox_owed_deliveries{sink="audit",table="outbox_events"} 5`) ||
		!says(`outbox_owed_deliveries{sink="default",table="outbox_events"} 0`); { // it may have been slow for a moment
		if time.Since(start) > tier.Patience() {
			_, text := get(t, url+"/metrics")
			t.Fatalf("the metrics do not say that audit alone owes %d:\n%s", events, text)
		}
		time.Sleep(50 * time.Millisecond)
	}
	_, text := get(t, url+"/metrics")
	contains(t, text, `outbox_oldest_owed_seconds{sink="default",table="outbox_events"} 0`+"\n")
	if strings.Contains(text, `outbox_oldest_owed_seconds{sink="audit",table="outbox_events"} 0`+"\n") ||
		strings.Contains(text, `outbox_owed_total{table="outbox_events"} 0`+"\n") ||
		strings.Contains(text, `outbox_backlog_events{table="outbox_deliveries`) {
		t.Errorf("the owed events have no age, or are a backlog too:\n%s", text)
	}
	type row struct {
		Sink, Table string
		Owed        int
		Oldest      float64
	}
	rows := decode[listOf[row]](t, e.ok("", "sinks", "-o", "json")).Items
	if len(rows) != 2 || rows[0].Sink != "audit" || rows[0].Owed != events || rows[0].Oldest <= 0 || rows[1].Owed != 0 {
		t.Errorf("outbox sinks says %+v", rows)
	}
	type event struct{ ID, Status string }
	owed := decode[listOf[event]](t, e.ok("", "events", "--sink", "audit", "--status", "pending", "-o", "json")).Items
	if len(owed) != events {
		t.Fatalf("outbox events --sink audit lists %+v", owed)
	}
	contains(t, e.ok("", "events", "show", owed[0].ID), "status          SENT", "owed to         audit:order.")

	relay.signal(syscall.SIGTERM)
	relay.wait()
	exec1(e, `UPDATE outbox_deliveries SET next_retry_at = '9999-12-31T00:00:00.000000Z'`)
	contains(t, e.ok("", "events", "--sink", "audit"), "never")
	contains(t, e.ok("", "events", "show", owed[0].ID), "next try at 9999-12-31T00:00:00.000Z (never)")
	exec1(e, `UPDATE outbox_deliveries SET status = 'dead' WHERE sink = 'audit'`)
	contains(t, e.ok("", "dlq", "collect", "--table", "outbox_deliveries"), "wrote 5 letters")
	contains(t, e.ok("", "dlq", "collect"), "wrote 0 letters")
	contains(t, e.run("", "dlq", "replay", "--all", "--yes").err,
		"5 events of outbox_deliveries due now: see outbox sinks")
}

// What a sink owes is delivered by whoever serves a sink of that name, whatever the routes say by
// then. While nobody does, the log, /readyz, the metrics and outbox sinks say so.
func TestDebtsOutliveRoutes(t *testing.T) {
	tier.Full(t)
	onStores(t, testDebtsOutliveRoutes)
}

func testDebtsOutliveRoutes(t *testing.T, e env) {
	file, server := filepath.Join(t.TempDir(), "outbox.yaml"), testenv.RedisServer(t).URL()
	e.extra = []string{"OUTBOX_CONFIG=" + file}
	settings := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "REDIS", server)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop := func(relay *process) {
		relay.signal(syscall.SIGTERM)
		relay.wait()
	}
	eventually := e.eventually
	type row struct {
		Sink     string
		Owed     int
		Unserved bool
	}
	owed := func() (n int, unserved bool) {
		for _, r := range decode[listOf[row]](t, e.ok("", "sinks", "-o", "json")).Items {
			if r.Sink == "audit" {
				n, unserved = r.Owed, r.Unserved
			}
		}
		return n, unserved
	}

	settings(`
sink: {default: REDIS, audit: "redis://127.0.0.1:1"}
routes: [{to: [default, audit]}]
`)
	e.ok(strings.Join(numbered(5), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	relay, _ := e.relaying("--table", "outbox_events")
	eventually("audit owes five events", func() bool { n, unserved := owed(); return n == 5 && !unserved })
	stop(relay)

	settings("sink: {default: REDIS}\n")
	relay, url := e.relaying("--table", "outbox_events")
	eventually("the metrics name the debt", func() bool {
		_, text := get(t, url+"/metrics")
		return strings.Contains(text, `outbox_unserved_debts{sink="audit",table="outbox_events"} 1`+"\n")
	})
	eventually("/readyz names it, and the relay is ready", func() bool {
		code, text := get(t, url+"/readyz")
		return code == 200 && strings.Contains(text, `"unserved":["audit of outbox_events"]`)
	})
	relay.await(relay.err, "owed to sinks that no relay serves")
	eventually("outbox sinks names it, once the lease of the relay before has ended", func() bool {
		n, unserved := owed()
		return n == 5 && unserved
	})
	for _, command := range []string{"relay", "serve"} {
		contains(t, e.run("", "config", "validate", "--for", command).err,
			"sink audit is owed 5 events of outbox_events, and these settings have no such sink")
	}
	contains(t, e.run("", "sinks").err, "no relay serves what audit owes of outbox_events")
	contains(t, e.ok("", "sinks", "move", "audit", "--to", "default", "--dry-run"),
		"5 events of outbox_events that audit owes will go to default")
	for want, args := range map[string][]string{
		"no such sink":          {"move", "audit", "--to", "defaults", "--reason", "r"},
		"--reason is required":  {"forget", "audit"},
		"owes nothing":          {"forget", "adit", "--reason", "r"},
		"is the sink that owes": {"move", "audit", "--to", "audit", "--reason", "r"},
	} {
		r := e.run("", append([]string{"sinks"}, append(args, "--yes")...)...)
		if r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%v: %d %s, want %q", args, r.code, r.err, want)
		}
	}
	if n, _ := owed(); n != 5 {
		t.Errorf("audit owes %d, and nothing was to change", n)
	}
	stop(relay)

	settings(`
sink: {default: REDIS, audit: REDIS/1}
routes: [outbox_events=default]
`)
	relay, _ = e.relaying("--table", "outbox_events")
	if r := e.run("", "config", "validate", "--for", "relay"); r.code != 0 || strings.Contains(r.err, "owed") {
		t.Errorf("validate says of a sink that the settings have: %d %s", r.code, r.err)
	}
	eventually("audit owes nothing", func() bool { n, _ := owed(); return n == 0 })
	stop(relay)

	settings(`
sink: {default: REDIS, audit: "redis://127.0.0.1:1", archive: REDIS/2}
routes: [{to: [default, audit]}]
`)
	e.ok(strings.Join(numbered(4), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	relay, _ = e.relaying("--table", "outbox_events")
	eventually("audit owes four events", func() bool { n, _ := owed(); return n == 4 })
	if r := e.run("", "sinks", "move", "audit", "--to", "archive", "--dry-run"); r.code == 0 ||
		!strings.Contains(r.err, "a relay serves") {
		t.Errorf("move what is served: %d %s", r.code, r.err)
	}
	stop(relay)
	contains(t, e.ok("", "sinks", "move", "audit", "--to", "archive", "--yes", "--reason", "renamed"),
		"4 events of outbox_events that audit owes are archive's now")
	relay, _ = e.relaying("--table", "outbox_events")
	eventually("archive has taken them", func() bool {
		out := e.ok("", "sinks", "-o", "json")
		n, _ := owed()
		return n == 0 && !strings.Contains(out, `"sink":"archive","table"`)
	})
	e.ok(strings.Join(numbered(3), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	eventually("audit owes three events", func() bool { n, _ := owed(); return n == 3 })
	stop(relay)
	contains(t, e.ok("", "sinks", "forget", "audit", "--yes", "--reason", "gone"),
		"3 events of outbox_events that audit owes became dead letters")
	if n, _ := owed(); n != 0 {
		t.Errorf("audit owes %d after it was forgotten", n)
	}
	contains(t, e.ok("", "audit"), "renamed", "gone")
}
