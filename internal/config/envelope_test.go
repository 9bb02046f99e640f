package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox"
)

func TestEnvelopeOfTables(t *testing.T) {
	d := outbox.Delivery{Record: &outbox.Record{Event: outbox.Event{Topic: "t", Source: "s",
		Payload: json.RawMessage(`7`)}}}
	for setting, want := range map[string]struct {
		bare   string // tables
		topics bool   // that have none
	}{
		"cloudevents":                         {"", false},
		"payload":                             {"outbox_events event_outbox crawl_outbox", true},
		"crawl_outbox=payload":                {"crawl_outbox", false},
		"cloudevents, crawl_outbox=payload":   {"crawl_outbox", false},
		"payload,outbox_events=cloudevents":   {"event_outbox crawl_outbox", true},
		"event_outbox=payload,cloudevents":    {"event_outbox", true},
		"crawl_outbox=cloudevents,payload":    {"outbox_events event_outbox", true},
		"event_outbox=payload,crawl_outbox=p": {"refused", true},
		"shop=payload":                        {"refused", true},
		"xml":                                 {"refused", true},
	} {
		c, err := load(t, "", []string{"OUTBOX_ENVELOPE=" + setting, "OUTBOX_SINK=redis://h",
			"OUTBOX_DATABASE_URL=postgres://h/d"})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Check(Serving); (err != nil) != (want.bare == "refused") {
			t.Errorf("%s: got error %v", setting, err)
		}
		if want.bare == "refused" {
			continue
		}
		if c.BareTopics() != want.topics {
			t.Errorf("%s: bare topics %t", setting, c.BareTopics())
		}
		for _, table := range []string{"outbox_events", "event_outbox", "crawl_outbox"} {
			if bare := string(c.EnvelopeOf(table)(nil, &d)) == "7"; bare != strings.Contains(want.bare, table) {
				t.Errorf("%s: bare payloads of %s: %t", setting, table, bare)
			}
		}
	}
}
