package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
)

// parseEnvelope returns what messages of a form are.
func parseEnvelope(form string) (outbox.Envelope, error) {
	switch form {
	case "", "cloudevents":
		return outbox.CloudEvent, nil
	case "payload":
		return outbox.PayloadOnly, nil
	}
	return nil, fmt.Errorf("unknown envelope %q (known: cloudevents, payload)", form)
}

// envelopes reads the setting: a form for all tables, and TABLE=FORM for single ones, apart by commas. It returns what
// a table's form is.
func (c Config) envelopes() (formOf func(table string) string, err error) {
	all, single := "cloudevents", map[string]string{}
	for part := range strings.SplitSeq(c.Envelope, ",") {
		table, form, ofOne := strings.Cut(strings.TrimSpace(part), "=")
		if !ofOne {
			form = table
		}
		if _, err := parseEnvelope(form); err != nil {
			return nil, err
		}
		if !ofOne {
			all = form
			continue
		}
		if _, ok := find(c.Known(), table); !ok {
			return nil, errors.New(unknownTable("envelope", table, c.Known()))
		}
		single[table] = form
	}
	return func(table string) string {
		if form, ok := single[table]; ok {
			return form
		}
		return all
	}, nil
}

// EnvelopeOf returns what the messages of a table are.
func (c Config) EnvelopeOf(table string) (outbox.Envelope, error) {
	formOf, err := c.envelopes()
	if err != nil {
		return nil, err
	}
	return parseEnvelope(formOf(table))
}

// BareTopics tells whether messages of a table other than that of runs may arrive without their CloudEvent: what such a
// message says of itself is its producer's word.
func (c Config) BareTopics() bool {
	formOf, err := c.envelopes()
	return err != nil || slices.ContainsFunc(c.Known(), func(t Table) bool {
		return t.Name() != outbox.CrawlOutbox().Table && formOf(t.Name()) == "payload"
	})
}
