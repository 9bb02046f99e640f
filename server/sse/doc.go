// Package sse is the wire format of Server-Sent Events (WHATWG HTML, section 9.2), the sending
// side. It has events and comments as bytes, and the cursors with which a client that was cut off
// comes back.
//
// Guaranteed: what [Append] writes is one event to every conforming parser, with the id, name and
// data it was given. No content of a field can begin another field or event, because what has no
// encoding is refused. Line ends in data arrive as LF, as the format has no other. The same event
// is always the same bytes. A cursor has exactly one spelling, and whatever else is refused with an
// error that tells why.
//
// Not guaranteed: that text is valid UTF-8; a client reads U+FFFD for what is not. Nothing is
// written to a connection and nothing is flushed here: that is package gateway's.
package sse
