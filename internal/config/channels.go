package config

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// What a gateway knows of where relays publish: it subscribes before it has seen an event.

var (
	runs   = outbox.CrawlOutbox().Table  // the table whose events are those of runs
	topics = outbox.OutboxEvents().Table // the table whose events are those of topics
)

// RunChannel returns the function that names the channel of a run: where the relay sends the events
// of crawl_outbox. Whoever subscribes has not seen an event yet, so a template that needs more than
// run and tenant is an error.
func (c Config) RunChannel() (func(tenant string, run uuid.UUID) (string, error), error) {
	name := func(tenant string, run uuid.UUID) *outbox.Record {
		return &outbox.Record{Event: outbox.Event{AggregateID: run.String(), TenantID: tenant, Source: runs}}
	}
	template, err := c.channelTemplate(runs, "run (use {key}, {tenant}, {source})", name("t", uuid.New()))
	return func(tenant string, run uuid.UUID) (string, error) { return template.Expand(name(tenant, run)) }, err
}

// TopicChannel is RunChannel for the topics of outbox_events.
func (c Config) TopicChannel() (func(tenant, topic string) (string, error), error) {
	name := func(tenant, topic string) *outbox.Record {
		return &outbox.Record{Event: outbox.Event{Topic: topic, TenantID: tenant}}
	}
	template, err := c.channelTemplate(topics, "topic (use {topic}, {tenant})", name("t", "t"))
	return func(tenant, topic string) (string, error) { return template.Expand(name(tenant, topic)) }, err
}

// channelTemplate returns where a table's events go, if that can be known from what is known.
func (c Config) channelTemplate(table, of string, known *outbox.Record) (outbox.Template, error) {
	text := c.templateOf(table)
	template, err := outbox.ParseTemplate(text)
	if err != nil {
		return template, err
	}
	if _, err := template.Expand(known); err != nil {
		return template, fmt.Errorf("destination of %s is %q: the gateway subscribes before it "+
			"has seen an event, when it knows only the %s", table, text, of)
	}
	return template, nil
}

// ReservedChannels tells of a channel whether it is some run's. Events of other tables do not
// belong there. It is nil where no channel can be known to be a run's.
func (c Config) ReservedChannels() func(channel string) bool {
	if _, err := c.RunChannel(); err != nil {
		return nil // no gateway listens either
	}
	pattern := strings.NewReplacer(
		`\{key\}`, `[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`, `\{tenant\}`, `.+`, `\{source\}`,
		regexp.QuoteMeta(runs),
	).Replace(regexp.QuoteMeta(c.templateOf(runs)))
	return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString
}

// OwnRunChannels tells whether a table's events belong on the channels of runs: because it is
// theirs, or because somebody has given it their destination.
func (c Config) OwnRunChannels(table, destination string) bool {
	return table == runs || destination == c.templateOf(runs)
}

// templateOf is where a table's events go that name no destination.
func (c Config) templateOf(table string) string {
	if t, ok := find(c.Known(), table); ok && c.served(t).Destination != "" {
		return c.served(t).Destination
	}
	return "{topic}" // the relay's default
}

// BareTopics tells whether messages of a table other than that of runs may arrive without their
// CloudEvent: what such a message says of itself is its producer's word.
func (c Config) BareTopics() bool {
	for _, t := range c.Known() {
		if t.Name() != runs && c.Envelope.Of(t.Name()) == "payload" {
			return true
		}
	}
	return false
}
