package sqlitecold_test

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// What an operator asks about a backlog must not read what was delivered. Plans are those of a file
// that nobody has analysed.
func TestWaitingPlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	backlogs := map[string]string{"outbox_events": "outbox_events_undelivered", "event_outbox": "idx_event_outbox_pending",
		"crawl_outbox": "idx_crawl_outbox_unpublished"}
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox()} {
		found := plans(t, db, layout, func(b *operate.Browser) error {
			_, err := b.Lanes(t.Context(), 10)
			return err
		})
		plan := found[len(found)-1]
		for _, index := range []string{layout.Table + "_waiting", backlogs[layout.Table]} {
			if !strings.Contains(plan, index) {
				t.Errorf("%s: not served by %s:\n%s", layout.Table, index, plan)
			}
		}
		if strings.Contains(plan, "SCAN e\n") || strings.HasSuffix(plan, "SCAN e") {
			t.Errorf("%s: reads the whole table:\n%s", layout.Table, plan)
		}
	}
}
