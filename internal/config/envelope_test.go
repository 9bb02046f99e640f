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
		c := Config{Envelope: setting}
		if c.BareTopics() != want.topics {
			t.Errorf("%s: bare topics %t", setting, c.BareTopics())
		}
		for _, table := range []string{"outbox_events", "event_outbox", "crawl_outbox"} {
			envelope, err := c.EnvelopeOf(table)
			if want.bare == "refused" {
				if err == nil {
					t.Errorf("%s is accepted", setting)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if bare := string(envelope(nil, &d)) == "7"; bare != strings.Contains(want.bare, table) {
				t.Errorf("%s: bare payloads of %s: %t", setting, table, bare)
			}
		}
	}
}

func TestParseEnvelope(t *testing.T) {
	d := outbox.Delivery{Record: &outbox.Record{Event: outbox.Event{Topic: "t", Payload: json.RawMessage(`{"a":1}`)}}}
	for name, want := range map[string]string{"": `{"spec`, "cloudevents": `{"spec`, "payload": `{"a":1}`} {
		envelope, err := parseEnvelope(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(envelope(nil, &d)); !strings.HasPrefix(got, want) {
			t.Errorf("envelope %q gives %s", name, got)
		}
	}
	if _, err := parseEnvelope("xml"); err == nil {
		t.Error("envelope xml is accepted")
	}
}
