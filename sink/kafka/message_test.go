package kafka

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding/spec"
	cloudevents "github.com/cloudevents/sdk-go/v2/event"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/cloudevent"
)

// What CloudEvents' own SDK makes of a record, in both modes, is the event.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	client := admin(t, cluster.ListenAddrs())
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	var decoded []cloudevents.Event
	topic := newTopic(t, client, 1)
	d := event(t, topic, "Ärger/42")
	d.OccurredAt = d.OccurredAt.Truncate(time.Microsecond)
	d.Payload = json.RawMessage(`{"total":"12 €"}`)
	d.RawMetadata = json.RawMessage(`{"traceparent":"` + parent + `","tracestate":"a=b","user_id":7,"plan":"gold"}`)
	r := read(t, cluster.ListenAddrs(), topic)
	for _, mode := range []string{"structured", "binary"} {
		deliver(t, openURL(t, urlOf(cluster)+"?cloudevents="+mode, Config{}), d)
		record := r.next()
		headers := headersOf(record)
		if headers["traceparent"] != parent || headers["tracestate"] != "a=b" || string(record.Key) != "Ärger/42" {
			t.Errorf("%s: key %q, headers %q", mode, record.Key, headers)
		}
		decoded = append(decoded, decode(t, record))
	}
	for i, e := range decoded {
		if err := e.Validate(); err != nil {
			t.Error(err)
		}
		if e.ID() != d.ID.String() || e.Source() != "orders" || e.Type() != "order.placed" ||
			e.Subject() != "Order/Ärger/42" ||
			!e.Time().Equal(d.OccurredAt) || string(e.Data()) != string(d.Payload) || e.DataContentType() != "application/json" {
			t.Errorf("%d: decoded %s", i, e)
		}
	}
	if a, b := decoded[0].Extensions(), decoded[1].Extensions(); !maps.Equal(a, b) || a["plan"] != "gold" ||
		a["traceparent"] != parent || a["partitionkey"] != "Ärger/42" {
		t.Errorf("extensions are %v in structured mode, %v in binary mode", a, b)
	}
}

func headersOf(r *kgo.Record) map[string]string {
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	return headers
}

// decode reads a record as the Kafka protocol binding says: the content type tells the mode.
func decode(t *testing.T, r *kgo.Record) (e cloudevents.Event) {
	t.Helper()
	headers := headersOf(r)
	if strings.HasPrefix(headers[cloudevent.ContentType], "application/cloudevents") {
		if err := json.Unmarshal(r.Value, &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	versions := spec.WithPrefix(attributePrefix)
	version := versions.Version(headers[versions.PrefixedSpecVersionName()])
	if version == nil {
		t.Fatalf("no version in the headers %q", headers)
	}
	e.SetSpecVersion(version.String())
	e.SetDataContentType(headers[cloudevent.ContentType])
	for name, value := range headers {
		bare, isAttribute := strings.CutPrefix(name, attributePrefix)
		attribute := version.Attribute(name)
		switch {
		case !isAttribute || attribute != nil && attribute.Kind() == spec.SpecVersion:
		case attribute == nil:
			e.SetExtension(bare, value)
		default:
			if err := attribute.Set(e.Context, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.DataEncoded = r.Value
	return e
}

// topicName is what the brokers check (org.apache.kafka.common.internals.Topic).
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func FuzzTopic(f *testing.F) {
	for _, name := range append(slices.Clone(forbidden), "orders", "a.b_c-D9", "", "a\x00", strings.Repeat("y", 249)) {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		valid := topicName.MatchString(name) && name != "." && name != ".."
		if err := checkTopic(name); (err == nil) != valid {
			t.Errorf("%q: got %v", name, err)
		}
	})
}

// Whatever is in an event, its record is no larger than sizeOf says, and its headers are what
// Attributes are.
func FuzzRecord(f *testing.F) {
	f.Add("42", "order.placed", "acme", `{"a":"b\r\nc"}`)
	f.Add("", "ü\r\nce_id: x", "\x00", `{"plan":"gold","n":7}`)
	s, err := New(Config{Binary: true})
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	f.Fuzz(func(t *testing.T, key, topic, tenant, metadata string) {
		d := event(t, "orders", key)
		d.Topic, d.TenantID, d.RawMetadata = topic, tenant, json.RawMessage(metadata)
		r, err := s.record(&d)
		if err != nil {
			t.Fatal(err)
		}
		headers := headersOf(r)
		for name, value := range d.Attributes() {
			if name == "datacontenttype" {
				name = cloudevent.ContentType
			} else {
				name = attributePrefix + name
			}
			if headers[name] != value {
				t.Errorf("header %s is %q, want %q", name, headers[name], value)
			}
		}
		if (key == "") != (r.Key == nil) || r.Value == nil {
			t.Errorf("key %q, value %q", r.Key, r.Value)
		}
	})
}

// A payload that fits by sizeOf fits the client's batch.
func TestLargestMessage(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t)
	topic := newTopic(t, admin(t, cluster.ListenAddrs()), 1)
	s := openURL(t, urlOf(cluster)+"?max_message_bytes=20000", Config{Envelope: outbox.PayloadOnly})
	fits, refused := 0, 0
	for size := 19_700; size < 20_010; size += 7 {
		d := event(t, topic, "1")
		d.Payload = json.RawMessage(`"` + strings.Repeat("x", size-2) + `"`)
		switch err := s.Publish(t.Context(), []outbox.Delivery{d})[0].Err; {
		case err == nil:
			fits++
		case strings.Contains(err.Error(), "max_message_bytes"):
			refused++
		default:
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if fits == 0 || refused == 0 {
		t.Errorf("%d fit, %d were refused", fits, refused)
	}
}

// What a batch is compressed with is what the URL says; by default every client can read it.
// Clients of others read them in examples/readers.
func TestCompression(t *testing.T) {
	t.Parallel()
	cluster := newCluster(t, kfake.SeedTopics(1, "orders"))
	client := admin(t, cluster.ListenAddrs(), kgo.ConsumeTopics("orders"))
	for _, tt := range []struct {
		query string
		cfg   Config
		codec uint8 // Kafka protocol guide, "Record Batch"
	}{
		{"", Config{}, 0}, {"?compression=none", Config{Compression: "zstd"}, 0}, {"?compression=gzip", Config{}, 1},
		{"?compression=snappy", Config{}, 2}, {"?compression=lz4", Config{}, 3}, {"", Config{Compression: "zstd"}, 4},
	} {
		d := event(t, "orders", "1")
		d.Payload = []byte(`"` + strings.Repeat("x", 2000) + `"`)
		deliver(t, openURL(t, urlOf(cluster)+tt.query, tt.cfg), d)
		got := client.PollFetches(t.Context()).Records()
		if len(got) != 1 || got[0].Attrs.CompressionType() != tt.codec {
			t.Errorf("%q: %d records, codec %d, want %d", tt.query, len(got), got[0].Attrs.CompressionType(), tt.codec)
		}
	}
}
