package cli_test

import (
	"fmt"
	"strings"
	"testing"
)

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
	for _, step := range []struct {
		args, says string
		code       int
	}{
		{"events show " + strings.Replace(id, id[:8], "00000000", 1), "no such event, and no sink owes it", 1},
		{"events --table outbox_deliveries", "--table outbox_events --to NAME", 2},
		{"events --table nothing --to audit", "there is no layout for table nothing", 2},
		{"events --to audit", id, 0},
		{"events --to audit --status DEAD", "no such events in outbox_events to audit", 0},
		{"events --to billing --status dead", "too large", 0},
		{"events --to audit --status SENT", "pending, delivered, dead", 2},
		{"events --to nobody", "--to nobody: there is no such sink: these settings and the database know audit, search. If",
			2},
		{"events show --to audit " + id, "status          pending", 0},
		{"events retry --to audit " + id, "1 event of outbox_events to audit will be tried now", 0},
		{"events retry --to audit " + id, "1 of 1 event do not wait", 1},
		{"events skip --to audit --all", "1 undelivered event of outbox_events to audit would become", 0},
		{"pause --table outbox_events --to audit --reason moved", "paused", 0},
		{"events --to audit", "paused", 0},
		{"events show " + id, "audit:orders, 3 failures, paused by an operator: see outbox pauses", 0},
		{"events skip --to audit --all --yes --reason moved", "skipped 1 event of outbox_events to audit", 0},
		{"events show " + id, "dead at         audit:orders", 0},
		{"dlq list --error moved", "outbox_deliveries", 0},
	} {
		r := e.run("", strings.Fields(step.args)...)
		if r.code != step.code || !strings.Contains(r.out+r.err, step.says) {
			t.Errorf("outbox %s: exit code %d, want %d, and %q in\n%s%s", step.args, r.code, step.code, step.says, r.out, r.err)
		}
	}
	contains(t, e.ok("", "dlq", "audit", "-o", "json"), `"to": "audit"`)
	if record := e.ok("", "dlq", "audit", "-o", "json"); strings.Contains(record, "outbox_deliveries/") {
		t.Errorf("the record has names that no flag takes:\n%s", record)
	}
	if n := query[int](e, "SELECT count(*) FROM outbox_deliveries WHERE sink = 'search' AND status = 'pending'"); n != 1 {
		t.Error("what another sink owes was skipped too")
	}
}
