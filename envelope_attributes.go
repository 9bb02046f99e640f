package outbox

import (
	"bytes"
	"encoding/json"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Content types of messages, for transports that name one.
const (
	contentCloudEvent = "application/cloudevents+json; charset=utf-8"
	contentJSON       = "application/json"
)

// ContentType returns the media type of a message that an Envelope has made: that of a CloudEvent in its structured
// form (CloudEvents 1.0, JSON format), or JSON.
func ContentType(message []byte) string {
	if bytes.HasPrefix(message, []byte(structuredStart)) {
		return contentCloudEvent
	}
	return contentJSON
}

// Attributes returns the attributes that CloudEvent writes, in its order, each as its string form (CloudEvents 1.0,
// section 3.1). They are what a sink sends as headers in binary mode, beside the bare payload as the body. The names
// have no prefix; datacontenttype is among them, for the transport's own header.
func (d *Delivery) Attributes() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		for _, a := range [...]struct{ name, value string }{
			{"specversion", "1.0"},
			{"id", d.ID.String()},
			{"source", uriReference(d.Source)},
			{"type", d.Topic},
			{"subject", d.subject()},
			{"time", d.timeText()},
			{"datacontenttype", contentJSON},
			{"sequence", d.sequenceText()},
			{"partitionkey", d.AggregateID},
			{"tenantid", d.TenantID},
			{"schemaid", d.SchemaID},
			{"schemaversion", d.schemaVersionText()},
		} {
			if a.value != "" && !yield(a.name, a.value) {
				return
			}
		}
		own, rest := splitMetadata(d.RawMetadata)
		for _, name := range slices.Sorted(maps.Keys(own)) {
			if !yield(name, attributeText(own[name])) {
				return
			}
		}
		if rest != "" {
			yield("metadata", rest)
		}
	}
}

// TraceContext returns the members traceparent and tracestate of the metadata (W3C Trace Context), "" for one that is
// not there or is no text.
func (d *Delivery) TraceContext() (parent, state string) {
	var trace struct {
		Parent json.RawMessage `json:"traceparent"`
		State  json.RawMessage `json:"tracestate"`
	}
	if !bytes.Contains(d.RawMetadata, []byte(`"trace`)) || json.Unmarshal(d.RawMetadata, &trace) != nil {
		return "", ""
	}
	text := func(name string, value json.RawMessage) string {
		if len(value) == 0 || !isAttribute(name, value) {
			return ""
		}
		return attributeText(value)
	}
	return text("traceparent", trace.Parent), text("tracestate", trace.State)
}

func (d *Delivery) subject() string {
	if d.AggregateID == "" || d.AggregateType == "" {
		return d.AggregateID
	}
	return d.AggregateType + "/" + d.AggregateID
}

func (d *Delivery) timeText() string {
	if at := d.OccurredAt.UTC(); hasTime(at) {
		return at.Format(time.RFC3339Nano)
	}
	return ""
}

// hasTime tells whether RFC 3339 can write a moment. event_outbox keeps no time but the one in a UUIDv7; and plain SQL
// can write years that RFC 3339 cannot: no time is better than a wrong one.
func hasTime(at time.Time) bool { return !at.IsZero() && at.Year() >= 0 && at.Year() <= 9999 }

func (d *Delivery) sequenceText() string {
	if d.Sequence <= 0 {
		return ""
	}
	return string(appendPadded(nil, d.Sequence))
}

func (d *Delivery) schemaVersionText() string {
	if d.SchemaVersion == 0 {
		return ""
	}
	return strconv.Itoa(d.SchemaVersion)
}

// attributeText is the string form of what isAttribute lets through: a string, a boolean or an integer.
func attributeText(value json.RawMessage) string {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return string(value)
	}
	return s
}

// uriReference returns s if it is a URI-reference (RFC 3986), which the source of a CloudEvent must be. Else it returns
// s with everything percent-encoded that is no letter, digit, or one of - . _ ~ /.
func uriReference(s string) string {
	if isURIReference(s) {
		return s
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if isUnreserved(c) || c == '/' && !strings.HasPrefix(s, "//") { // two slashes would begin a host
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func isURIReference(s string) bool {
	plain := true
	for i := range len(s) {
		plain = plain && isUnreserved(s[i])
	}
	if plain {
		return true // nearly all are
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return false
			}
		case !isUnreserved(c) && strings.IndexByte(":/?#[]@!$&'()*+,;=", c) < 0:
			return false
		}
	}
	u, err := url.Parse(s)
	// Of two slashes and nothing after them decoders make nothing.
	if err != nil || strings.Count(s, "#") > 1 || u.String() == "" {
		return false
	}
	// Brackets are for an address in the host, and nowhere else.
	return strings.Count(s, "[")+strings.Count(s, "]") == strings.Count(u.Host, "[")+strings.Count(u.Host, "]")
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}
