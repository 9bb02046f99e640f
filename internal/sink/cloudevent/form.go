package cloudevent

import "github.com/outboxrelay/outbox"

// ContentType is the header of the body's type, in transports that have no place of its own for it.
const ContentType = "content-type"

// Form is what a sink makes of a delivery: a body with headers.
type Form struct {
	Envelope outbox.Envelope // in structured mode, where the table has none
	Binary   bool            // the body is the payload; the attributes are headers
	Prefix   string          // of the attributes' names
	// Watermill has the body be the payload, and the headers what Watermill's marshallers read.
	Watermill bool
}

// Message appends the body of a delivery to dst, and hands the headers to header: the content type
// (but of Watermill), the attributes, the trace context.
func (f Form) Message(dst []byte, d *outbox.Delivery, header func(name, value string)) []byte {
	switch {
	case f.Watermill:
		header(WatermillID, d.ID.String())
		for name, value := range Watermill(d) {
			header(name, value)
		}
		return append(dst, d.Payload...)
	case f.Binary:
		dst = append(dst, d.Payload...)
		for name, value := range d.Attributes() {
			if name == "datacontenttype" {
				header(ContentType, value)
			} else {
				header(f.Prefix+name, value)
			}
		}
	default:
		body := len(dst)
		dst = d.AppendMessage(dst, f.Envelope)
		header(ContentType, outbox.ContentType(dst[body:]))
	}
	parent, state := d.TraceContext()
	if parent != "" {
		header("traceparent", parent)
	}
	if state != "" {
		header("tracestate", state)
	}
	return dst
}
