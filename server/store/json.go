package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/crawl"
)

// sameJSON tells whether two texts are one value, as PostgreSQL compares jsonb: neither white
// space, nor the order of keys, nor 1.0 for 1 is a difference. No text at all is only the same as
// none.
func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, okX := decodeJSON(a)
	y, okY := decodeJSON(b)
	return okX && okY && sameValue(x, y)
}

func decodeJSON(b []byte) (v any, ok bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	return v, d.Decode(&v) == nil
}

func sameValue(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, sameValue)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, sameValue)
	case json.Number:
		b, ok := b.(json.Number)
		return ok && plainNumber(string(a)) == plainNumber(string(b))
	}
	return a == b
}

// plainNumber spells a JSON number in the one way that all its spellings share: sign, digits
// without zeros at either end, and the power of ten of the last. Not through a float, which has 15
// digits of it, nor spelled out: 1e131071 has 131,072.
func plainNumber(s string) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(s), "e")
	power, _ := strconv.Atoi(exponent) // "" is 0; what no int holds, jsonb refuses
	sign := ""
	if rest, negative := strings.CutPrefix(mantissa, "-"); negative {
		sign, mantissa = "-", rest
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return "0"
	}
	return sign + significant + "e" + strconv.Itoa(power-len(fraction)+len(digits)-len(significant))
}

// checkJSON reports what PostgreSQL's jsonb would refuse, as a *crawl.FieldError, before a database
// does: SQLite takes more, and what was tried on a file has to work in production. crawl.Service
// finds it before, so this is for other callers.
func checkJSON(field string, b json.RawMessage) error {
	if b == nil {
		return nil
	}
	probe := outbox.Event{Topic: field, Source: crawl.Source, Payload: b}
	if refused, ok := errors.AsType[*outbox.FieldError](probe.Validate(math.MaxInt32)); ok {
		return &crawl.FieldError{Field: field, Problem: refused.Problem}
	}
	return nil
}
