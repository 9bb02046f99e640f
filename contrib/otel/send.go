package outboxotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxrelay/outbox"
)

// Sink returns a sink that makes a span of kind CLIENT for each batch that it gives to s. system is
// what OpenTelemetry calls the broker: kafka, rabbitmq, nats, redis.
//
// The span has a link for each message that brings a trace context, with the message's id, how long
// it was in the outbox (outbox.latency_seconds, from its insert to the sink's answer), and
// error.type if it was not sent. A TracerProvider keeps 128 links of a span unless it is told
// otherwise (OTEL_SPAN_LINK_COUNT_LIMIT). Latencies are also the histogram outbox.delivery.latency,
// whose exemplars are the messages' own traces.
func (t *Tracing) Sink(s outbox.Sink, system string) outbox.Able { return &sending{s, t, system} }

type sending struct {
	outbox.Sink
	t      *Tracing
	system string
}

// Abilities implements outbox.Able: they are the sink's.
func (s *sending) Abilities() outbox.Abilities { return outbox.AbilitiesOf(s.Sink) }

// Publish implements outbox.Sink.
func (s *sending) Publish(ctx context.Context, batch []outbox.Delivery) []outbox.Result {
	m, size := Message{System: s.system}, trace.WithAttributes(semconv.MessagingBatchMessageCount(len(batch)))
	if len(batch) == 1 {
		m.ID, size = batch[0].ID.String(), trace.WithAttributes()
	}
	mixed := false
	for i := range batch {
		mixed = mixed || batch[i].Destination != batch[0].Destination
	}
	if len(batch) > 0 && !mixed {
		m.Destination = batch[0].Destination
	}
	sent, span := s.t.start(ctx, trace.SpanKindClient, m, "send", semconv.MessagingOperationTypeSend, size)
	defer span.End() // also of a sink that panics
	results := s.Sink.Publish(sent, batch)
	answered := time.Now()
	if linking, measuring := span.IsRecording(), s.t.waited.Enabled(ctx); linking || measuring {
		for i := range batch[:min(len(batch), len(results))] {
			s.observe(ctx, span, &batch[i], results[i].Err, answered, mixed)
		}
	}
	finish(span, failure(results))
	return results
}

// observe tells of one message of a batch.
func (s *sending) observe(
	ctx context.Context, span trace.Span, d *outbox.Delivery, err error, answered time.Time, mixed bool,
) {
	parent, state := d.TraceContext()
	link := trace.Link{SpanContext: contextOf(ctx, propagation.MapCarrier{"traceparent": parent, "tracestate": state}),
		Attributes: []attribute.KeyValue{semconv.MessagingMessageID(d.ID.String())}}
	if mixed {
		link.Attributes = append(link.Attributes, semconv.MessagingDestinationName(d.Destination))
	}
	switch latency := max(answered.Sub(d.WrittenAt).Seconds(), 0); {
	case err != nil:
		link.Attributes = append(link.Attributes, errorType(err))
	case !d.WrittenAt.IsZero() && d.Generation == 0: // an operator's replay may come weeks later
		link.Attributes = append(link.Attributes, attribute.Float64("outbox.latency_seconds", latency))
		s.t.waited.Record(trace.ContextWithRemoteSpanContext(ctx, link.SpanContext), latency,
			metric.WithAttributes(semconv.MessagingSystemKey.String(s.system)))
	}
	if link.SpanContext.IsValid() {
		span.AddLink(link)
	}
}

// failure is the first error of a batch, but for those of messages whose turn it was not.
func failure(results []outbox.Result) error {
	for _, r := range results {
		class, _ := outbox.Classify(r.Err)
		if r.Err != nil && class != outbox.ClassNotAttempted && class != outbox.ClassPostponed {
			return r.Err
		}
	}
	return nil
}
