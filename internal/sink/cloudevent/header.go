// Package cloudevent has what sinks share whose transport carries the attributes of a CloudEvent as
// text headers.
//
// Guaranteed: a delivery has the same headers at each broker, but for the names that its protocol
// binding asks for.
//
// Not guaranteed: that a transport takes every value; HeaderValue is for those that take ASCII
// alone.
package cloudevent

import "strings"

// HeaderValue returns the value of an attribute as a header has it. What is no printable ASCII
// character, the space, the double quote and the percent sign become the percent-encoded bytes of
// their UTF-8 form. CloudEvents 1.0 says so (HTTP protocol binding, section 3.1.3.2; the NATS
// binding is the same). A line break cannot get through.
func HeaderValue(value string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for _, c := range []byte(value) {
		if c > ' ' && c < 0x7f && c != '"' && c != '%' {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'%', digits[c>>4], digits[c&15]})
	}
	return b.String()
}
