package outbox

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func validEvent() Event {
	return Event{Topic: "order.placed", Source: "orders", Payload: json.RawMessage(`{"total":1}`)}
}

// ADR-004 declares the columns as VARCHAR(n): n characters fit, however many bytes each has.
func TestValidateTextLimits(t *testing.T) {
	for name, c := range map[string]struct {
		max int
		set func(*Event, string)
	}{
		"Topic":           {150, func(e *Event, s string) { e.Topic = s }},
		"SchemaID":        {128, func(e *Event, s string) { e.SchemaID = s }},
		"AggregateType":   {100, func(e *Event, s string) { e.AggregateType = s }},
		"AggregateID":     {128, func(e *Event, s string) { e.AggregateID = s }},
		"TenantID":        {64, func(e *Event, s string) { e.TenantID = s }},
		"Source":          {50, func(e *Event, s string) { e.Source = s }},
		"Destinations[0]": {150, func(e *Event, s string) { e.Destinations = []string{s} }},
	} {
		for _, letter := range []string{"a", "é", "語", "😀"} {
			e := validEvent()
			c.set(&e, strings.Repeat(letter, c.max))
			if err := e.Validate(DefaultMaxPayload); err != nil {
				t.Errorf("%s of %d characters %q: %v", name, c.max, letter, err)
			}
			c.set(&e, strings.Repeat(letter, c.max+1))
			wantFieldError(t, e.Validate(DefaultMaxPayload), name)
		}
		for _, bad := range []string{"a\x00b", "a\xff", "\xed\xa0\x80"} {
			e := validEvent()
			c.set(&e, bad)
			wantFieldError(t, e.Validate(DefaultMaxPayload), name)
		}
	}
}

func TestValidateOtherFields(t *testing.T) {
	for _, c := range []struct {
		field string
		spoil func(*Event)
	}{
		{"Topic", func(e *Event) { e.Topic = "" }},
		{"Source", func(e *Event) { e.Source = "" }},
		{"Destinations[1]", func(e *Event) { e.Destinations = []string{"a", ""} }},
		{"Destinations[2]", func(e *Event) { e.Destinations = []string{"a", "b", "a"} }},
		{"SchemaVersion", func(e *Event) { e.SchemaVersion = -1 }},
		{"SchemaVersion", func(e *Event) { e.SchemaVersion = 1 << 31 }},
		{"OccurredAt", func(e *Event) { e.OccurredAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
		{"OccurredAt", func(e *Event) { e.OccurredAt = time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC) }},
		{"Payload", func(e *Event) { e.Payload = nil }},
		{"Payload", func(e *Event) { e.Payload = json.RawMessage(`{"a":`) }},
	} {
		e := validEvent()
		c.spoil(&e)
		wantFieldError(t, e.Validate(DefaultMaxPayload), c.field)
	}
	for name, change := range map[string]func(*Event){
		"nothing optional":  func(*Event) {},
		"last second":       func(e *Event) { e.OccurredAt = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC) },
		"largest version":   func(e *Event) { e.SchemaVersion = 1<<31 - 1 },
		"null as payload":   func(e *Event) { e.Payload = json.RawMessage("null") },
		"two destinations":  func(e *Event) { e.Destinations = []string{"a", "b"} },
		"control character": func(e *Event) { e.AggregateID = "\x01\x1f" },
	} {
		e := validEvent()
		change(&e)
		if err := e.Validate(DefaultMaxPayload); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidatePayloadSize(t *testing.T) {
	e := validEvent()
	e.Payload = json.RawMessage(`"` + strings.Repeat("x", DefaultMaxPayload-2) + `"`)
	if err := e.Validate(DefaultMaxPayload); err != nil {
		t.Errorf("%d bytes: %v", len(e.Payload), err)
	}
	err := e.Validate(DefaultMaxPayload - 1)
	wantFieldError(t, err, "Payload")
	if !errors.Is(err, ErrPayloadTooLarge) {
		t.Errorf("got %v, want ErrPayloadTooLarge", err)
	}
}

// What jsonb makes of a few bytes is what has to be sent: an append of 40 KB was a page of 500 MB.
func TestValidateCountsNumbersAsSpelledOut(t *testing.T) {
	e := validEvent()
	e.Payload = json.RawMessage(`[1e999,2]`) // 1,000 digits for 5 bytes
	const text = 1000 + 4
	for _, limit := range []int{text, DefaultMaxPayload, math.MaxInt} {
		if err := e.Validate(limit); err != nil {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
	err := e.Validate(text - 1)
	wantFieldError(t, err, "Payload")
	if !errors.Is(err, ErrPayloadTooLarge) || !strings.Contains(err.Error(), "over 994 digits more") {
		t.Errorf("got %v, want ErrPayloadTooLarge", err)
	}
	e.Payload = json.RawMessage(`[` + strings.Repeat("1e131071,", 9) + `1]`)
	if err := e.Validate(math.MaxInt); !errors.Is(err, ErrPayloadTooLarge) {
		t.Errorf("without a limit: %v", err)
	}
}

func TestNewEvent(t *testing.T) {
	e, err := NewEvent("order.placed", map[string]int{"total": 1})
	if err != nil {
		t.Fatal(err)
	}
	if e.ID.Version() != 7 || e.Topic != "order.placed" || string(e.Payload) != `{"total":1}` || e.OccurredAt.IsZero() {
		t.Errorf("got %+v", e)
	}
	_, err = NewEvent("order.placed", make(chan int))
	wantFieldError(t, err, "Payload")
}

// wantFieldError fails t unless err is a *FieldError of that field that callers can tell by
// errors.Is.
func wantFieldError(t *testing.T, err error, field string) {
	t.Helper()
	var fe *FieldError
	if !errors.As(err, &fe) {
		t.Errorf("got %v, want a *FieldError for %s", err, field)
		return
	}
	if fe.Field != field || fe.Problem == "" {
		t.Errorf("got field %q (%v), want %q", fe.Field, err, field)
	}
	if !errors.Is(err, ErrInvalidEvent) {
		t.Errorf("%v is not ErrInvalidEvent", err)
	}
}
