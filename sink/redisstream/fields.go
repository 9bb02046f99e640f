package redisstream

import (
	"encoding/binary"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/cloudevent"
)

// Names of the fields of an entry.
const (
	eventField      = "event" // structured mode
	dataField       = "data"  // binary mode
	attributePrefix = "ce_"   // binary mode
)

// array begins a MessagePack array with a length of 32 bits.
const array = 0xdd

// appendFields appends the value of d's entry for xadd.lua: the message itself where the entry has
// nothing else. Otherwise it is its fields and values as a MessagePack array of strings, which Lua
// takes longer to read.
func appendFields(dst []byte, d *outbox.Delivery, cfg Config) []byte {
	if cfg.Watermill {
		return appendWatermill(dst, d)
	}
	start := len(dst)
	parent, state := d.TraceContext()
	if !cfg.Binary && parent == "" && state == "" {
		dst = d.AppendMessage(dst, cfg.Envelope)
		if len(dst) == start || dst[start] != array {
			return dst
		}
		dst = dst[:start] // a message that looks like an array
	}
	dst = append(dst, array, 0, 0, 0, 0) // its length follows below
	n := 0
	add := func(prefix, name, value string) {
		dst = appendHead(dst, len(prefix)+len(name))
		dst = append(append(dst, prefix...), name...)
		dst = append(appendHead(dst, len(value)), value...)
		n += 2
	}
	if cfg.Binary {
		for name, value := range d.Attributes() {
			add(attributePrefix, name, value)
		}
	}
	if parent != "" {
		add("", "traceparent", parent)
	}
	if state != "" {
		add("", "tracestate", state)
	}
	name := eventField
	if cfg.Binary {
		name = dataField
	}
	dst = append(appendHead(dst, len(name)), name...)
	at := len(dst)
	dst = appendHead(dst, 0)
	if cfg.Binary {
		dst = append(dst, d.Payload...)
	} else {
		dst = d.AppendMessage(dst, cfg.Envelope)
	}
	binary.BigEndian.PutUint32(dst[at+1:], uint32(len(dst)-at-stringHead))
	binary.BigEndian.PutUint32(dst[start+1:], uint32(n+2))
	return dst
}

// appendWatermill appends the three fields of Watermill, of which metadata is a MessagePack map of
// strings.
func appendWatermill(dst []byte, d *outbox.Delivery) []byte {
	text := func(dst []byte, s string) []byte { return append(appendHead(dst, len(s)), s...) }
	metadata, n := []byte{0xdf, 0, 0, 0, 0}, uint32(0) // a map with a length of 32 bits
	for name, value := range cloudevent.Watermill(d) {
		metadata = text(text(metadata, name), value)
		n++
	}
	binary.BigEndian.PutUint32(metadata[1:], n)
	dst = append(dst, array, 0, 0, 0, 6)
	dst = text(text(dst, cloudevent.WatermillID), d.ID.String())
	dst = text(text(dst, "metadata"), string(metadata))
	return append(appendHead(text(dst, "payload"), len(d.Payload)), d.Payload...)
}

const stringHead = 5 // bytes of a str 32 before its text

func appendHead(dst []byte, length int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(length))
}
