package outbox

import (
	"encoding/json"
	"strconv"
	"time"
)

// Envelope appends the message for a delivery to dst and returns it: what subscribers receive.
type Envelope func(dst []byte, d *Delivery) []byte

// PayloadOnly is the bare payload, as FR-005's sketch publishes it: a subscriber can neither resume nor recognise a
// copy.
func PayloadOnly(dst []byte, d *Delivery) []byte { return append(dst, d.Payload...) }

// structuredStart is what every message of CloudEvent begins with.
const structuredStart = `{"specversion":`

// CloudEvent is the structured JSON form of CloudEvents 1.0. id is the event id, source the bounded context (a
// URI-reference; what is none is percent-encoded). type is the topic, subject the aggregate ("Order/42", or the id
// alone), time the moment it occurred if that is known. Extensions: sequence (if the row has a number), partitionkey
// (the ordering key), tenantid, schemaid, schemaversion (if the table has one), and the metadata. sequence is 19
// decimal digits, so that text sorts as numbers do.
//
// Metadata travels whole. A member becomes an extension attribute of its own name where CloudEvents allows it. The name
// has 1 to 20 lower-case letters and digits and means nothing else. The value is a boolean, an integer of 32 bits, or a
// string without control characters. The others are one attribute, metadata: a string that holds them as a JSON object.
//
// It is written by hand because the generic encoder was the largest part of the relay's CPU; the tests decode it with
// encoding/json.
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

// appendPadded appends n, which is positive, with as many digits as the largest has: the sequence extension demands
// values whose order is that of their text.
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

// appendString appends s as a JSON string. Anything but plain ASCII goes the standard library's way.
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
