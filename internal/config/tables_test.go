package config

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
)

const invoices = `
- table: billing.outbox
  id: event_id
  position: seq
  topic: kind
  payload: body
  delivered_at: sent_at
  attempts: tries
  next_retry_at: retry_at
  destination: "billing.{topic}"
  max_attempts: 8
- table: outbox
  like: outbox_events
  last_error: ""
`

// loaded returns a checked configuration with --layout.
func loaded(t *testing.T, layouts string, args ...string) (Config, error) {
	t.Helper()
	c, err := load(t, "", []string{"OUTBOX_DATABASE_URL=postgres://h/d", "OUTBOX_SINK=redis://h"},
		append(args, "--layouts", write(t, layouts))...)
	if err != nil {
		t.Fatal(err)
	}
	return c, c.Check(Database | Publishing | Serving)
}

func TestMappedTables(t *testing.T) {
	for _, text := range []string{invoices, "layouts:" + strings.ReplaceAll(invoices, "\n", "\n  ")} {
		c, err := loaded(t, text, "--destination", "outbox=legacy.{topic}")
		if err != nil {
			t.Fatal(err)
		}
		tables, err := c.Tables()
		if err != nil || names(tables) != "billing.outbox, outbox, outbox_events, event_outbox, crawl_outbox, outbox_log" {
			t.Fatalf("got %s, error %v", names(tables), err)
		}
		b, o := tables[0], tables[1]
		if b.Layout.Topic != "kind" || b.Destination != "billing.{topic}" || b.MaxAttempts != 8 || !b.Required {
			t.Errorf("billing.outbox: got %+v", b)
		}
		if o.Layout.Topic != "event_topic" || o.Layout.Table != "outbox" || o.Layout.LastError != "" ||
			o.Destination != "legacy.{topic}" {
			t.Errorf("outbox: got %+v", o)
		}
		if crawl := tables[4]; crawl.Destination != "run:{key}" || crawl.MaxAttempts != 3 || crawl.Required {
			t.Errorf("crawl_outbox: got %+v", crawl)
		}
	}
}

func TestMappedTablesInConfigFile(t *testing.T) {
	c, err := load(t, "database: postgres://h/d\nlayouts:"+strings.ReplaceAll(invoices, "\n", "\n  "), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(Database); err != nil {
		t.Fatal(err)
	}
	if table, err := c.Find("billing.outbox"); err != nil || table.Layout.Position != "seq" {
		t.Errorf("got %+v, error %v", table, err)
	}
}

func TestChosenTables(t *testing.T) {
	c, err := loaded(t, invoices, "--table", "crawl_outbox,outbox,crawl_outbox", "--max-attempts", "9")
	if err != nil {
		t.Fatal(err)
	}
	tables, err := c.Tables()
	if err != nil || names(tables) != "crawl_outbox, outbox" || !tables[0].Required || tables[0].MaxAttempts != 9 {
		t.Errorf("got %+v, error %v", tables, err)
	}
}

func TestLayoutProblems(t *testing.T) {
	_, err := loaded(t,
		"- {table: a, like: outbox_events, tpoic: x}\n- {table: b, like: nothing}\n- {table: c, id: i}\n- {table: d, like: "+
			"crawl_outbox, attempts: [1]}\n- {table: e, like: event_outbox, destination: '{'}\n- 7")
	wantProblems(t, err, `entry 1 (table "a"): unknown key "tpoic"`,
		`entry 2 (table "b"): like: there is no table "nothing"`, "position: is required", "entry 4", "destination of e",
		"entry 6")

	_, err = loaded(t, "tables: []")
	wantProblems(t, err, "want a YAML list")

	c, err := load(t, "", []string{"OUTBOX_LAYOUTS=/no/such.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, c.Check(0), "/no/such.yaml")
}

func TestSettleModes(t *testing.T) {
	c, err := loaded(t, invoices+"- table: quick\n  like: outbox_events\n  settle: delete\n",
		"--settle", "billing.outbox=archive,crawl_outbox=delete")
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]outbox.SettleMode{
		"billing.outbox": outbox.SettleArchive, "crawl_outbox": outbox.SettleDelete, "quick": outbox.SettleDelete,
		"outbox_events": "",
	} {
		if got, err := c.Find(table); err != nil || got.Layout.Settle != want {
			t.Errorf("%s: settle mode %q, error %v, want %q", table, got.Layout.Settle, err, want)
		}
	}
	for setting, want := range map[string]string{
		"outbox_events=erase": `settle: outbox_events: "erase" is no settle mode: it is mark, delete or archive: give --settle`,
		"outbox_events=":      "settle: outbox_events: no mode is given",
		"orders=delete":       "settle: there is no layout for table orders",
	} {
		if _, err := loaded(t, invoices, "--settle", setting); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--settle %s: got error %v, want %q in it", setting, err, want)
		}
	}
	if _, err := loaded(t, "- table: quick\n  like: outbox_events\n  settle: erase\n"); err == nil ||
		!strings.Contains(err.Error(), `settle: "erase" is no settle mode`) {
		t.Errorf("in a layout: got error %v", err)
	}
}
