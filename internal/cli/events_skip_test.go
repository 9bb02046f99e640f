package cli_test

import (
	"strings"
	"testing"
)

func TestEventsSkip(t *testing.T) { onStores(t, testEventsSkip) }

func testEventsSkip(t *testing.T, e env) {
	e.ok(strings.Join(numbered(1200), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	e.ok(`{"n": 9999}`, "write", "--topic", "invoice.sent", "--source", "shop", "--key", "7")
	left := func() int { return query[int](e, "SELECT count(*) FROM outbox_events WHERE status = 'NEW'") }
	letters := func() int { return query[int](e, "SELECT count(*) FROM job_dlq") }
	first := query[string](e, "SELECT CAST(id AS text) FROM outbox_events WHERE CAST(payload->>'n' AS text) = '1'")
	for _, step := range []struct {
		args, says string
		code, left int
	}{
		{"events skip", "say which events", 2, 1201},
		{"events skip --all --topic t", "contradicts", 2, 1201},
		{"events skip 7", "UUID", 2, 1201},
		{"events skip " + first, "1 undelivered event of outbox_events would become", 0, 1201},
		{"events skip --all -o json", `"events": 1201,`, 0, 1201},
		{"events skip --yes " + first, "--reason is required", 2, 1201},
		{"events skip --yes --reason cancelled " + first, "skipped 1 event of outbox_events", 0, 1200},
		{"events skip --yes --reason cancelled " + first, "1 of 1 event not undelivered", 1, 1200},
		{"events skip " + first, "1 of 1 event not undelivered", 1, 1200},
		{"events skip --topic none", "no undelivered events of outbox_events are chosen", 0, 1200},
		{"events skip --yes --reason r --tenant nobody", "no undelivered events of outbox_events are chosen", 0, 1200},
		{"events skip --yes --reason r --topic invoice.sent --key 7", "skipped 1 event", 0, 1199},
		{"events skip --yes --reason closed --all -o json", `"events": 1199`, 0, 0},
	} {
		r := e.run("", strings.Fields(step.args)...)
		if r.code != step.code || !strings.Contains(r.out+r.err, step.says) {
			t.Errorf("outbox %s: exit code %d, want %d, and %q in\n%s%s", step.args, r.code, step.code, step.says, r.out, r.err)
		}
		if n := left(); n != step.left || n+letters() != 1201 {
			t.Fatalf("after outbox %s %d events are undelivered, want %d, and %d have letters", step.args, n, step.left,
				letters())
		}
	}
	// 1199 events are three transactions, and one line for whoever reads the record.
	audit := e.ok("", "dlq", "audit", "--action", "skip")
	contains(t, audit, "1199", "closed", "cancelled")
	if n := strings.Count(audit, "skip"); n != 3 {
		t.Errorf("want a line for each of three actions:\n%s", audit)
	}
	contains(t, e.ok("", "dlq", "list", "--error", "cancelled"), "skipped by ", ": cancelled")
	contains(t, e.ok("", "dlq", "replay", "--error", "skipped by", "--yes"), "replayed 1201 letters")
	if n := left(); n != 1201 {
		t.Errorf("%d events are undelivered after the replay, want 1201", n)
	}
}
