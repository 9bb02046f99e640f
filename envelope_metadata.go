package outbox

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// taken are the names that members of the metadata cannot have as attributes. They are those of CloudEvents and of its
// JSON form, the extensions that CloudEvent sends itself, and what an attribute would hide in the JavaScript SDK.
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

// splitMetadata returns the members of the metadata that are attributes of their own, and the others as the JSON text
// that the attribute metadata holds, "" if there are none.
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

// compact returns JSON without spaces, and "" for what is none: a column of text in which plain SQL wrote something
// else.
func compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return ""
	}
	return b.String()
}

// isAttribute tells whether a member of the metadata can be an attribute with its own name and value.
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

// isPlain tells whether a JSON string is a String of CloudEvents: neither empty nor with control characters or
// noncharacters.
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
