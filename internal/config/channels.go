package config

import (
	"fmt"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/tables"
)

// RunChannel returns the function that names the channel of a run: where the relay sends the events of crawl_outbox. Whoever subscribes has not seen
// an event yet, so a template that needs more than run and tenant is an error.
func (c Config) RunChannel() (func(tenant string, run uuid.UUID) (string, error), error) {
	table := tables.CrawlOutbox().Table
	name := func(tenant string, run uuid.UUID) *outbox.Record {
		return &outbox.Record{Event: outbox.Event{AggregateID: run.String(), TenantID: tenant, Source: table}}
	}
	template, err := c.channelTemplate(table, "run (use {key}, {tenant}, {source})", name("t", uuid.New()))
	if err != nil {
		return nil, err
	}
	return func(tenant string, run uuid.UUID) (string, error) { return template.Expand(name(tenant, run)) }, nil
}

// TopicChannel is RunChannel for the topics of outbox_events.
func (c Config) TopicChannel() (func(tenant, topic string) (string, error), error) {
	name := func(tenant, topic string) *outbox.Record {
		return &outbox.Record{Event: outbox.Event{Topic: topic, TenantID: tenant}}
	}
	template, err := c.channelTemplate(tables.OutboxEvents().Table, "topic (use {topic}, {tenant})", name("t", "t"))
	if err != nil {
		return nil, err
	}
	return func(tenant, topic string) (string, error) { return template.Expand(name(tenant, topic)) }, nil
}

// channelTemplate returns where a table's events go, if that can be known from what is known.
func (c Config) channelTemplate(table, of string, known *outbox.Record) (outbox.Template, error) {
	text := ""
	if t, ok := find(c.Known(), table); ok {
		text = t.Destination
	}
	if d, ok := c.Destination[table]; ok {
		text = d
	}
	if text == "" {
		text = "{topic}" // the relay's default
	}
	template, err := outbox.ParseTemplate(text)
	if err != nil {
		return template, err
	}
	if _, err := template.Expand(known); err != nil {
		return template, fmt.Errorf("destination of %s is %q: the gateway subscribes before it has seen an event, when it knows only the %s", table, text, of)
	}
	return template, nil
}
