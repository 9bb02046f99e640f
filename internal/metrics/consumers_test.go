package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/store/operate"
)

func TestConsumers(t *testing.T) {
	m, oldest, now := New(), 90.0, time.Now()
	paused := now.Add(-time.Hour)
	known := operate.Sight{State: operate.Known}
	m.ObserveFacts(operate.Facts{At: now, Parts: map[string]operate.Sight{"job_dlq": known}, Queues: []operate.Queue{
		{Name: "outbox_log/billing", Table: "outbox_log", Group: "billing", Sight: known, Expired: 64, Waiting: 5,
			Oldest: &oldest},
		{Name: "outbox_deliveries/outbox_log/billing/billing", Table: "outbox_log", Group: "billing", Sink: "billing",
			Sight:   known,
			Waiting: 2},
		{Name: "outbox_log/mail", Table: "outbox_log", Group: "mail", Sight: known}},
		Subscriptions: []operate.Subscribed{{Name: "audit", Waiting: 7, AskedAt: now.Add(-time.Minute)},
			{Name: "idle", Waiting: 5, AskedAt: now, PausedAt: &paused}}}, nil)
	want(t, scrape(t, m), `outbox_group_processes{group="billing",table="outbox_log"} 0`,
		`outbox_group_backlog_events{group="billing",table="outbox_log"} 7`,
		`outbox_group_oldest_seconds{group="billing",table="outbox_log"} 90`,
		`outbox_subscription_backlog_events{subscription="audit"} 7`,
		`outbox_subscription_asked_seconds{subscription="audit"} 60`,
		`outbox_subscription_backlog_events{subscription="idle"} 0`)
	m.ObserveFacts(operate.Facts{}, errors.New("no answer"))
	if text := scrape(t, m); strings.Contains(text, "billing") || strings.Contains(text, "audit") {
		t.Errorf("what is not known is shown:\n%s", text)
	}
}
