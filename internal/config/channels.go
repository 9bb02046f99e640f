package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// RunChannel returns the function that names the channel of a run: where the relay sends the events of crawl_outbox.
// Whoever subscribes has not seen an event yet, so a template that needs more than run and tenant is an error.
func (c Config) RunChannel() (func(tenant string, run uuid.UUID) (string, error), error) {
	table := outbox.CrawlOutbox().Table
	name := func(tenant string, run uuid.UUID) *outbox.Record {
		return &outbox.Record{Event: outbox.Event{AggregateID: run.String(), TenantID: tenant, Source: table}}
	}
	template, err := c.channelTemplate(table, "run (use {key}, {tenant}, {source})", name("t", uuid.New()))
	if err != nil {
		return nil, err
	}
	return func(tenant string, run uuid.UUID) (string, error) { return template.Expand(name(tenant, run)) }, nil
}

// ReservedChannels tells of a channel whether it is some run's. Events of other tables do not belong there. It is nil
// where no channel can be known to be a run's.
func (c Config) ReservedChannels() func(channel string) bool {
	if _, err := c.RunChannel(); err != nil {
		return nil // no gateway listens either
	}
	run := c.runTemplate()
	pattern := strings.NewReplacer(
		`\{key\}`, `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, `\{tenant\}`, `.+`, `\{source\}`,
		regexp.QuoteMeta(outbox.CrawlOutbox().Table),
	).Replace(regexp.QuoteMeta(run))
	return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString
}

// OwnRunChannels tells whether a table's events belong on the channels of runs: because it is theirs, or because
// somebody has given it their destination.
func (c Config) OwnRunChannels(table, destination string) bool {
	return table == outbox.CrawlOutbox().Table || destination == c.runTemplate()
}

func (c Config) runTemplate() string { return c.templateOf(outbox.CrawlOutbox().Table) }

// TopicChannel is RunChannel for the topics of outbox_events.
func (c Config) TopicChannel() (func(tenant, topic string) (string, error), error) {
	name := func(tenant, topic string) *outbox.Record {
		return &outbox.Record{Event: outbox.Event{Topic: topic, TenantID: tenant}}
	}
	template, err := c.channelTemplate(outbox.OutboxEvents().Table, "topic (use {topic}, {tenant})", name("t", "t"))
	if err != nil {
		return nil, err
	}
	return func(tenant, topic string) (string, error) { return template.Expand(name(tenant, topic)) }, nil
}

// channelTemplate returns where a table's events go, if that can be known from what is known.
func (c Config) channelTemplate(table, of string, known *outbox.Record) (outbox.Template, error) {
	text := c.templateOf(table)
	template, err := outbox.ParseTemplate(text)
	if err != nil {
		return template, err
	}
	if _, err := template.Expand(known); err != nil {
		return template,
			fmt.Errorf("destination of %s is %q: the gateway subscribes before it has seen an event, when it knows only the %s",
				table, text, of)
	}
	return template, nil
}

func (c Config) templateOf(table string) string {
	if d, ok := c.Destination[table]; ok && d != "" {
		return d
	}
	if t, ok := find(c.Known(), table); ok && t.Destination != "" {
		return t.Destination
	}
	return "{topic}" // the relay's default
}
