package metrics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/server/subscription"
)

func TestConsumers(t *testing.T) {
	m, oldest, now := New(), 90.0, time.Now()
	dead := operate.Group{Table: "outbox_log", Name: "billing", State: "dead", Waiting: 7, Oldest: &oldest}
	m.ObserveGroups([]operate.Group{dead, {Table: "outbox_log", Name: "mail", State: "new"}}, nil)
	m.ObserveSubscriptions([]subscription.State{{Name: "audit", Behind: 5, Outstanding: 2, SeenAt: now.Add(-time.Minute)},
		{Name: "idle", Behind: 5, SeenAt: now, PausedAt: &now}}, now)
	want(t, scrape(t, m), `outbox_group_processes{group="billing",table="outbox_log"} 0`,
		`outbox_group_backlog_events{group="billing",table="outbox_log"} 7`,
		`outbox_group_oldest_seconds{group="billing",table="outbox_log"} 90`,
		`outbox_subscription_backlog_events{subscription="audit"} 7`,
		`outbox_subscription_asked_seconds{subscription="audit"} 60`,
		`outbox_subscription_backlog_events{subscription="idle"} 0`)
	m.ObserveGroups(nil, errors.New("no answer"))
	m.ObserveSubscriptions(nil, now)
	if text := scrape(t, m); strings.Contains(text, "billing") || strings.Contains(text, "audit") {
		t.Errorf("what is not known is shown:\n%s", text)
	}
}
