package app

import (
	"github.com/outboxrelay/outbox/sink"
	"github.com/outboxrelay/outbox/sink/kafka"
	"github.com/outboxrelay/outbox/sink/memory"
	"github.com/outboxrelay/outbox/sink/natsjs"
	"github.com/outboxrelay/outbox/sink/pgtable"
	"github.com/outboxrelay/outbox/sink/rabbitmq"
	"github.com/outboxrelay/outbox/sink/redispubsub"
	"github.com/outboxrelay/outbox/sink/redisstream"
	"github.com/outboxrelay/outbox/sink/webhook"
)

// Sinks returns the drivers of the sinks that the command has. This list is all that knows of a
// sink beside its own folder.
func Sinks() []sink.Driver {
	return []sink.Driver{
		redispubsub.Driver(),
		redisstream.Driver(),
		natsjs.Driver(),
		kafka.Driver(),
		rabbitmq.Driver(),
		pgtable.Driver(),
		webhook.Driver(),
		memory.Driver(),
	}
}

// OwnSink is the URL of the sink of outbox dev: it needs no server, and the page in the same
// process hears it.
const OwnSink = "memory:"

// OwnDatabase is the URL of the database of outbox dev, which is a file.
func OwnDatabase(file string) string { return "sqlite:" + file }
