// Package outboxotel tells OpenTelemetry what becomes of an event: a span where it is written, one
// for each batch that is sent, one where it is handled, and how long it has waited in its table.
//
// Guaranteed: the trace context that an event brings is what its receivers get. A span of a sink
// has links to the contexts of its messages and becomes the parent of none. What a wrapped Sink or
// handler answers, and its Abilities, are passed on as they are.
//
// Not guaranteed: that a span is exported, which is the TracerProvider's. A create span tells of an
// event that exists only if its transaction commits. Names and attributes are those of
// OpenTelemetry's conventions for messaging, which are in development.
package outboxotel
