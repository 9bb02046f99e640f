package redisstream

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

// An independent library reads the CloudEvent out of an entry, in both modes, with any text in its
// attributes.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	makeStreams(t, admin, "s")
	for mode, sink := range map[string]sink.Sink{
		"structured": openURL(t, "redis+stream://"+server.Addr()+"?cloudevents=structured", Config{}),
		"binary":     openURL(t, "redis+stream://"+server.Addr()+"?cloudevents=binary", Config{}),
	} {
		for n, text := range []string{"42", "a b", "é €", `"{}\`, "a%20b=c;d", strings.Repeat("x", 128), "𝄞"} {
			d := event(t, "s", n)
			d.AggregateID, d.TenantID, d.SchemaID, d.Generation = text, text, "order.v1", 0
			d.Sequence, d.SchemaVersion = int64(n+1), 2
			d.RawMetadata = json.RawMessage(
				`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=b","nested":{"a":[1]}}`)
			deliver(t, sink, d)
			last, err := admin.XRevRangeN(t.Context(), "s", "+", "-", 1).Result()
			if err != nil {
				t.Fatal(err)
			}
			e, err := decode(last[0].Values)
			if err != nil {
				t.Fatalf("%s, %q: %v", mode, text, err)
			}
			if e.ID() != d.ID.String() || e.Type() != d.Topic || e.Subject() != "Order/"+text || e.Source() != "orders" ||
				e.Extensions()["tenantid"] != text || !e.Time().Equal(d.OccurredAt) ||
				!bytes.Equal(bytes.TrimSpace(e.Data()), d.Payload) {
				t.Errorf("%s, %q: got %s", mode, text, e)
			}
			for name, want := range map[string]string{
				"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b",
			} {
				if last[0].Values[name] != want || e.Extensions()[name] != want {
					t.Errorf("%s: %s is %v and %v", mode, name, last[0].Values[name], e.Extensions()[name])
				}
			}
		}
	}
}

// What Watermill's own subscriber makes of it is tested in examples/readers.
func TestWatermill(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	s := openURL(t, "redis+stream://"+server.Addr()+"?create=true&cloudevents=watermill", Config{})
	d := event(t, "s", 1)
	d.RawMetadata = json.RawMessage(`{"correlation_id":"c-1"}`)
	deliver(t, s, d)
	last, err := admin.XRevRangeN(t.Context(), "s", "+", "-", 1).Result()
	if err != nil {
		t.Fatal(err)
	}
	fields := last[0].Values
	metadata, _ := fields["metadata"].(string)
	if len(fields) != 3 || fields["_watermill_message_uuid"] != d.ID.String() || fields["payload"] != string(d.Payload) ||
		!strings.HasPrefix(metadata, "\xdf") || !strings.Contains(metadata, "correlation_id\xdb\x00\x00\x00\x03c-1") {
		t.Errorf("the entry is %q", fields)
	}
}

// decode makes a CloudEvent of the fields of an entry as a consumer would.
func decode(fields map[string]any) (*cloudevents.Event, error) {
	if text, structured := fields[eventField]; structured {
		e := &cloudevents.Event{}
		if err := json.Unmarshal([]byte(text.(string)), e); err != nil {
			return nil, err
		}
		return e, e.Validate()
	}
	e := cloudevents.New(fields["ce_specversion"].(string))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		attribute, ok := strings.CutPrefix(name, attributePrefix)
		if !ok || attribute == "specversion" {
			continue
		}
		if err := set(&e, attribute, fields[name].(string)); err != nil {
			return nil, err
		}
	}
	if err := e.SetData(e.DataContentType(), []byte(fields[dataField].(string))); err != nil {
		return nil, err
	}
	return &e, e.Validate()
}

func set(e *cloudevents.Event, attribute, value string) error {
	switch attribute {
	case "id":
		return e.Context.SetID(value)
	case "source":
		return e.Context.SetSource(value)
	case "type":
		return e.Context.SetType(value)
	case "subject":
		return e.Context.SetSubject(value)
	case "datacontenttype":
		return e.Context.SetDataContentType(value)
	case "time":
		at, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return err
		}
		return e.Context.SetTime(at)
	}
	return e.Context.SetExtension(attribute, value)
}

// A table's own envelope makes the message in structured mode and does not matter in binary mode.
func TestEnvelopes(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	makeStreams(t, admin, "s")
	for binary, want := range map[bool][]string{false: {"event"}, true: {"ce_datacontenttype", "ce_id", "ce_partitionkey",
		"ce_source", "ce_specversion", "ce_subject", "ce_tenantid", "ce_time", "ce_type", "data"}} {
		d := event(t, "s", 1)
		d.Envelope = outbox.PayloadOnly
		deliver(t, openURL(t, "redis+stream://"+server.Addr(), Config{Binary: binary}), d)
		last, err := admin.XRevRangeN(t.Context(), "s", "+", "-", 1).Result()
		if err != nil {
			t.Fatal(err)
		}
		fields := last[0].Values
		got := slices.Sorted(maps.Keys(fields))
		if !slices.Equal(got, want) || fields[want[len(want)-1]] != string(d.Payload) {
			t.Errorf("binary %t: the entry is %v", binary, fields)
		}
	}
}

// A message arrives as it is, whatever its first byte says to the script, and also beside the
// context of a trace.
func TestMessagesArriveByteByByte(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	makeStreams(t, admin, "s")
	sink := openURL(t, "redis+stream://"+server.Addr(), Config{})
	for _, trace := range []string{"", `{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`} {
		for n, message := range []string{"", "{}", "\xdd", "\xdd\x00\x00\x00\x02", "\xdc\x00\x01\xa1a", "\x00\xff"} {
			d := event(t, "s", n)
			d.RawMetadata = json.RawMessage(trace)
			d.Envelope = func(dst []byte, _ *outbox.Delivery) []byte { return append(dst, message...) }
			deliver(t, sink, d)
			last, err := admin.XRevRangeN(t.Context(), "s", "+", "-", 1).Result()
			if err != nil {
				t.Fatal(err)
			}
			_, traced := last[0].Values["traceparent"]
			if got := last[0].Values[eventField]; got != message || traced != (trace != "") {
				t.Errorf("message %q, metadata %s: the entry is %q", message, trace, last[0].Values)
			}
		}
	}
}
