package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// What a sink owes while it is down is the same in the metrics, in outbox sinks and in outbox events, and nothing of it
// is the table's backlog.
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
		if time.Since(start) > patience {
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
	owed := decode[listOf[event]](t, e.ok("", "events", "--to", "audit", "--status", "pending", "-o", "json")).Items
	if len(owed) != events {
		t.Fatalf("outbox events --to audit lists %+v", owed)
	}
	contains(t, e.ok("", "events", "show", owed[0].ID), "status          SENT", "owed to         audit:order.")

	relay.signal(syscall.SIGTERM)
	relay.wait()
	exec1(e, `UPDATE outbox_deliveries SET next_retry_at = '9999-12-31T00:00:00.000000Z'`)
	contains(t, e.ok("", "events", "--to", "audit"), "never")
	contains(t, e.ok("", "events", "show", owed[0].ID), "next try at 9999-12-31T00:00:00.000Z (never)")
	exec1(e, `UPDATE outbox_deliveries SET status = 'dead' WHERE sink = 'audit'`)
	contains(t, e.ok("", "dlq", "collect", "--table", "outbox_deliveries"), "wrote 5 letters")
	contains(t, e.ok("", "dlq", "collect"), "wrote 0 letters")
	contains(t, e.run("", "dlq", "replay", "--all", "--yes").err,
		"5 events of outbox_deliveries due now: see outbox sinks")
}
