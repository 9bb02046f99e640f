package config

import (
	"fmt"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/tables"
)

// envelopes reads the setting: a form for all tables, and TABLE=FORM for single ones, apart by commas.
func (c Config) envelopes() (all string, of map[string]string, err error) {
	all, of = "cloudevents", map[string]string{}
	for part := range strings.SplitSeq(c.Envelope, ",") {
		table, form, single := strings.Cut(strings.TrimSpace(part), "=")
		if !single {
			form = table
		}
		if _, err := outbox.ParseEnvelope(form); err != nil {
			return "", nil, err
		}
		if !single {
			all = form
			continue
		}
		if _, ok := find(c.Known(), table); !ok {
			return "", nil, fmt.Errorf("%s", unknownTable("envelope", table, c.Known()))
		}
		of[table] = form
	}
	return all, of, nil
}

// EnvelopeOf returns what the messages of a table are.
func (c Config) EnvelopeOf(table string) (outbox.Envelope, error) {
	form, of, err := c.envelopes()
	if err != nil {
		return nil, err
	}
	if its, ok := of[table]; ok {
		form = its
	}
	return outbox.ParseEnvelope(form)
}

// BareTopics tells whether messages of a table other than that of runs may arrive without their CloudEvent: what such a
// message says of itself is its producer's word.
func (c Config) BareTopics() bool {
	all, of, err := c.envelopes()
	for _, t := range c.Known() {
		form, ok := of[t.Name()]
		if !ok {
			form = all
		}
		if form == "payload" && t.Name() != tables.CrawlOutbox().Table {
			return true
		}
	}
	return err != nil
}
