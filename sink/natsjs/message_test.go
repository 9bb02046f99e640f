package natsjs

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// The Go SDK of CloudEvents reads both modes as the same event, whatever is in the attributes, and
// a consumer that is instrumented finds the trace.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	server := testenv.NATSServer(t, testenv.NATSConfig{NoSync: true})
	js := admin(t, server.URL())
	stream(t, js, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.*"}})
	d := newEvent(t, "s.x", 1)
	d.AggregateID = "4 2 % \"ü€\" 日本"
	d.TenantID = "acme & söhne"
	d.RawMetadata = json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"tracestate":"a=1, b=2", "region": "eu\r\nNats-Rollup: all", "retry": true, "shard": -3}`)
	d.Payload = json.RawMessage(`{"total": "12 €"}`)
	decoded := map[string]event.Event{}
	for subject, query := range map[string]string{"s.structured": "", "s.binary": "?cloudevents=binary"} {
		d.Destination = subject
		deliver(t, openURL(t, server.URL()+query, Config{}), d)
		m := stored(t, js, "S", subject, 1)[0]
		e := event.New()
		if query == "" {
			if got := m.Header.Get("content-type"); got != "application/cloudevents+json; charset=utf-8" {
				t.Errorf("content type %q", got)
			}
			if err := json.Unmarshal(m.Data, &e); err != nil {
				t.Fatal(err)
			}
		} else {
			fromHeaders(t, &e, m.Header)
			if err := e.SetData(e.DataContentType(), m.Data); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Validate(); err != nil {
			t.Errorf("%s: %v", subject, err)
		}
		decoded[subject] = e
		for name, want := range map[string]string{
			"ce-id": d.ID.String(), "Nats-Msg-Id": messageID(&d), "tracestate": "a=1, b=2", "Nats-Rollup": "",
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		} {
			if got := m.Header.Get(name); got != want {
				t.Errorf("%s: header %s is %q, want %q", subject, name, got, want)
			}
		}
	}
	one, other := decoded["s.structured"], decoded["s.binary"]
	if one.Context.String() != other.Context.String() || string(one.Data()) != string(other.Data()) ||
		one.Subject() != "Order/"+d.AggregateID {
		t.Errorf("structured:\n%s\nbinary:\n%s", one, other)
	}
}

// fromHeaders reads the attributes as section 3.1.3 of the HTTP binding has them, to which the NATS
// binding refers.
func fromHeaders(t *testing.T, e *event.Event, header nats.Header) {
	t.Helper()
	for name, values := range header {
		name, ok := strings.CutPrefix(name, "ce-")
		if !ok {
			continue
		}
		value, err := url.PathUnescape(values[0])
		if err != nil {
			t.Fatal(err)
		}
		switch name {
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
		case "datacontenttype":
			e.SetDataContentType(value)
		case "time":
			at, err := time.Parse(time.RFC3339Nano, value)
			if err != nil {
				t.Fatal(err)
			}
			e.SetTime(at)
		default:
			e.SetExtension(name, value)
		}
	}
}

func TestCheckSubject(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"a", "a.b", "orders-1.placed_x", "größe.日本", "a$b", "_INBOXES.a",
		strings.Repeat("x", maxSubject)} {
		if err := checkSubject(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for bad, says := range map[string]string{
		"": "empty", "*": "wildcard", "a.*.b": "wildcard", "a.>": "wildcard", "a*": "wildcard", "a b": "space",
		"a\tb":         "space",
		"a\r\nPUB x 0": "control", "a\x00": "control", "a\x7f": "control", ".a": "token", "a.": "token", "a..b": "token",
		".":                       "token",
		"$JS.API.STREAM.DELETE.S": "itself", "$SYS.REQ": "itself", "_INBOX.a": "itself", "_INBOX": "itself", "a\xff": "UTF-8",
		strings.Repeat("x", maxSubject+1): "1024",
	} {
		if err := checkSubject(bad); err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 300 {
			t.Errorf("%q: got %v, want %q", bad, err, says)
		}
	}
}

// What passes is a subject to the server, and is one subject.
func FuzzCheckSubject(f *testing.F) {
	for _, seed := range []string{"a.b", "a..b", "$JS.x", "a\r\n", "*", "a\u00a0b", "\ufffd"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		if checkSubject(subject) == nil &&
			(!server.IsValidPublishSubject(subject) || strings.ContainsAny(subject, " \t\r\n\x00")) {
			t.Errorf("%q passes, and the server says no", subject)
		}
	})
}
