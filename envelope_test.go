package outbox

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// cloudEvent is what a subscriber decodes.
type cloudEvent struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         *string         `json:"subject"`
	Time            *time.Time      `json:"time"`
	DataContentType string          `json:"datacontenttype"`
	Sequence        string          `json:"sequence"`
	PartitionKey    *string         `json:"partitionkey"`
	TenantID        *string         `json:"tenantid"`
	SchemaID        *string         `json:"schemaid"`
	SchemaVersion   *int            `json:"schemaversion"`
	Traceparent     *string         `json:"traceparent"`
	Metadata        *string         `json:"metadata"`
	Data            json.RawMessage `json:"data"`
}

// decode refuses attributes that cloudEvent does not know, and anything after the event.
func decode(t *testing.T, message []byte) cloudEvent {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(string(message)))
	d.DisallowUnknownFields()
	var ce cloudEvent
	if err := d.Decode(&ce); err != nil {
		t.Fatalf("decode %s: %v", message, err)
	}
	if d.More() {
		t.Fatalf("something follows the event: %s", message)
	}
	return ce
}

// is compares an attribute that is absent where the field is empty.
func is(got *string, want string) bool {
	if want == "" {
		return got == nil
	}
	return got != nil && *got == want
}

func TestCloudEvent(t *testing.T) {
	id := uuid.MustParse("0190b8a0-1c2d-7e3f-8a4b-5c6d7e8f9aab")
	berlin := time.FixedZone("", 2*3600)
	d := Delivery{Record: &Record{
		Event: Event{
			ID: id, Topic: "order.placed", Source: "shop", AggregateType: "Order", AggregateID: "42", TenantID: "acme",
			SchemaID: "order-v2", SchemaVersion: 2, OccurredAt: time.Date(2024, 7, 1, 12, 0, 0, 123456000, berlin),
			Payload: json.RawMessage(`{"total": 1}`),
		},
		Sequence:    9007199254740993, // above 2^53: the reason why it is a string
		RawMetadata: json.RawMessage(`{"traceparent":"00-0af7-b7ad-01","user_id":"u1"}`),
	}}
	before := []byte("before")
	got := string(CloudEvent(before, &d))
	want := `before{"specversion":"1.0","id":"0190b8a0-1c2d-7e3f-8a4b-5c6d7e8f9aab","source":"shop","type":"order.placed",` +
		`"subject":"Order/42","time":"2024-07-01T10:00:00.123456Z","datacontenttype":"application/json","sequence":"0009007199254740993",` +
		`"partitionkey":"42","tenantid":"acme","schemaid":"order-v2","schemaversion":2,"traceparent":"00-0af7-b7ad-01","metadata":"{\"user_id\":\"u1\"}","data":{"total": 1}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}

	least := Delivery{Record: &Record{Event: Event{Topic: "t", Source: "s", Payload: json.RawMessage("null")}}}
	if text := string(CloudEvent(nil, &least)); strings.Contains(text, "sequence") {
		t.Errorf("a row without a number has a sequence: %s", text)
	}
	ce := decode(t, CloudEvent(nil, &least))
	if ce.Subject != nil || ce.Time != nil || ce.PartitionKey != nil || ce.TenantID != nil || ce.SchemaID != nil ||
		ce.SchemaVersion != nil || ce.Traceparent != nil {
		t.Errorf("attributes without a value: %+v", ce)
	}
}

func TestMetadataTravelsWhole(t *testing.T) {
	for metadata, want := range map[string]string{
		``:     ``,
		`null`: ``,
		`{}`:   ``,
		`{"traceparent":"00-\"\\-","b":1,"a":true,"c":"x"}`: `,"a":true,"b":1,"c":"x","traceparent":"00-\"\\-"`,
		`{"user_id": 7, "trace_id": "t"}`:                   `,"metadata":"{\"trace_id\":\"t\",\"user_id\":7}"`,
		`{"user_id": {"b": 1, "a": 2}}`:                     `,"metadata":"{\"user_id\":{\"b\":1,\"a\":2}}"`,
		// Not attributes: names that are taken, too long or not allowed; values that are no
		// attribute's.
		`{"id":"x"}`:                     `,"metadata":"{\"id\":\"x\"}"`,
		`{"metadata":"x"}`:               `,"metadata":"{\"metadata\":\"x\"}"`,
		`{"Caps":1}`:                     `,"metadata":"{\"Caps\":1}"`,
		`{"":1}`:                         `,"metadata":"{\"\":1}"`,
		`{"abcdefghijklmnopqrstu":1}`:    `,"metadata":"{\"abcdefghijklmnopqrstu\":1}"`,
		`{"a":2147483647}`:               `,"a":2147483647`,
		`{"a":2147483648}`:               `,"metadata":"{\"a\":2147483648}"`,
		`{"a":1.5}`:                      `,"metadata":"{\"a\":1.5}"`,
		`{"a":1e3}`:                      `,"metadata":"{\"a\":1e3}"`,
		`{"a":null}`:                     `,"metadata":"{\"a\":null}"`,
		`{"a":[]}`:                       `,"metadata":"{\"a\":[]}"`,
		`{"a":""}`:                       `,"metadata":"{\"a\":\"\"}"`,
		`{"a":"\n"}`:                     `,"metadata":"{\"a\":\"\\n\"}"`,
		`{"a":"\ufffe"}`:                 `,"metadata":"{\"a\":\"\\ufffe\"}"`,
		`{"traceparent":7}`:              `,"metadata":"{\"traceparent\":7}"`,
		`{"parent":{"traceparent":"x"}}`: `,"metadata":"{\"parent\":{\"traceparent\":\"x\"}}"`,
		`["traceparent"]`:                `,"metadata":"[\"traceparent\"]"`,
		`7`:                              `,"metadata":"7"`,
		`no JSON`:                        ``,
	} {
		d := Delivery{Record: &Record{Event: Event{Payload: json.RawMessage("1")}, RawMetadata: json.RawMessage(metadata)}}
		got := string(CloudEvent(nil, &d))
		got = strings.TrimPrefix(got,
			`{"specversion":"1.0","id":"00000000-0000-0000-0000-000000000000","source":"","type":"","datacontenttype":"application/json"`)
		if got = strings.TrimSuffix(got, `,"data":1}`); got != want {
			t.Errorf("metadata %s:\ngot  %s\nwant %s", metadata, got, want)
		}
	}
}

// Whatever a bounded context is called, the source is a URI-reference, and what is one stays as it
// is.
func TestSourceIsURIReference(t *testing.T) {
	for source, want := range map[string]string{
		"shop": "shop", "orders/v1": "orders/v1", "a-b_c.d~e": "a-b_c.d~e", "urn:shop:1": "urn:shop:1",
		"//host/x":                              "//host/x",
		"https://shop.example:8080/a%20b?c=d#e": "https://shop.example:8080/a%20b?c=d#e",
		"http://[::1]:80/":                      "http://[::1]:80/",
		"Order Service":                         "Order%20Service", "shöp": "sh%C3%B6p", "100%": "100%25", "%zz": "%25zz",
		"1:x": "1%3Ax", ":x": "%3Ax",
		"http://[::1": "http%3A//%5B%3A%3A1", "a[0]": "a%5B0%5D", "http://[::1]/[": "http%3A//%5B%3A%3A1%5D/%5B",
		"a#b#c": "a%23b%23c", "//a b/c": "%2F%2Fa%20b%2Fc", "a\x00": "a%00", "<x>": "%3Cx%3E", "//": "%2F%2F", "#": "%23",
		"": "",
	} {
		if got := uriReference(source); got != want || !isURIReference(got) {
			t.Errorf("%q becomes %q, want %q", source, got, want)
		}
	}
}

// FuzzCloudEvent: whatever the columns hold, the message is valid JSON and gives them back.
func FuzzCloudEvent(f *testing.F) {
	f.Add("shop", "order.placed", "Order", "42", "acme", "s1", `{"traceparent":"00-1"}`, int64(1))
	f.Add("s", "t", "", "", "", "", "", int64(0))
	f.Add(`"`, `\`, "\x00\x1f\x7f", "</script>\u2028", "\xff", "語😀", `{"traceparent":1}`, int64(-1<<63))
	f.Fuzz(func(t *testing.T, source, topic, kind, key, tenant, schema, metadata string, sequence int64) {
		d := Delivery{Record: &Record{
			Event: Event{
				ID: uuid.New(), Source: source, Topic: topic, AggregateType: kind, AggregateID: key, TenantID: tenant,
				SchemaID:      schema,
				SchemaVersion: int(int32(sequence)), OccurredAt: time.UnixMicro(sequence % 1e15).UTC(),
				Payload: json.RawMessage(`{"a":[1]}`),
			},
			Sequence: sequence, RawMetadata: json.RawMessage(metadata),
		}}
		var ce cloudEvent // and attributes of the metadata
		if message := CloudEvent(nil, &d); json.Unmarshal(message, &ce) != nil || !utf8.Valid(message) {
			t.Fatalf("%s", message)
		}
		written := source
		// PostgreSQL holds no invalid UTF-8, but if a column did, each bad byte becomes U+FFFD.
		for _, s := range []*string{&source, &topic, &kind, &key, &tenant, &schema} {
			*s = string([]rune(*s))
		}
		subject := key
		if key != "" && kind != "" {
			subject = kind + "/" + key
		}
		if plain, err := url.PathUnescape(ce.Source); !isURIReference(ce.Source) || err != nil || ce.Source != written &&
			plain != written {
			t.Fatalf("source %q of %q", ce.Source, source)
		}
		if ce.ID != d.ID.String() || ce.Type != topic || !is(ce.Subject, subject) || !is(ce.PartitionKey, key) ||
			!is(ce.TenantID, tenant) || !is(ce.SchemaID, schema) || ce.Time == nil || !ce.Time.Equal(d.OccurredAt) ||
			string(ce.Data) != `{"a":[1]}` {
			t.Fatalf("got %+v of %+v", ce, d.Record)
		}
		if want := fmt.Sprintf("%019d", sequence); sequence <= 0 && ce.Sequence != "" || sequence > 0 && ce.Sequence != want {
			t.Fatalf("sequence %q, want %d", ce.Sequence, sequence)
		}
		if d.SchemaVersion != 0 && (ce.SchemaVersion == nil || *ce.SchemaVersion != d.SchemaVersion) {
			t.Fatalf("schema version %v, want %d", ce.SchemaVersion, d.SchemaVersion)
		}
	})
}
