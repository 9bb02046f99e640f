package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/tier"
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
		e.says(step.code, step.args, step.says)
		if left := waiting(); left != step.left {
			t.Fatalf("after outbox %s %d events wait, want %d", step.args, left, step.left)
		}
	}
	contains(t, e.ok("", "audit", "--action", "retry", "-o", "json"), `"allowed"`, "outbox_events", first)
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

func TestEventsSkip(t *testing.T) {
	tier.Full(t)
	onStores(t, testEventsSkip)
}

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
		{"events skip --yes --reason r", "say which events", 2, 1201},
		{"events skip --yes --reason r --all --topic t", "contradicts", 2, 1201},
		{"events skip --yes --reason r 7", "UUID", 2, 1201},
		{"events skip --dry-run " + first, "1 undelivered event of outbox_events will become", 0, 1201},
		{"events skip --dry-run --all -o json", `"events": 1201,`, 0, 1201},
		{"events skip --yes " + first, "--reason is required", 2, 1201},
		{"events skip --yes --reason cancelled " + first, "skipped 1 event of outbox_events", 0, 1200},
		{"events skip --yes --reason cancelled " + first, "1 of 1 event not undelivered", 1, 1200},
		{"events skip --dry-run " + first, "1 of 1 event not undelivered", 1, 1200},
		{"events skip --dry-run --topic none", "no undelivered events of outbox_events are chosen", 0, 1200},
		{"events skip --yes --reason r --tenant nobody", "no undelivered events of outbox_events are chosen", 0, 1200},
		{"events skip --yes --reason r --topic invoice.sent --key 7", "skipped 1 event", 0, 1199},
		{"events skip --yes --reason closed --all -o json", `"events": 1199`, 0, 0},
	} {
		e.says(step.code, step.args, step.says)
		if n := left(); n != step.left || n+letters() != 1201 {
			t.Fatalf("after outbox %s %d events are undelivered, want %d, and %d have letters", step.args, n, step.left,
				letters())
		}
	}
	// 1199 events are three transactions, and one line for whoever reads the record.
	audit := e.ok("", "audit", "--action", "skip")
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

func TestEventsOfASink(t *testing.T) { onStores(t, testEventsOfASink) }

func testEventsOfASink(t *testing.T, e env) {
	e.ok("1", "write", "--topic", "order.placed", "--source", "shop", "--key", "7", "--tenant", "acme")
	id := query[string](e, "SELECT CAST(id AS text) FROM outbox_events")
	owe := func(sink, status, retry, failure string) {
		t.Helper()
		exec1(e, fmt.Sprintf(`INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic,
			event_key, tenant_id, payload, written_at, status, attempts, next_retry_at, last_error)
			VALUES ('outbox_events', '%s', 1, '%s', '["orders"]', 'order.placed', '7', 'acme', '1',
			'2025-01-01T00:00:00.000000Z', '%s', 3, %s, %s)`, sink, id, status, retry, failure))
	}
	exec1(e, "UPDATE outbox_events SET status = 'SENT'")
	contains(t, e.ok("", "events", "show", id), "status          SENT")
	owe("audit", "pending", "'2999-01-01T00:00:00.000000Z'", "'connection refused'")
	owe("billing", "dead", "NULL", "'too large'")
	owe("search", "pending", "NULL", "NULL")
	for _, status := range []string{"SENT", "gone"} {
		contains(t, e.ok("", "events", "show", id), "status          "+status,
			"owed to         audit:orders, 3 failures, next try at 2999-01-01T00:00:00.000Z (in ", "): connection refused",
			"dead at         billing:orders after 3 failures: too large", "owed to         search:orders, 3 failures\n")
		shown := decode[struct {
			Status     string
			Deliveries []struct{ Sink, Destination, Status, LastError string }
		}](t, e.ok("", "events", "show", id, "-o", "json"))
		if shown.Status != status || len(shown.Deliveries) != 3 || shown.Deliveries[0].LastError != "connection refused" {
			t.Errorf("got %+v", shown)
		}
		exec1(e, "DELETE FROM outbox_events")
	}
	for _, step := range []step{
		{"events show " + strings.Replace(id, id[:8], "00000000", 1), "no such event, and no sink owes it", 1},
		{"events --table outbox_deliveries", "--table outbox_events --sink NAME", 2},
		{"events --table nothing --sink audit", "there is no layout for table nothing", 2},
		{"events --sink audit", id, 0},
		{"events --sink audit --status DEAD", "no such events in outbox_events to audit", 0},
		{"events --sink billing --status dead", "too large", 0},
		{"events --sink audit --status SENT", "pending, delivered, dead", 2},
		{"events --sink nobody", "there is no such sink: these settings and the database know audit, search. If", 2},
		{"events show --sink audit " + id, "status          pending", 0},
		{"events retry --sink audit " + id, "1 event of outbox_events to audit will be tried now", 0},
		{"events retry --sink audit " + id, "1 of 1 event do not wait", 1},
		{"events skip --dry-run --sink audit --all", "1 undelivered event of outbox_events to audit will become", 0},
		{"pause --table outbox_events --sink audit --reason moved", "paused", 0},
		{"events --sink audit", "paused", 0},
		{"events show " + id, "audit:orders, 3 failures, paused by an operator: see outbox pauses", 0},
		{"events skip --sink audit --all --yes --reason moved", "skipped 1 event of outbox_events to audit", 0},
		{"events show " + id, "dead at         audit:orders", 0},
		{"dlq list --error moved", "outbox_deliveries", 0},
	} {
		e.says(step.code, step.args, step.says)
	}
	contains(t, e.ok("", "audit", "-o", "json"), `"to": "audit"`)
	if record := e.ok("", "audit", "-o", "json"); strings.Contains(record, "outbox_deliveries/") {
		t.Errorf("the record has names that no flag takes:\n%s", record)
	}
	if n := query[int](e, "SELECT count(*) FROM outbox_deliveries WHERE sink = 'search' AND status = 'pending'"); n != 1 {
		t.Error("what another sink owes was skipped too")
	}
}
