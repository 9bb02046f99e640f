package cli_test

import (
	"strings"
	"testing"
)

func TestEventsRetry(t *testing.T) { onStores(t, testEventsRetry) }

func testEventsRetry(t *testing.T, e env) {
	e.ok(strings.Join(numbered(12), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	e.ok(`{"n": 99}`, "write", "--topic", "invoice.sent", "--source", "shop", "--key", "7")
	exec1(e, "UPDATE outbox_events SET status = 'FAILED', retry_count = 1, next_retry_at = '2999-01-01T00:00:00.000000Z' WHERE CAST(payload->>'n' AS text) <> '3'")
	waiting := func() int {
		return query[int](e, "SELECT count(*) FROM outbox_events WHERE next_retry_at > '2998-01-01T00:00:00.000000Z'")
	}
	first := query[string](e, "SELECT CAST(id AS text) FROM outbox_events WHERE CAST(payload->>'n' AS text) = '1'")
	ready := query[string](e, "SELECT CAST(id AS text) FROM outbox_events WHERE CAST(payload->>'n' AS text) = '3'")
	for _, step := range []struct {
		args, says string
		code, left int
	}{
		{"events retry", "say which events", 2, 12},
		{"events retry --all --key 7", "contradicts", 2, 12},
		{"events retry 7", "UUID", 2, 12},
		{"events retry " + ready, "do not wait", 1, 12},
		{"events retry " + first, "1 event of outbox_events will be tried now", 0, 11},
		{"events retry --topic invoice.sent --key 8", "0 events", 0, 11},
		{"events retry --topic invoice.sent --key 7 --reason allowed", "1 event", 0, 10},
		{"events retry --tenant nobody", "0 events", 0, 10},
		{"events retry --all -o json", `"events": 10`, 0, 0},
	} {
		r := e.run("", strings.Fields(step.args)...)
		if r.code != step.code || !strings.Contains(r.out+r.err, step.says) {
			t.Errorf("outbox %s: exit code %d, want %d, and %q in\n%s%s", step.args, r.code, step.code, step.says, r.out, r.err)
		}
		if left := waiting(); left != step.left {
			t.Fatalf("after outbox %s %d events wait, want %d", step.args, left, step.left)
		}
	}
	contains(t, e.ok("", "dlq", "audit", "--action", "retry", "-o", "json"), `"allowed"`, "outbox_events", first)
}
