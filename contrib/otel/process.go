package outboxotel

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox/group"
)

// Message is what a consumer knows of a message. What is empty is left out.
type Message struct {
	System      string // what OpenTelemetry calls the broker (outbox)
	Destination string // the topic, subject, queue or stream
	Group       string // of consumers
	ID          string
	Headers     propagation.TextMapCarrier // has traceparent: propagation.HeaderCarrier or MapCarrier
}

// Receive starts a span of kind CLIENT for asking a broker for messages. Call end with what came,
// which the span gets links to, and with the error.
func (t *Tracing) Receive(ctx context.Context, from Message) (_ context.Context, end func(error, ...Message)) {
	ctx, span := t.start(ctx, trace.SpanKindClient, from, "receive", semconv.MessagingOperationTypeReceive)
	return ctx, func(err error, came ...Message) {
		span.SetAttributes(semconv.MessagingBatchMessageCount(len(came)))
		for _, link := range links(ctx, came) {
			span.AddLink(link)
		}
		finish(span, err)
	}
}

// Process starts a span of kind CONSUMER for handling a message: with a link to the message's
// context, or below it (Config.Parent). Handle the message with the context that it returns, and
// call end with the outcome.
func (t *Tracing) Process(ctx context.Context, m Message) (_ context.Context, end func(error)) {
	return t.process(ctx, m)
}

func (t *Tracing) process(
	ctx context.Context, m Message, options ...trace.SpanStartOption,
) (context.Context, func(error)) {
	if from := contextOf(ctx, m.Headers); from.IsValid() && t.parent {
		ctx = trace.ContextWithRemoteSpanContext(ctx, from)
	} else if from.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	ctx, span := t.start(ctx, trace.SpanKindConsumer, m, "process", semconv.MessagingOperationTypeProcess, options...)
	return ctx, func(err error) { finish(span, err) }
}

// Func returns a sink's function that makes a span as Process does for each delivery.
func (t *Tracing) Func(handle outbox.SinkFunc) outbox.SinkFunc {
	return func(ctx context.Context, d outbox.Delivery) (err error) {
		parent, state := d.TraceContext()
		ctx, end := t.Process(ctx, Message{Destination: d.Destination, ID: d.ID.String(),
			Headers: propagation.MapCarrier{"traceparent": parent, "tracestate": state}})
		defer ending(end, &err)
		return handle(ctx, d)
	}
}

// Handle returns a handler for group.Handle that makes a span as Process does. name is the group's.
// Copies, which the group does not handle, have none.
func Handle[Tx, T any](
	t *Tracing, name string, handle func(ctx context.Context, tx Tx, m group.Message[T]) error,
) func(ctx context.Context, tx Tx, m group.Message[T]) error {
	return func(ctx context.Context, tx Tx, m group.Message[T]) (err error) {
		ctx, end := t.process(ctx, messageOf(name, m.Event), trace.WithAttributes(attribute.Int("outbox.attempt", m.Attempt)))
		defer ending(end, &err)
		return handle(ctx, tx, m)
	}
}

// HandleBatch is Handle for group.HandleBatch. The span has a link for each message.
func HandleBatch[Tx, T any](
	t *Tracing, name string, handle func(ctx context.Context, tx Tx, ms []group.Message[T]) error,
) func(ctx context.Context, tx Tx, ms []group.Message[T]) error {
	return func(ctx context.Context, tx Tx, ms []group.Message[T]) (err error) {
		all := Message{Group: name}
		came := make([]Message, len(ms))
		for i, m := range ms {
			came[i], all.Destination = messageOf(name, m.Event), m.Topic
		}
		ctx, span := t.start(ctx, trace.SpanKindConsumer, all, "process", semconv.MessagingOperationTypeProcess,
			trace.WithLinks(links(ctx, came)...), trace.WithAttributes(semconv.MessagingBatchMessageCount(len(ms))))
		defer ending(func(err error) { finish(span, err) }, &err)
		return handle(ctx, tx, ms)
	}
}

// ending ends the span of a handler that returns or panics. It is for defer.
func ending(end func(error), err *error) {
	if cause := recover(); cause != nil {
		end(fmt.Errorf("panic: %v", cause))
		panic(cause)
	}
	end(*err)
}

func messageOf(name string, e outbox.Event) Message {
	headers := propagation.MapCarrier{}
	for _, member := range []string{"traceparent", "tracestate"} {
		if text, is := e.Metadata[member].(string); is {
			headers[member] = text
		}
	}
	return Message{Destination: e.Topic, Group: name, ID: e.ID.String(), Headers: headers}
}

func links(ctx context.Context, messages []Message) (all []trace.Link) {
	for _, m := range messages {
		if from := contextOf(ctx, m.Headers); from.IsValid() {
			all = append(all, trace.Link{SpanContext: from,
				Attributes: []attribute.KeyValue{semconv.MessagingMessageID(m.ID)}})
		}
	}
	return all
}
