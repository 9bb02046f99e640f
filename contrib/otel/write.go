package outboxotel

import (
	"context"
	"maps"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxrelay/outbox"
)

// Fill puts the trace context of ctx into the metadata of an event, as traceparent and tracestate.
// With Config.Create it is that of a span of its own, of kind PRODUCER. An event that has a
// traceparent keeps it, and gets no span. It is for outbox.WriterConfig.Fill, by itself or called
// by another.
func (t *Tracing) Fill(ctx context.Context, e *outbox.Event) {
	if _, has := e.Metadata["traceparent"]; has {
		return
	}
	if t.create {
		m := Message{Destination: e.Topic}
		if e.ID != uuid.Nil { // one that the writer draws is not known yet
			m.ID = e.ID.String()
		}
		var span trace.Span
		ctx, span = t.start(ctx, trace.SpanKindProducer, m, "create", semconv.MessagingOperationTypeCreate)
		defer span.End()
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if len(carrier) == 0 {
		return
	}
	e.Metadata = maps.Clone(e.Metadata) // the caller's map may be that of other events too
	if e.Metadata == nil {
		e.Metadata = map[string]any{}
	}
	for name, value := range carrier {
		e.Metadata[name] = value
	}
}
