package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2/event"

	"github.com/outboxrelay/outbox"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// The CloudEvents SDK reads the event that was written, and binary mode has the same attributes
// (SinkSuite asks for all of them) as CloudEvents 1.0, HTTP protocol binding, section 3.1.3.2, has
// it.
func TestCloudEventsSDK(t *testing.T) {
	t.Parallel()
	d := event(t, "acme", 42)
	d.Topic, d.TenantID, d.SchemaVersion = "order.placed", "Größe 100% \"x\"", 3
	d.AggregateType = "Bestellung €"
	d.OccurredAt = time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	d.Payload = json.RawMessage(`{"total":"12 €"}`)
	d.RawMetadata = json.RawMessage(`{"traceparent":"` + traceparent + `","tracestate":"a=1,b=2","user_id":7}`)
	extensions := map[string]string{"tenantid": d.TenantID, "partitionkey": "42", "traceparent": traceparent,
		"metadata": `{"user_id":7}`}
	for _, binary := range []bool{false, true} {
		r := receive(t, nil)
		cfg := local
		cfg.Binary = binary
		s := open(t, newBook(r.endpoint("acme")), cfg)
		wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{d}))
		got := r.requests()[0]
		verified(t, key, got)
		if h := flat(got.header); h["Traceparent"] != traceparent || h["Tracestate"] != "a=1,b=2" ||
			h["User-Agent"] != userAgent {
			t.Errorf("the headers are %v", h)
		}
		if binary {
			for name, want := range extensions {
				if value, err := url.PathUnescape(got.header.Get("ce-" + name)); err != nil || value != want {
					t.Errorf("%s is %q, want %s", name, value, want)
				}
			}
			continue
		}
		var e cloudevents.Event
		if err := errors.Join(json.Unmarshal(got.body, &e), e.Validate()); err != nil {
			t.Fatal(err)
		}
		if e.ID() != d.ID.String() || e.Type() != d.Topic || e.Source() != "orders" || !e.Time().Equal(d.OccurredAt) ||
			e.Subject() != "Bestellung €/42" || e.DataContentType() != "application/json" ||
			string(e.Data()) != string(d.Payload) {
			t.Errorf("the event is %s", e)
		}
		for name, want := range extensions {
			if e.Extensions()[name] != want {
				t.Errorf("%s is %v, want %s", name, e.Extensions()[name], want)
			}
		}
	}
}

// A table's own envelope is the body in structured mode, with its content type; binary mode does
// not use it.
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

// Whatever an event holds, the request can be sent: no line break gets into a header, and the
// signature fits the body.
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
			if name == "Idempotency-Key" && len(values) == 0 {
				continue // it is not sent
			}
			if len(values) != 1 || checkHeader("X", values[0]) != nil {
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
