package metrics

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/store/retention"
)

func TestRetention(t *testing.T) {
	m := New()
	m.Retaining("orders", retention.Archive{})
	want(t, scrape(t, m), `outbox_retention_rows_total{action="archived",table="orders"} 0`,
		`outbox_retention_failures_total{table="orders"} 0`)
	m.ObserveRemoved("orders", retention.Archived, 7)
	m.ObserveRun("orders", errors.New("down"))
	if text := scrape(t, m); strings.Contains(text, "outbox_retention_last_run_timestamp_seconds{") {
		t.Error("a failed run counts as the last run")
	}
	m.ObserveRun("orders", nil)
	text := scrape(t, m)
	want(t, text, `outbox_retention_rows_total{action="archived",table="orders"} 7`,
		`outbox_retention_failures_total{table="orders"} 1`)
	if !strings.Contains(text, `outbox_retention_last_run_timestamp_seconds{table="orders"}`) {
		t.Error("the last run is missing")
	}
}
