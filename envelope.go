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
	"unicode"
	"unicode/utf8"
)

// Envelope appends the message for a delivery to dst and returns it: what subscribers receive.
type Envelope func(dst []byte, d *Delivery) []byte

// PayloadOnly is the bare payload, as FR-005's sketch publishes it: a subscriber can neither resume
// nor recognise a copy.
func PayloadOnly(dst []byte, d *Delivery) []byte { return append(dst, d.Payload...) }

// structuredStart is what every message of CloudEvent begins with.
const structuredStart = `{"specversion":`

// CloudEvent is the structured JSON form of CloudEvents 1.0. id is the event id, source the bounded
// context (a URI-reference; what is none is percent-encoded). type is the topic, subject the
// aggregate ("Order/42", or the id alone), time the moment it occurred if that is known.
// Extensions: sequence (if the row has a number), partitionkey (the ordering key), tenantid,
// schemaid, schemaversion (if the table has one), and the metadata. sequence is 19 decimal digits,
// so that text sorts as numbers do.
//
// Metadata travels whole. A member becomes an extension attribute of its own name where CloudEvents
// allows it. The name has 1 to 20 lower-case letters and digits and means nothing else. The value
// is a boolean, an integer of 32 bits, or a string without control characters. The others are one
// attribute, metadata: a string that holds them as a JSON object.
//
// It is written by hand because the generic encoder was the largest part of the relay's CPU; the
// tests decode it with encoding/json.
func CloudEvent(dst []byte, d *Delivery) []byte {
	dst = append(dst, structuredStart+`"1.0","id":"`...)
	dst = appendUUID(dst, d.ID)
	dst = append(dst, `","source":`...)
	dst = appendString(dst, uriReference(d.Source))
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, d.Topic)
	if d.AggregateID != "" {
		dst = append(dst, `,"subject":`...)
		if d.AggregateType == "" {
			dst = appendString(dst, d.AggregateID)
		} else {
			dst = appendString(dst, d.AggregateType)
			dst = append(dst[:len(dst)-1], '/')
			at := len(dst)
			dst = appendString(dst, d.AggregateID)
			dst = append(dst[:at], dst[at+1:]...) // the two strings become one: drop the opening quote
		}
	}
	if at := d.OccurredAt.UTC(); hasTime(at) {
		dst = append(dst, `,"time":"`...)
		dst = at.AppendFormat(dst, time.RFC3339Nano)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"datacontenttype":"application/json"`...)
	if d.Sequence > 0 {
		dst = append(dst, `,"sequence":"`...)
		dst = appendPadded(dst, d.Sequence)
		dst = append(dst, '"')
	}
	if d.AggregateID != "" {
		dst = append(dst, `,"partitionkey":`...)
		dst = appendString(dst, d.AggregateID)
	}
	if d.TenantID != "" {
		dst = append(dst, `,"tenantid":`...)
		dst = appendString(dst, d.TenantID)
	}
	if d.SchemaID != "" {
		dst = append(dst, `,"schemaid":`...)
		dst = appendString(dst, d.SchemaID)
	}
	if d.SchemaVersion != 0 {
		dst = append(dst, `,"schemaversion":`...)
		dst = strconv.AppendInt(dst, int64(d.SchemaVersion), 10)
	}
	dst = appendMetadata(dst, d.RawMetadata)
	dst = append(dst, `,"data":`...)
	dst = append(dst, d.Payload...)
	return append(dst, '}')
}

// appendPadded appends n, which is positive, with as many digits as the largest has: the sequence
// extension demands values whose order is that of their text.
func appendPadded(dst []byte, n int64) []byte {
	const digits = 19
	var text [digits]byte
	for i := digits - 1; i >= 0; i-- {
		text[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, text[:]...)
}

func appendUUID(dst []byte, id [16]byte) []byte {
	const digits = "0123456789abcdef"
	for i, b := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return dst
}

// appendString appends s as a JSON string. Anything but plain ASCII goes the standard library's
// way.
func appendString(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(dst, `""`...) // a string always marshals
			}
			return append(dst, quoted...)
		}
	}
	dst = append(dst, '"')
	dst = append(dst, s...)
	return append(dst, '"')
}

// Content types of messages, for transports that name one.
const (
	contentCloudEvent = "application/cloudevents+json; charset=utf-8"
	contentJSON       = "application/json"
)

