package outboxotel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/outboxrelay/outbox"
	outboxotel "github.com/outboxrelay/outbox/contrib/otel"
	"github.com/outboxrelay/outbox/inbox/group"
	"github.com/outboxrelay/outbox/outboxtest"
)

// recorded is Tracing and what came of it.
type recorded struct {
	*outboxotel.Tracing
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	tracer trace.Tracer // of the application
}

func record(t *testing.T, cfg outboxotel.Config) *recorded {
	t.Helper()
	r := &recorded{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	cfg.TracerProvider, cfg.MeterProvider = provider, sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	r.tracer = provider.Tracer("application")
	var err error
	if r.Tracing, err = outboxotel.New(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

// span is the only one that has ended of a name.
func (r *recorded) span(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans are called %s", len(found), name)
	}
	return found[0]
}

// wantAttributes asks for exactly these, as NAME=VALUE.
func wantAttributes(t *testing.T, got []attribute.KeyValue, want ...string) {
	t.Helper()
	var texts []string
	for _, a := range got {
		texts = append(texts, string(a.Key)+"="+a.Value.String())
	}
	slices.Sort(texts)
	slices.Sort(want)
	if !slices.Equal(texts, want) {
		t.Errorf("attributes\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

const theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestFill(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		create, has, inTrace bool
		want                 string // the traceparent: theirs, the caller's, a created one, none
	}{
		"without a trace":             {want: "none"},
		"of the caller":               {inTrace: true, want: "caller"},
		"created":                     {create: true, inTrace: true, want: "created"},
		"created without a trace":     {create: true, want: "created"},
		"brought, in a trace":         {has: true, inTrace: true, want: "theirs"},
		"brought, and created wanted": {create: true, has: true, inTrace: true, want: "theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := record(t, outboxotel.Config{Create: tt.create})
			ctx, caller := t.Context(), trace.SpanFromContext(t.Context())
			if tt.inTrace {
				ctx, caller = r.tracer.Start(ctx, "POST /orders")
			}
			given := map[string]any{"user_id": "u1"}
			if tt.has {
				given["traceparent"] = theirs
			}
			e := outbox.Event{ID: uuid.New(), Topic: "order.placed", Metadata: given}
			r.Fill(ctx, &e)
			want := any(nil)
			switch tt.want {
			case "theirs":
				want = theirs
			case "caller":
				want = traceparent(caller.SpanContext())
			case "created":
				created := r.span(t, "create order.placed")
				want = traceparent(created.SpanContext())
				if created.SpanKind() != trace.SpanKindProducer ||
					created.Parent().SpanID() != caller.SpanContext().SpanID() {
					t.Errorf("the span is of kind %s, below %s", created.SpanKind(), created.Parent().SpanID())
				}
				wantAttributes(t, created.Attributes(), "messaging.system=outbox", "messaging.operation.name=create",
					"messaging.operation.type=create", "messaging.destination.name=order.placed",
					"messaging.message.id="+e.ID.String())
			}
			if got := e.Metadata["traceparent"]; got != want {
				t.Errorf("traceparent is %v, want %v", got, want)
			}
			if n := len(r.spans.Ended()); tt.want != "created" && n != 0 {
				t.Errorf("%d spans", n)
			}
			if _, changed := given["traceparent"]; changed != tt.has || e.Metadata["user_id"] != "u1" {
				t.Errorf("the caller's metadata are %v, the event's %v", given, e.Metadata)
			}
		})
	}
}

func traceparent(c trace.SpanContext) string {
	return fmt.Sprintf("00-%s-%s-%s", c.TraceID(), c.SpanID(), c.TraceFlags())
}

// deliveries are n events, each in a trace of its own, of two keys in turn.
func deliveries(n int, destinations ...string) (batch []outbox.Delivery) {
	for i := range n {
		parent := fmt.Sprintf("00-%032x-%016x-01", i+1, i+1)
		batch = append(batch, outbox.Delivery{Destination: destinations[i%len(destinations)], Record: &outbox.Record{
			Event: outbox.Event{ID: uuid.New(), Payload: json.RawMessage("1")}, Keyed: true, OrderKey: int64(i % 2),
			WrittenAt: time.Now().Add(-time.Minute), RawMetadata: json.RawMessage(`{"traceparent":"` + parent + `"}`)}})
	}
	return batch
}

// A batch has a span with a link for each of its messages, more than the SDK would keep of itself.
func TestSinkLinks(t *testing.T) {
	t.Setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "1000")
	r := record(t, outboxotel.Config{})
	refuses := errors.New("refused")
	batch := deliveries(300, "orders")
	var seen [][]byte
	s := r.Sink(outbox.SinkFunc(func(ctx context.Context, d outbox.Delivery) error {
		if !trace.SpanFromContext(ctx).IsRecording() {
			t.Error("the sink does not get the span")
		}
		seen = append(seen, d.AppendMessage(nil, outbox.CloudEvent))
		if d.ID == batch[296].ID {
			return outbox.Permanent(refuses)
		}
		return nil
	}), "kafka")
	results := s.Publish(t.Context(), batch)
	if !errors.Is(results[296].Err, refuses) || !errors.Is(results[298].Err, outbox.ErrNotAttempted) ||
		results[299].Err != nil || len(seen) != 299 {
		t.Fatalf("%d were sent, the answers are %v", len(seen), results[295:])
	}
	span := r.span(t, "send orders")
	if span.SpanKind() != trace.SpanKindClient || span.Parent().IsValid() || span.Status().Code != codes.Error {
		t.Errorf("kind %s, below %v, status %v", span.SpanKind(), span.Parent(), span.Status())
	}
	wantAttributes(t, span.Attributes(), "messaging.system=kafka", "messaging.operation.name=send",
		"messaging.operation.type=send", "messaging.destination.name=orders", "messaging.batch.message_count=300",
		"error.type=permanent")
	links := span.Links()
	if len(links) != 300 || span.DroppedLinks() != 0 {
		t.Fatalf("%d links, %d dropped", len(links), span.DroppedLinks())
	}
	for i, link := range links {
		if link.SpanContext.SpanID().String() != fmt.Sprintf("%016x", i+1) {
			t.Fatalf("link %d is to %v", i, link.SpanContext)
		}
	}
	id := func(i int) string { return "messaging.message.id=" + batch[i].ID.String() }
	wantAttributes(t, links[296].Attributes, id(296), "error.type=permanent")
	wantAttributes(t, links[298].Attributes, id(298), "error.type=not_attempted")
	if latency := links[299].Attributes[1]; latency.Key != "outbox.latency_seconds" || latency.Value.AsFloat64() < 60 {
		t.Errorf("link 299 has %v", latency)
	}
	for i := range batch[:296] {
		if !strings.Contains(string(seen[i]), fmt.Sprintf(`"traceparent":"00-%032x-%016x-01"`, i+1, i+1)) {
			t.Fatalf("message %d lost its trace: %s", i, seen[i])
		}
	}
	var got metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	h := got.ScopeMetrics[0].Metrics[0].Data.(metricdata.Histogram[float64]).DataPoints[0]
	if h.Count != 298 || len(h.Exemplars) == 0 {
		t.Fatalf("%d latencies, exemplars %v", h.Count, h.Exemplars)
	}
	if of := fmt.Sprintf("%x", h.Exemplars[0].TraceID); !strings.HasPrefix(of, "00000000") {
		t.Errorf("the exemplar is of trace %s, and of no message", of)
	}
}

// Where a batch goes to several places, each link names its own. A single message is named by the
// span.
func TestSinkNames(t *testing.T) {
	t.Parallel()
	r := record(t, outboxotel.Config{})
	s := r.Sink(outbox.SinkFunc(func(context.Context, outbox.Delivery) error { return nil }), "redis")
	batch := deliveries(2, "a", "b")
	batch[1].RawMetadata, batch[0].Generation = nil, 1
	s.Publish(t.Context(), batch)
	span := r.span(t, "send")
	if len(span.Links()) != 1 {
		t.Fatalf("links %v, want one: the other message has no trace", span.Links())
	}
	wantAttributes(t, span.Links()[0].Attributes, "messaging.message.id="+batch[0].ID.String(),
		"messaging.destination.name=a")
	one := deliveries(1, "c")
	s.Publish(t.Context(), one)
	wantAttributes(t, r.span(t, "send c").Attributes(), "messaging.system=redis", "messaging.operation.name=send",
		"messaging.operation.type=send", "messaging.destination.name=c", "messaging.message.id="+one[0].ID.String())
	if got := s.Publish(t.Context(), nil); len(got) != 0 {
		t.Errorf("an empty batch is answered with %v", got)
	}
}

// able is a sink with an ability.
type able struct{ outbox.SinkFunc }

func (able) Abilities() outbox.Abilities { return outbox.Abilities{TakesCopies: true} }

func TestSinkKeepsAbilities(t *testing.T) {
	t.Parallel()
	r := record(t, outboxotel.Config{})
	if !r.Sink(able{}, "x").Abilities().TakesCopies || r.Sink(able{}.SinkFunc, "x").Abilities().TakesCopies {
		t.Error("the abilities are not the sink's")
	}
}

func TestSinkContract(t *testing.T) {
	t.Parallel()
	r := record(t, outboxotel.Config{})
	outboxtest.SinkSuite(t, outboxtest.SinkFeatures{}, func(*testing.T) outboxtest.SinkHarness {
		channels := map[string]chan outboxtest.Arrived{}
		var number atomic.Int64
		publish := func(_ context.Context, d outbox.Delivery) error {
			to, is := channels[d.Destination]
			if !is {
				return errors.New("no such channel")
			}
			to <- outboxtest.Arrived{Body: d.AppendMessage(nil, outbox.CloudEvent)}
			return nil
		}
		return outboxtest.SinkHarness{Sink: r.Sink(outbox.SinkFunc(publish), "x"), Refusing: "refusing",
			Listen: func(*testing.T) (string, <-chan outboxtest.Arrived) {
				name := fmt.Sprintf("channel %d", number.Add(1))
				channels[name] = make(chan outboxtest.Arrived, 10000) // more than any test sends
				return name, channels[name]
			}}
	})
	if len(r.spans.Ended()) == 0 {
		t.Error("the suite made no span: it ran without the wrapper")
	}
}

// A handler's span has a link to the message's context or is below it, and is ended with the
// outcome.
func TestProcess(t *testing.T) {
	t.Parallel()
	failed := errors.New("no stock")
	for name, handle := range map[string]func(r *recorded) error{
		"message": func(r *recorded) (err error) {
			_, end := r.Process(context.Background(), outboxotel.Message{System: "nats", Destination: "order.placed",
				Group: "billing", ID: "7", Headers: propagation.MapCarrier{"traceparent": theirs}})
			defer func() { end(err) }()
			return failed
		},
		"function": func(r *recorded) error {
			f := r.Func(func(context.Context, outbox.Delivery) error { return failed })
			return f(context.Background(), outbox.Delivery{Destination: "order.placed", Record: &outbox.Record{
				RawMetadata: json.RawMessage(`{"traceparent":"` + theirs + `"}`)}})
		},
		"group": func(r *recorded) error {
			f := outboxotel.Handle(r.Tracing, "billing", func(context.Context, int, group.Message[int]) error {
				return failed
			})
			return f(context.Background(), 0, group.Message[int]{Attempt: 2, Event: outbox.Event{Topic: "order.placed",
				Metadata: map[string]any{"traceparent": theirs}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, parent := range []bool{false, true} {
				r := record(t, outboxotel.Config{Parent: parent})
				if err := handle(r); !errors.Is(err, failed) {
					t.Errorf("the handler's error is %v", err)
				}
				span := r.span(t, "process order.placed")
				from := span.Parent()
				if !parent {
					if from.IsValid() || len(span.Links()) != 1 {
						t.Fatalf("below %v, with links %v", from, span.Links())
					}
					from = span.Links()[0].SpanContext
				}
				if traceparent(from) != theirs || span.SpanKind() != trace.SpanKindConsumer {
					t.Errorf("from %s, of kind %s", traceparent(from), span.SpanKind())
				}
				if span.Status().Code != codes.Error || span.Status().Description != failed.Error() {
					t.Errorf("status %v", span.Status())
				}
			}
		})
	}
}

func TestProcessBatch(t *testing.T) {
	t.Parallel()
	r := record(t, outboxotel.Config{Parent: true})
	f := outboxotel.HandleBatch(r.Tracing, "billing", func(ctx context.Context, _ int, _ []group.Message[int]) error {
		if !trace.SpanFromContext(ctx).IsRecording() {
			t.Error("the handler does not get the span")
		}
		panic("torn")
	})
	e := outbox.Event{ID: uuid.New(), Topic: "order.placed", Metadata: map[string]any{"traceparent": theirs}}
	func() {
		defer func() {
			if recover() != "torn" {
				t.Error("the panic does not pass")
			}
		}()
		_ = f(t.Context(), 0, []group.Message[int]{{Event: e}, {Event: outbox.Event{Topic: "order.placed"}}})
	}()
	span := r.span(t, "process order.placed")
	if len(span.Links()) != 1 || span.Parent().IsValid() || span.Status().Description != "panic: torn" {
		t.Errorf("links %v, below %v, status %v", span.Links(), span.Parent(), span.Status())
	}
	wantAttributes(t, span.Links()[0].Attributes, "messaging.message.id="+e.ID.String())
}

func TestReceive(t *testing.T) {
	t.Parallel()
	r := record(t, outboxotel.Config{})
	_, end := r.Receive(t.Context(), outboxotel.Message{System: "kafka", Destination: "orders", Group: "billing"})
	first := outboxotel.Message{ID: "1", Headers: propagation.MapCarrier{"traceparent": theirs}}
	end(nil, first, outboxotel.Message{ID: "2"})
	span := r.span(t, "receive orders")
	if span.SpanKind() != trace.SpanKindClient || len(span.Links()) != 1 {
		t.Errorf("kind %s, links %v", span.SpanKind(), span.Links())
	}
	wantAttributes(t, span.Attributes(), "messaging.system=kafka", "messaging.operation.name=receive",
		"messaging.operation.type=receive", "messaging.destination.name=orders", "messaging.consumer.group.name=billing",
		"messaging.batch.message_count=2")
}
