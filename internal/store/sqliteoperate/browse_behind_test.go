package sqliteoperate

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
)

// What an operator asks about a backlog must not read what was delivered. Plans are those of a file that nobody has
// analysed.
func TestWaitingPlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	backlogs := map[string]string{"outbox_events": "outbox_events_undelivered", "event_outbox": "idx_event_outbox_pending",
		"crawl_outbox": "idx_crawl_outbox_unpublished"}
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.EventOutbox(), outbox.CrawlOutbox()} {
		b, err := OpenBrowser(t.Context(), db, layout)
		if err != nil {
			t.Fatal(err)
		}
		set, err := parseSQL()
		if err != nil {
			t.Fatal(err)
		}
		backlog, err := set.Statement("lanes_backlog", b.quoted)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			sql     string
			indexes []string
		}{
			{b.sql.behind, []string{layout.Table + "_waiting", "INTEGER PRIMARY KEY"}},
			{backlog, []string{layout.Table + "_waiting", backlogs[layout.Table]}},
		} {
			plan := planOf(t, db, c.sql)
			for _, index := range c.indexes {
				if !strings.Contains(plan, index) {
					t.Errorf("%s: not served by %s:\n%s", layout.Table, index, plan)
				}
			}
			if strings.Contains(plan, "SCAN e\n") || strings.HasSuffix(plan, "SCAN e") {
				t.Errorf("%s: reads the whole table:\n%s", layout.Table, plan)
			}
		}
	}
}
