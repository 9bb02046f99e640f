package sqlitecold_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/test/operatetest"
	"github.com/outboxrelay/outbox/store/sqlite"
)

func browser(t *testing.T, db *sqlite.DB, layout outbox.Layout) *operate.Browser {
	t.Helper()
	b, err := operate.On(sqlitecold.DB{File: db}).Browser(t.Context(), layout)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A page must not cost more on a long table: the position gives the order, or an index holds the
// rare status.
func TestBrowsePlans(t *testing.T) {
	t.Parallel()
	db := filled(t)
	for _, c := range []struct {
		layout outbox.Layout
		f      operate.Filter
		index  string
		sorts  bool // the few rows of a rare status
	}{
		{outbox.OutboxEvents(), operate.Filter{}, "SCAN e", false},
		{outbox.OutboxEvents(), operate.Filter{After: "7"}, "SEARCH e USING INTEGER PRIMARY KEY (rowid<?)", false},
		{outbox.OutboxEvents(), operate.Filter{Statuses: []string{"DEAD"}}, "idx_outbox_status (status=?)", true},
		{outbox.OutboxEvents(), operate.Filter{Statuses: []string{"DEAD", "failed"}}, "idx_outbox_status (status=?)", true},
		{outbox.OutboxEvents(), operate.Filter{Statuses: []string{"NEW"}}, "outbox_events_undelivered", false},
		{outbox.OutboxEvents(), operate.Filter{Statuses: []string{"new", "FAILED"}, After: "7"},
			"outbox_events_undelivered (position<?)", false},
		{outbox.OutboxEvents(), operate.Filter{Statuses: []string{"NEW"}, Tenant: "acme"},
			"outbox_events_tenants (tenant_id=?)", false},
		{outbox.EventOutbox(), operate.Filter{Statuses: []string{"pending"}}, "event_outbox_", true},
		{outbox.EventOutbox(), operate.Filter{Statuses: []string{"failed"}}, "idx_event_outbox_failed", true},
		{outbox.CrawlOutbox(), operate.Filter{}, "SCAN e", false},
		{outbox.CrawlOutbox(), operate.Filter{Statuses: []string{"pending", "retry"}}, "crawl_outbox_un", false},
		{outbox.DeliveriesOf("outbox_events", "audit"), operate.Filter{}, "SCAN e", false},
		{outbox.DeliveriesOf("outbox_events", "audit"), operate.Filter{Statuses: []string{"pending"}},
			"outbox_deliveries_undelivered (queue=?)", false},
	} {
		plan := plans(t, db, c.layout, func(b *operate.Browser) error {
			_, _, err := b.List(t.Context(), c.f)
			return err
		})[0]
		if !strings.Contains(plan, c.index) || !c.sorts && strings.Contains(plan, "FOR ORDER BY") {
			t.Errorf("%s %+v is not served by %s:\n%s", c.layout.Table, c.f, c.index, plan)
		}
	}
	for layout, index := range map[string]string{"outbox_events": "sqlite_autoindex_outbox_events_1 (id=?)",
		"event_outbox": "sqlite_autoindex_event_outbox_2 (event_id=?)"} {
		of := map[string]outbox.Layout{"outbox_events": outbox.OutboxEvents(), "event_outbox": outbox.EventOutbox()}[layout]
		for asked, index := range map[string]string{uuid.NewString(): index, "7": "INTEGER PRIMARY KEY (rowid=?)"} {
			found := plans(t, db, of, func(b *operate.Browser) error {
				if _, err := b.Show(t.Context(), asked, ""); !errors.Is(err, operate.ErrNoEvent) {
					return err
				}
				return nil
			})
			if !strings.Contains(found[0], index) {
				t.Errorf("%s is not served by %s:\n%s", layout, index, found[0])
			}
			if last := found[len(found)-1]; asked != "7" && !strings.Contains(last, "outbox_deliveries_once") {
				t.Errorf("an event's deliveries are not served by outbox_deliveries_once:\n%s", last)
			}
		}
	}
	for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.CrawlOutbox()} {
		plan := strings.Join(plans(t, db, layout, func(b *operate.Browser) error {
			_, err := b.Lanes(t.Context(), 10)
			return err
		}), "\n")
		if !strings.Contains(plan, "USING INDEX "+layout.Table+"_undelivered") &&
			!strings.Contains(plan, "idx_crawl_outbox_unpublished") {
			t.Errorf("backlog of %s:\n%s", layout.Table, plan)
		}
	}
}

