// Package pause is what operators pause of a table, one by one, as a relay is told of it.
//
// Guaranteed: nothing but the names; package outbox knows which events they hold.
//
// Not guaranteed: that a table has what is paused of it.
package pause

import (
	"encoding/json"
	"slices"

	"github.com/outboxrelay/outbox"
)

// Add adds one pause: of a topic, of a destination, or, with neither, of the whole table.
func Add(p *outbox.Paused, topic, destination string) {
	switch {
	case topic != "":
		p.Topics = append(p.Topics, topic)
	case destination != "":
		p.Destinations = append(p.Destinations, destination)
	default:
		p.Table = true
	}
}

// Text returns the pauses that a relay obeys as its row of outbox_relays has them, independent of
// their order; "" if there are none.
func Text(p outbox.Paused) string {
	if !Any(p) {
		return ""
	}
	p.Topics = slices.Compact(slices.Sorted(slices.Values(p.Topics)))
	p.Destinations = slices.Compact(slices.Sorted(slices.Values(p.Destinations)))
	text, err := json.Marshal(p)
	if err != nil {
		return "" // texts can be encoded
	}
	return string(text)
}

// Any tells whether anything is paused.
func Any(p outbox.Paused) bool { return p.Table || len(p.Topics)+len(p.Destinations) > 0 }
