package outboxtest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

func TestCompareWritten(t *testing.T) {
	t.Parallel()
	placed := outbox.Event{ID: uuid.New(), Topic: "order.placed", AggregateType: "Order", AggregateID: "42",
		TenantID: "acme", Source: "shop", SchemaVersion: 1,
		Payload: json.RawMessage(`{"total": 7, "lines": [1, 2], "to": {"city": "Ulm", "zip": "89073"}, "big": 12345678901234567890}`), Metadata: map[string]any{"user_id": 7.0}}
	shipped := outbox.Event{Topic: "order.shipped", Payload: json.RawMessage(`null`)}
	payload := func(text string) outbox.Event { return outbox.Event{Payload: json.RawMessage(text)} }
	for name, c := range map[string]struct {
		got, want []outbox.Event
		says      string // "" if nothing differs
	}{
		"nothing":     {nil, nil, ""},
		"as they are": {[]outbox.Event{placed, shipped}, []outbox.Event{placed, shipped}, ""},
		"some fields": {[]outbox.Event{placed},
			[]outbox.Event{{Topic: "order.placed", AggregateID: "42",
				Payload: json.RawMessage(`{"to":{"city":"Ulm"},"total":7}`), Metadata: map[string]any{"user_id": 7}}}, ""},
		"an empty want": {[]outbox.Event{placed}, []outbox.Event{{}}, ""},
		"an empty list": {[]outbox.Event{placed}, []outbox.Event{{Destinations: []string{}}}, ""},
		"numbers as jsonb spells them": {
			[]outbox.Event{payload(`{"a":1000000000000000000000,"b":0.0000001,"c":100,"d":0,"e":7,"f":[1.50,{"g":-70}]}`)},
			[]outbox.Event{payload(`{"a":1e21,"b":1E-7,"c":1e+2,"d":-0,"e":7.0,"f":[15e-1,{"g":-7.0e1}]}`)}, ""},
		"another sign":    {[]outbox.Event{payload(`{"n":100}`)}, []outbox.Event{payload(`{"n":-1e2}`)}, "want -1e2"},
		"another power":   {[]outbox.Event{payload(`{"n":100}`)}, []outbox.Event{payload(`{"n":1e3}`)}, "want 1e3"},
		"an endless one":  {[]outbox.Event{payload(`1`)}, []outbox.Event{payload(`1e999999999`)}, "want 1e999999999"},
		"a longer one":    {[]outbox.Event{payload(`1`)}, []outbox.Event{payload(`1e99999999999999999999`)}, "want 1e999"},
		"no number":       {[]outbox.Event{payload(`{"n":"7"}`)}, []outbox.Event{payload(`{"n":7}`)}, `is "7", want 7`},
		"a longer list":   {[]outbox.Event{payload(`[1,2]`)}, []outbox.Event{payload(`[1.0]`)}, "is [1,2], want [1.0]"},
		"a member of one": {[]outbox.Event{payload(`[{"a":1,"b":2}]`)}, []outbox.Event{payload(`[{"a":1}]`)}, "want [{"},
		"none wanted": {[]outbox.Event{placed}, nil,
			"written 1 events, want 0:\n  1. too many: order.placed of Order 42 {"},
		"one missing": {[]outbox.Event{placed}, []outbox.Event{placed, shipped}, "2. missing: order.shipped null"},
		"another order": {[]outbox.Event{shipped, placed}, []outbox.Event{placed, shipped},
			"Topic is order.shipped, want order.placed"},
		"another key": {[]outbox.Event{placed}, []outbox.Event{{AggregateID: "43"}}, "AggregateID is 42, want 43"},
		"another member": {[]outbox.Event{placed}, []outbox.Event{payload(`{"to":{"city":"Bonn"}}`)},
			`Payload.to.city is "Ulm", want "Bonn"`},
		"a member too few": {[]outbox.Event{placed}, []outbox.Event{payload(`{"paid":true}`)},
			"Payload.paid is missing, want true"},
		"lists are whole": {[]outbox.Event{placed}, []outbox.Event{payload(`{"lines":[1]}`)},
			"Payload.lines is [1,2], want [1]"},
		"numbers are exact": {[]outbox.Event{placed}, []outbox.Event{payload(`{"big":12345678901234567891}`)},
			"Payload.big is 12345678901234567890, want 12345678901234567891"},
		"no object": {[]outbox.Event{shipped}, []outbox.Event{payload(`{"a":1}`)}, `Payload is null, want {"a":1}`},
		"other metadata": {[]outbox.Event{placed}, []outbox.Event{{Metadata: map[string]any{"user_id": 8}}},
			"Metadata.user_id is 7, want 8"},
		"a want that is none": {[]outbox.Event{placed}, []outbox.Event{payload(`{`)},
			"the Payload that is wanted is no JSON"},
	} {
		if got := compareWritten(c.got, c.want); !strings.Contains(got, c.says) || (c.says == "") != (got == "") {
			t.Errorf("%s: said\n%s\nwant %q", name, got, c.says)
		}
	}
}
