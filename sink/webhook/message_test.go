package webhook

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/outboxrelay/outbox"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The CloudEvents SDK reads both modes as the event that was written.
func TestCloudEventsSDK(t *testing.T) {
	t.Parallel()
	for _, binary := range []bool{false, true} {
		r := receive(t, nil)
		cfg := local
		cfg.Binary = binary
		s := open(t, newBook(r.endpoint("acme")), cfg)
		d := event(t, "acme", 42)
		d.Topic, d.TenantID, d.SchemaVersion = "order.placed", "Größe 100% \"x\"", 3
		d.AggregateType = "Bestellung €"
		d.OccurredAt = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
		d.Payload = json.RawMessage(`{"total":"12 €"}`)
		d.RawMetadata = json.RawMessage(`{"traceparent":"` + traceparent + `","tracestate":"a=1,b=2","user_id":7}`)
		wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{d}))
		got := r.requests()[0]
		verified(t, key, got)

		e := decode(t, got, binary)
		if err := e.Validate(); err != nil {
			t.Error(err)
		}
		if e.ID() != d.ID.String() || e.Type() != d.Topic || e.Source() != "orders" || !e.Time().Equal(d.OccurredAt) ||
			e.Subject() != "Bestellung €/42" || e.DataContentType() != "application/json" {
			t.Errorf("binary %v: the event is %s", binary, e)
		}
		for name, want := range map[string]string{"tenantid": d.TenantID, "partitionkey": "42", "traceparent": traceparent,
			"metadata": `{"user_id":7}`} {
			if e.Extensions()[name] != want {
				t.Errorf("binary %v: %s is %v, want %s", binary, name, e.Extensions()[name], want)
			}
		}
		var data map[string]string
		if err := json.Unmarshal(e.Data(), &data); err != nil || data["total"] != "12 €" {
			t.Errorf("binary %v: the data is %s: %v", binary, e.Data(), err)
		}
		if got.header.Get("traceparent") != traceparent || got.header.Get("tracestate") != "a=1,b=2" {
			t.Errorf("the trace is %q, %q", got.header.Get("traceparent"), got.header.Get("tracestate"))
		}
		if got.header.Get("User-Agent") != userAgent {
			t.Errorf("the user agent is %q", got.header.Get("User-Agent"))
		}
	}
}

// decode reads an event with the SDK. Its HTTP binding needs a logger that is a module of its own, so the headers are
// read here (CloudEvents 1.0, HTTP protocol binding, section 3.1.3.2).
func decode(t *testing.T, got received, binary bool) cloudevents.Event {
	t.Helper()
	var e cloudevents.Event
	if !binary {
		if err := json.Unmarshal(got.body, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	e = cloudevents.New()
	for name := range got.header {
		attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !ok {
			continue
		}
		value, err := url.PathUnescape(got.header.Get(name))
		if err != nil {
			t.Fatal(err)
		}
		switch attribute {
		case "specversion":
			e.SetSpecVersion(value)
		case "id":
			e.SetID(value)
		case "source":
			e.SetSource(value)
		case "type":
			e.SetType(value)
		case "subject":
			e.SetSubject(value)
		case "time":
			at, err := time.Parse(time.RFC3339Nano, value)
			if err != nil {
				t.Fatal(err)
			}
			e.SetTime(at)
		default:
			e.SetExtension(attribute, value)
		}
	}
	if err := e.SetData(got.header.Get("Content-Type"), got.body); err != nil {
		t.Fatal(err)
	}
	return e
}

// A table's own envelope is the body in structured mode, with its content type; binary mode does not use it.
func TestEnvelopes(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	s := open(t, newBook(r.endpoint("acme")), local)
	d := event(t, "acme", 1)
	d.Envelope = outbox.PayloadOnly
	wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{d, event(t, "acme", 1)}))
	got := r.requests()
	if string(got[0].body) != string(d.Payload) || got[0].header.Get("Content-Type") != "application/json" {
		t.Errorf("%s: %s", got[0].header.Get("Content-Type"), got[0].body)
	}
	if !strings.HasPrefix(got[1].header.Get("Content-Type"), "application/cloudevents+json") {
		t.Errorf("a CloudEvent has the type %s", got[1].header.Get("Content-Type"))
	}
}

// The endpoint's own headers are sent; those of the sink cannot be replaced.
func TestHeaders(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	e := r.endpoint("acme")
	e.Headers = map[string]Secret{"Authorization": "Bearer x", "X-Kind": "Größe"}
	s := open(t, newBook(e), local)
	wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{event(t, "acme", 1)}))
	if h := r.requests()[0].header; h.Get("Authorization") != "Bearer x" || h.Get("X-Kind") != "Größe" {
		t.Errorf("the headers are %v", h)
	}
	for _, name := range []string{"", "a b", "a:b", "a\r\nb", "host", "WEBHOOK-ID", "ce-id", "traceparent",
		"content-length", "idempotency-key", "x-idempotency-key", "User-agent"} {
		if checkHeader(name, "x") == nil {
			t.Errorf("header %q is taken", name)
		}
	}
}

// Whatever an event holds, the request can be sent: no line break gets into a header, and the signature fits the body.
func FuzzRequest(f *testing.F) {
	f.Add("order.placed", "Order", "42", "acme", `{"traceparent":"a\r\nX-Bad: 1","a":"b\nc"}`, false)
	f.Add("a\r\nb", "\x00", "é€😀", "%22", `{}`, true)
	s, err := New(List{}, local)
	if err != nil {
		f.Fatal(err)
	}
	binaryCfg := local
	binaryCfg.Binary = true
	inBinary, err := New(List{}, binaryCfg)
	if err != nil {
		f.Fatal(err)
	}
	to, err := newTarget(Endpoint{Name: "a", URL: "https://a.example", Secrets: []Secret{key}}, local)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, topic, kind, id, tenant, metadata string, binary bool) {
		d := event(t, "a", 1)
		d.Topic, d.AggregateType, d.AggregateID, d.TenantID = topic, kind, id, tenant
		d.RawMetadata = json.RawMessage(metadata)
		sink := s
		if binary {
			sink = inBinary
		}
		req, err := sink.request(t.Context(), to, &d, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for name, values := range req.Header {
			if checkHeader("X", values[0]) != nil || len(values) != 1 {
				t.Errorf("header %s is %q", name, values)
			}
		}
		var body bytes.Buffer
		if _, err := body.ReadFrom(req.Body); err != nil {
			t.Fatal(err)
		}
		verified(t, key, received{header: req.Header, body: body.Bytes()})
	})
}
