package outbox

import (
	"encoding/json"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"
)

// TestAttributes compares the attributes with those of the structured form, which other tests hold
// to the standard.
func TestAttributes(t *testing.T) {
	full := Event{
		ID: uuid.MustParse("0190b8a0-1c2d-7e3f-8a4b-5c6d7e8f9aab"), Topic: "order.placed", Source: "my shop",
		AggregateType: "Order", AggregateID: `4"2`, TenantID: "acme", SchemaID: "order-v2", SchemaVersion: 2,
		OccurredAt: time.Date(2024, 7, 1, 12, 0, 0, 123456000, time.UTC), Payload: json.RawMessage(`{"total": 1}`),
	}
	least := Event{ID: full.ID, Topic: "t", Source: "s", Payload: json.RawMessage(`null`)}
	idOnly := full
	idOnly.AggregateType = ""
	early := full
	early.OccurredAt = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, d := range map[string]Delivery{
		"full": {Record: &Record{Event: full, Sequence: 9007199254740993, RawMetadata: json.RawMessage(
			`{"traceparent":"00-0af7-b7ad-01","n":7,"yes":true,"user_id":"u 1","none":null}`)}},
		"least":          {Record: &Record{Event: least}},
		"id only":        {Record: &Record{Event: idOnly, RawMetadata: json.RawMessage(`{}`)}},
		"early":          {Record: &Record{Event: early, RawMetadata: json.RawMessage(`[1, 2]`)}},
		"text, no JSON":  {Record: &Record{Event: least, RawMetadata: json.RawMessage(`oops`)}},
		"trace, no text": {Record: &Record{Event: least, RawMetadata: json.RawMessage(`{"traceparent":{"a":1}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			var structured map[string]any
			if err := json.Unmarshal(CloudEvent(nil, &d), &structured); err != nil {
				t.Fatal(err)
			}
			delete(structured, "data")
			want := map[string]string{}
			for name, value := range structured {
				want[name] = fmt.Sprint(value)
			}
			got := maps.Collect(d.Attributes())
			if !maps.Equal(got, want) {
				t.Errorf("attributes are %v\nthe structured form has %v", got, want)
			}
			if parent, state := d.TraceContext(); parent != want["traceparent"] || state != want["tracestate"] {
				t.Errorf("trace context is %q, %q, want that of %v", parent, state, want)
			}
			for range d.Attributes() {
				break // stopping early is allowed
			}
		})
	}
}

func TestContentType(t *testing.T) {
	d := Delivery{Record: &Record{Event: Event{Topic: "t", Source: "s", Payload: json.RawMessage(`{"a": 1}`)}}}
	for want, envelope := range map[string]Envelope{
		"application/cloudevents+json; charset=utf-8": CloudEvent, "application/json": PayloadOnly,
	} {
		if got := ContentType(envelope(nil, &d)); got != want {
			t.Errorf("content type is %q, want %q", got, want)
		}
	}
}
