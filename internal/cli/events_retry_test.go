package cli_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestEventsRetry(t *testing.T) { onStores(t, testEventsRetry) }

func testEventsRetry(t *testing.T, e env) {
	e.ok(strings.Join(numbered(12), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	e.ok(`{"n": 99}`, "write", "--topic", "invoice.sent", "--source", "shop", "--key", "7")
	exec1(e,
		"UPDATE outbox_events SET status = 'FAILED', retry_count = 1, next_retry_at = '2999-01-01T00:00:00.000000Z' WHERE "+
			"CAST(payload->>'n' AS text) <> '3'")
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
		{"events retry --topic invoice.sent --key 8", "looked for topic invoice.sent and key 8", 0, 11},
		{"events retry --topic invoice.sent --key 7 --reason allowed", "1 event", 0, 10},
		{"events retry --tenant nobody", "looked for tenant nobody", 0, 10},
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

func TestEventsSayWhatTheyWaitBehind(t *testing.T) { onStores(t, testEventsBehind) }

func testEventsBehind(t *testing.T, e env) {
	for n, key := range []string{"7", "7", "7", "8"} {
		e.ok(fmt.Sprint(n), "write", "--topic", "t", "--source", "shop", "--key", key)
	}
	const first = "(SELECT min(position) FROM outbox_events)"
	exec1(e,
		"UPDATE outbox_events SET status = 'FAILED', retry_count = 1, next_retry_at = '2999-01-01T00:00:00.000000Z' WHERE "+
			"position = "+first)
	head := query[string](e, "SELECT CAST(id AS text) FROM outbox_events WHERE position = "+first)
	type row struct{ ID, WaitsBehind, NextRetryAt string }
	listed := decode[listOf[row]](t, e.ok("", "events", "-o", "json")).Items
	if len(listed) != 4 {
		t.Fatalf("got %v", listed)
	}
	behind := 0
	for _, r := range listed {
		shown := e.ok("", "events", "show", r.ID)
		switch {
		case r.WaitsBehind == head && strings.HasPrefix(r.NextRetryAt, "2999-01-01T00:00:00"):
			behind++
			contains(t, shown, "waits behind    "+head+", next try at 2999-01-01T00:00:00.000Z (in ")
		case r.ID == head:
			contains(t, shown, "next try        2999-01-01T00:00:00.000Z (in ")
			fallthrough
		default:
			if r.WaitsBehind != "" || strings.Contains(shown, "waits behind") {
				t.Errorf("%+v waits behind something:\n%s", r, shown)
			}
		}
	}
	if behind != 2 {
		t.Errorf("%d events wait behind %s, want 2: %v", behind, head, listed)
	}
	contains(t, e.ok("", "events"), "NEXT TRY", "WAITS BEHIND", "in ")
	contains(t, e.ok("", "lanes"), "RETRYING  HELD", "2 of 1 key")
	contains(t, e.ok("", "lanes", "-o", "json"), `"retrying": 1`, `"heldKeys": 1`, `"held": 2`)
}
