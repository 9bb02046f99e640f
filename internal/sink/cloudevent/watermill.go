package cloudevent

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
)

// WatermillID is the header, or field, in which Watermill's marshallers keep the id of a message.
const WatermillID = "_watermill_message_uuid"

// Watermill returns what the metadata of a Watermill message holds of a delivery: the attributes of
// its CloudEvent with the prefix ce_, and the texts of its own metadata under their own names. A
// handler so finds the same at each broker.
func Watermill(d *outbox.Delivery) iter.Seq2[string, string] {
	const prefix = "ce_"
	return func(yield func(name, value string) bool) {
		for name, value := range d.Attributes() {
			if !yield(prefix+name, value) {
				return
			}
		}
		var own map[string]any
		if json.Unmarshal(d.RawMetadata, &own) != nil {
			return // none, or no object: then it is in ce_metadata
		}
		for _, name := range slices.Sorted(maps.Keys(own)) {
			value, ok := own[name].(string)
			if ok && isHeader(name, value) && name != WatermillID && !strings.HasPrefix(name, prefix) && !yield(name, value) {
				return
			}
		}
	}
}

// isHeader tells whether every transport takes the two as they are; the others are in ce_metadata.
func isHeader(name, value string) bool {
	return name != "" && len(name) <= 100 &&
		!strings.ContainsFunc(name, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.'
		}) &&
		!strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f })
}
