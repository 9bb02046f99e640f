package outboxotel

import (
	"cmp"
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxrelay/outbox"
)

// Config says where spans go, and which. Zero means the default in parentheses.
type Config struct {
	TracerProvider trace.TracerProvider // (otel.GetTracerProvider())
	MeterProvider  metric.MeterProvider // (otel.GetMeterProvider())
	// Create has Fill make a span for each event and put its context into the event (none: the
	// context of the caller).
	Create bool
	// Parent makes a message's context the parent of the span of its handler, so that both are one
	// trace (a link). Spans of batches have links in any case.
	Parent bool
}

// Tracing makes spans. It is safe for concurrent use.
type Tracing struct {
	tracer         trace.Tracer
	waited         metric.Float64Histogram
	create, parent bool
}

// own is what OpenTelemetry calls the system of events that no broker has.
const own = "outbox"

// New returns what makes spans. An error is the MeterProvider's.
func New(cfg Config) (*Tracing, error) {
	const scope = "github.com/outboxrelay/outbox/contrib/otel"
	cfg.TracerProvider = cmp.Or(cfg.TracerProvider, otel.GetTracerProvider())
	cfg.MeterProvider = cmp.Or(cfg.MeterProvider, otel.GetMeterProvider())
	waited, err := cfg.MeterProvider.Meter(scope).Float64Histogram("outbox.delivery.latency", metric.WithUnit("s"),
		metric.WithDescription("From an event's insert, by the database's clock, to the sink's answer, by the relay's."),
		metric.WithExplicitBucketBoundaries(.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60))
	if err != nil {
		return nil, fmt.Errorf("make the histogram of latencies: %w", err)
	}
	return &Tracing{cfg.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)), waited, cfg.Create,
		cfg.Parent}, nil
}

// start starts the span of an operation on a destination, "" if there is more than one.
func (t *Tracing) start(
	ctx context.Context, kind trace.SpanKind, m Message, name string, operation attribute.KeyValue,
	options ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	attributes := []attribute.KeyValue{semconv.MessagingSystemKey.String(cmp.Or(m.System, own)),
		semconv.MessagingOperationName(name), operation}
	for _, a := range []attribute.KeyValue{semconv.MessagingDestinationName(m.Destination),
		semconv.MessagingConsumerGroupName(m.Group), semconv.MessagingMessageID(m.ID)} {
		if a.Value.AsString() != "" {
			attributes = append(attributes, a)
		}
	}
	if m.Destination != "" {
		name += " " + m.Destination
	}
	return t.tracer.Start(ctx, name, append(options, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))...)
}

// contextOf is the trace context that a message brings. It is not valid if there is none.
func contextOf(ctx context.Context, carrier propagation.TextMapCarrier) trace.SpanContext {
	if carrier == nil {
		return trace.SpanContext{}
	}
	alone := trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(alone, carrier))
}

// finish ends a span, with an error if there is one.
func finish(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(errorType(err))
	}
	span.End()
}

// errorType is what a failure is called: of a few names, so that one can count by them.
func errorType(err error) attribute.KeyValue {
	names := map[outbox.Class]string{outbox.ClassPermanent: "permanent", outbox.ClassRetryAfter: "retry_after",
		outbox.ClassUnavailable: "unavailable", outbox.ClassNotAttempted: "not_attempted", outbox.ClassPostponed: "postponed"}
	class, _ := outbox.Classify(err)
	return semconv.ErrorTypeKey.String(cmp.Or(names[class], string(outbox.ReasonOf(err))))
}
