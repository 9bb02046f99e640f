package source

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

var at = time.Date(2026, 11, 20, 12, 0, 0, 123456000, time.UTC)

// What a relay sends of an event is that event again, in either mode.
func TestOurMessages(t *testing.T) {
	t.Parallel()
	want := outbox.Event{ID: uuid.MustParse("019aa000-0000-7000-8000-000000000001"), Topic: "order.placed", OccurredAt: at,
		SchemaID: "order", SchemaVersion: 3, AggregateType: "Order/Line", AggregateID: "4/2", TenantID: "acme",
		Source: "shop", Payload: json.RawMessage(`{"order": 42}`),
		Metadata: map[string]any{"region": "eu", "trace_id": "7f", "n": map[string]any{"a": 1.5}}}
	raw, err := json.Marshal(want.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	d := outbox.Delivery{Record: &outbox.Record{Event: want, RawMetadata: raw, Position: 7, Sequence: 7}}
	for mode, m := range map[string]Message{
		"structured": {Body: outbox.CloudEvent(nil, &d), Attributes: map[string]string{"id": want.ID.String()}},
		"binary":     {Body: want.Payload, Attributes: maps.Collect(d.Attributes())},
	} {
		m.Place, m.Channel, m.Key, m.Time = "orders/1/2", "orders", "4/2", at.Add(time.Hour)
		got := m.event(&Config{Name: "shop"})
		metadata, err := json.Marshal(got.Metadata)
		if err != nil {
			t.Fatal(err)
		}
		got.Metadata = nil
		if err := json.Unmarshal(metadata, &got.Metadata); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", mode, got, want)
		}
	}
}

// What others send has an id that is the same whenever it comes, and what the broker knows of it.
func TestOtherMessages(t *testing.T) {
	t.Parallel()
	cfg := &Config{Name: "orders", Type: "order.changed"}
	bare := Message{Place: "orders/1/2", Channel: "orders", Key: "42", Time: at, Body: []byte(`{"order":42}`)}
	e := bare.event(cfg)
	if again := bare.event(cfg); e.ID == uuid.Nil || e.ID != again.ID {
		t.Errorf("ids %s and %s", e.ID, again.ID)
	}
	if e.Topic != "order.changed" || e.AggregateID != "42" || !e.OccurredAt.Equal(at) || e.Source != "orders" {
		t.Errorf("got %+v", e)
	}
	other := bare
	other.Time = at.Add(time.Second) // of a topic that was made anew
	if other.event(cfg).ID == e.ID {
		t.Error("two messages have one id")
	}
	other.Place = ""
	if id := other.event(cfg).ID; id != uuid.Nil {
		t.Errorf("without a place: %s", id)
	}
	named := Message{Channel: "orders", Attributes: map[string]string{"id": "42-a"}}
	if first := named.event(cfg); first.ID == uuid.Nil || first.ID != named.event(cfg).ID {
		t.Errorf("of an id that is no UUID: %s", first.ID)
	}
	long := Message{Channel: strings.Repeat("c", 200), Key: strings.Repeat("k", 129), Body: []byte(`{}`)}
	if e := long.event(&Config{Name: "x"}); e.Validate(100) != nil || e.AggregateID == long.Key {
		t.Errorf("of a long key: %+v", e)
	}
	foreign := Message{Body: []byte(`{"specversion":"1.0","id":"1","source":"` + strings.Repeat("s", 60) +
		`","type":"t","subject":"a/b","time":"never","data_base64":"AA=="}`)}
	e = foreign.event(cfg)
	if e.Topic != "t" || e.AggregateID != "a/b" || string(e.Payload) != "null" || e.Source != "orders" ||
		e.Metadata["source"] != strings.Repeat("s", 60) || e.Validate(100) != nil {
		t.Errorf("of another's event: %+v", e)
	}
}

// Whatever comes is an event that a table takes.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"specversion":"1.0","id":"1","type":"","data":{"a":"\u0000"}}`), "k", "orders", "metadata", `{"a":1}`)
	f.Add([]byte("\xff\x00"), "\x00", strings.Repeat("c", 300), "specversion", "1.0")
	f.Fuzz(func(t *testing.T, body []byte, key, channel, name, value string) {
		m := Message{Place: "p", Channel: channel, Key: key, Time: at, Body: body,
			Attributes: map[string]string{name: value}}
		cfg := &Config{Name: "fuzz"}
		read := m.event(cfg)
		if _, err := json.Marshal(read.Metadata); err != nil {
			t.Errorf("metadata: %v", err)
		}
		for _, short := range []bool{false, true} {
			e := m.unreadable(cfg, read, "problem", short)
			if e.Topic == "" && channel == "" {
				continue // no broker has such a channel
			}
			if err := e.Validate(outbox.DefaultMaxPayload); err != nil && (short || len(body) < 1000) {
				t.Errorf("short %t: %v", short, err)
			}
		}
	})
}