// ContentType returns the media type of a message that an Envelope has made: that of a CloudEvent
// in its structured form (CloudEvents 1.0, JSON format), or JSON.
func ContentType(message []byte) string {
	if bytes.HasPrefix(message, []byte(structuredStart)) {
		return contentCloudEvent
	}
	return contentJSON
}

// Attributes returns the attributes that CloudEvent writes, in its order, each as its string form
// (CloudEvents 1.0, section 3.1). They are what a sink sends as headers in binary mode, beside the
// bare payload as the body. The names have no prefix; datacontenttype is among them, for the
// transport's own header.
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

// TraceContext returns the members traceparent and tracestate of the metadata (W3C Trace Context),
// "" for one that is not there or is no text.
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

// hasTime tells whether RFC 3339 can write a moment. event_outbox keeps no time but the one in a
// UUIDv7; and plain SQL can write years that RFC 3339 cannot: no time is better than a wrong one.
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

// attributeText is the string form of what isAttribute lets through: a string, a boolean or an
// integer.
func attributeText(value json.RawMessage) string {
	var s string
	if value[0] != '"' || json.Unmarshal(value, &s) != nil {
		return string(value)
	}
	return s
}

// uriReference returns s if it is a URI-reference (RFC 3986), which the source of a CloudEvent must
// be. Else it returns s with everything percent-encoded that is no letter, digit, or one of - . _ ~
// /.
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

// taken are the names that members of the metadata cannot have as attributes. They are those of
// CloudEvents and of its JSON form, the extensions that CloudEvent sends itself, and what an
// attribute would hide in the JavaScript SDK.
var taken = map[string]bool{
	"specversion": true, "id": true, "source": true, "type": true, "subject": true, "time": true,
	"datacontenttype": true, "dataschema": true, "data": true,
	"sequence": true, "sequencetype": true, "partitionkey": true,
	"tenantid": true, "schemaid": true, "schemaversion": true, "metadata": true,
	"constructor": true, "validate": true,
}

// appendMetadata appends the members of the metadata as attributes, in the order of their names.
func appendMetadata(dst []byte, metadata json.RawMessage) []byte {
	own, rest := splitMetadata(metadata)
	for _, name := range slices.Sorted(maps.Keys(own)) {
		dst = append(dst, `,"`...)
		dst = append(dst, name...)
		dst = append(dst, `":`...)
		dst = append(dst, own[name]...)
	}
	if rest == "" {
		return dst
	}
	dst = append(dst, `,"metadata":`...)
	return appendString(dst, rest)
}

// splitMetadata returns the members of the metadata that are attributes of their own, and the
// others as the JSON text that the attribute metadata holds, "" if there are none.
func splitMetadata(metadata json.RawMessage) (own map[string]json.RawMessage, rest string) {
	if len(metadata) == 0 || string(metadata) == "null" || string(metadata) == "{}" {
		return nil, ""
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(metadata, &members) != nil {
		return nil, compact(metadata) // no object: plain SQL may have written anything
	}
	own = map[string]json.RawMessage{}
	for name, value := range members {
		if isAttribute(name, value) {
			own[name] = value
			delete(members, name)
		}
	}
	if len(members) == 0 {
		return own, ""
	}
	others, err := json.Marshal(members)
	if err != nil {
		return own, "" // what has been unmarshalled is marshalled
	}
	return own, compact(others)
}

// compact returns JSON without spaces, and "" for what is none: a column of text in which plain SQL
// wrote something else.
func compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return ""
	}
	return b.String()
}

// isAttribute tells whether a member of the metadata can be an attribute with its own name and
// value.
func isAttribute(name string, value json.RawMessage) bool {
	if name == "" || len(name) > 20 || taken[name] {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	switch value[0] {
	case 't', 'f':
		return name != "traceparent" && name != "tracestate" // the tracing extension has strings
	case '"':
		return isPlain(value)
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		_, err := strconv.ParseInt(string(value), 10, 32)
		return err == nil && name != "traceparent" && name != "tracestate"
	}
	return false // null, which would be the same as no attribute, an object or an array
}

// isPlain tells whether a JSON string is a String of CloudEvents: neither empty nor with control
// characters or noncharacters.
func isPlain(quoted json.RawMessage) bool {
	var s string
	if json.Unmarshal(quoted, &s) != nil || s == "" {
		return false
	}
	for _, c := range s {
		if unicode.IsControl(c) || c == utf8.RuneError || c&0xfffe == 0xfffe || c >= 0xfdd0 && c <= 0xfdef {
			return false
		}
	}
	return true
}
