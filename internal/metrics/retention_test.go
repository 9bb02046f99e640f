package metrics

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/retention"
)

func TestRetention(t *testing.T) {
	m := New()
	r := m.Retention("orders", retention.Archive{})
	want(t, scrape(t, m), `outbox_retention_rows_total{action="archived",table="orders"} 0`,
		`outbox_retention_failures_total{table="orders"} 0`)
	r.ObserveRemoved(retention.Archived, 7)
	r.ObserveRun(errors.New("down"))
	if text := scrape(t, m); strings.Contains(text, "outbox_retention_last_run_timestamp_seconds{") {
		t.Error("a failed run counts as the last run")
	}
	r.ObserveRun(nil)
	text := scrape(t, m)
	want(t, text, `outbox_retention_rows_total{action="archived",table="orders"} 7`,
		`outbox_retention_failures_total{table="orders"} 1`)
	if !strings.Contains(text, `outbox_retention_last_run_timestamp_seconds{table="orders"}`) {
		t.Error("the last run is missing")
	}
}