// plans are those of the statements that ask runs.
func plans(t *testing.T, db *sqlite.DB, layout outbox.Layout, ask func(*operate.Browser) error) []string {
	t.Helper()
	of, all := operatetest.Explained(sqlitecold.DB{File: db}, "EXPLAIN QUERY PLAN")
	b, err := operate.On(of).Browser(t.Context(), layout)
	if err == nil {
		err = ask(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all()
}

// A table of somebody else's may have ids in any form, and anything in any column: it is shown as
// it is.
func TestBrowseShowsWhatIsThere(t *testing.T) {
	t.Parallel()
	const id = "0190000000007000800000000000000a"
	db := filled(t,
		`CREATE TABLE mine (n INTEGER PRIMARY KEY, uid, what, body, tries, due DATETIME, at TIMESTAMP, done DATETIME, meta)`,
		`INSERT INTO mine VALUES (1, '01900000-0000-7000-8000-00000000000A', 't', '{"a":1}', 2, '2025-01-02 03:04:05', '2025-01-02 03:04:05', NULL, 'no json')`,
		`INSERT INTO mine VALUES (2, x'`+strings.Replace(id, "0a", "0b", 1)+
			`', 7, x'00ff', 'many', 'soon', NULL, NULL, NULL)`,
		`INSERT INTO mine VALUES (3, 'seven', NULL, NULL, NULL, NULL, NULL, CURRENT_TIMESTAMP, NULL)`)
	b := browser(t, db, outbox.Layout{Table: "mine", ID: "uid", Position: "n", Topic: "what", Payload: "body",
		Attempts: "tries", NextRetryAt: "due", WrittenAt: "at", DeliveredAt: "done", Metadata: "meta"})
	rows, _, err := b.List(t.Context(), operate.Filter{})
	if err != nil || len(rows) != 3 || rows[0].Status != "delivered" || rows[1].Topic != "7" || rows[2].Attempts != 2 ||
		rows[2].Status != "retry" || rows[2].NextRetryAt.Year() != 2025 {
		t.Fatalf("got %+v, error %v", rows, err)
	}
	for _, r := range rows[1:] {
		d, err := b.Show(t.Context(), r.ID.String(), "")
		if err != nil || d.Position != r.Position || d.WrittenAt == nil {
			t.Errorf("show %s: %+v, error %v", r.ID, d, err)
		}
	}
	if d, err := b.Show(t.Context(), "1", ""); err != nil || string(d.Metadata) != `"no json"` ||
		string(d.Payload) != `{"a":1}` {
		t.Errorf("got %+v, error %v", d, err)
	}
	if _, err := b.Show(t.Context(), "1", "acme"); !errors.Is(err, operate.ErrFilter) {
		t.Errorf("of a tenant where there are none: got %v, want ErrFilter", err)
	}
	if d, err := b.Show(t.Context(), "3", ""); err != nil || string(d.Payload) != "null" {
		t.Errorf("got %+v, error %v", d, err)
	}
	var schema *outbox.SchemaError
	if _, err := operate.On(sqlitecold.DB{File: db}).Browser(t.Context(),
		outbox.Layout{Table: "mine", ID: "id", Position: "n", Topic: "what", Payload: "body", Attempts: "tries",
			NextRetryAt: "due", DeliveredAt: "done"}); !errors.As(err, &schema) ||
		!slices.Equal(schema.Missing, []string{"id"}) {
		t.Errorf("got %v, want a SchemaError that names id", err)
	}
}

func TestBrowseKnownAndOfATenant(t *testing.T) {
	t.Parallel()
	const id = "01900000-0000-7000-8000-000000000001"
	db := filled(t, `INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload) VALUES ('`+id+
		`', 't', '2025-01-01T00:00:00.000000Z', 's', '1')`)
	b := browser(t, db, outbox.OutboxEvents())
	if _, err := b.Show(t.Context(), id, "default"); err != nil {
		t.Error(err)
	}
	if _, err := b.Show(t.Context(), id, "acme"); !errors.Is(err, operate.ErrNoEvent) {
		t.Errorf("another tenant's event: got %v, want ErrNoEvent", err)
	}
	if err := sqlitefile.InTx(t.Context(), db, func(tx *sql.Tx) error {
		known, err := b.Known(t.Context(), cold.SQL{SQLTx: tx}, []uuid.UUID{uuid.New(), uuid.MustParse(id)})
		if err == nil && !slices.Equal(known, []uuid.UUID{uuid.MustParse(id)}) {
			t.Errorf("got %v, want %s", known, id)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}
