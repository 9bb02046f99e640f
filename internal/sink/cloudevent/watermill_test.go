package cloudevent

import (
	"maps"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

func TestWatermill(t *testing.T) {
	id := uuid.MustParse("019aa000-0000-7000-8000-000000000001")
	d := outbox.Delivery{Record: &outbox.Record{Event: outbox.Event{ID: id, Topic: "order.placed", Source: "shop"},
		RawMetadata: []byte(`{"correlation_id":"c","ce_type":"forged","_watermill_message_uuid":"forged","a b":"c","line":"a\nb",` +
			`"number":1,"":"empty"}`)}}
	got := maps.Collect(Watermill(&d))
	for name, want := range map[string]string{"ce_type": "order.placed", "ce_id": id.String(), "correlation_id": "c"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	for _, name := range []string{WatermillID, "a b", "line", "number", ""} {
		if value, there := got[name]; there {
			t.Errorf("%q is there, with %q", name, value)
		}
	}
	for range Watermill(&d) { // who stops is not called again
		break
	}
}
