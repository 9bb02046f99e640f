package postgres

import (
	"encoding/json"
	"testing"

	"github.com/outboxrelay/outbox"
)

// PostgreSQL's times go further than RFC 3339's. Such an event is delivered, without a time: none
// is better than a wrong one.
func TestClaimOfTimesBeyondRFC3339(t *testing.T) {
	t.Parallel()
	pool := migrated(t)
	want := map[string]string{
		"0001-01-01 00:00:00.000001+00": "0001-01-01T00:00:00.000001Z",
		"9999-12-31 23:59:59.999999+00": "9999-12-31T23:59:59.999999Z",
		"1969-12-31 23:59:59.5+00":      "1969-12-31T23:59:59.5Z", "10000-01-01 00:00:00+00": "",
		"294276-12-31 23:59:59.999999+00": "", "4713-01-01 00:00:00+00 BC": "",
		"0002-12-31 00:00:00+00 BC": "", "infinity": "", "-infinity": "",
	}
	for at := range want {
		exec(t, pool,
			`INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload) VALUES ($1::text, $1::text::timestamptz, 'shop', '{}')`, at)
	}
	s, _, lanes := serving(t, pool, outbox.OutboxEvents())
	records, err := s.Claim(t.Context(), lanes, everything)
	if err != nil || len(records) != len(want) {
		t.Fatalf("got %d records, error %v", len(records), err)
	}
	for _, r := range records {
		var message struct{ Time string }
		if err := json.Unmarshal(outbox.CloudEvent(nil, &outbox.Delivery{Record: r}), &message); err != nil {
			t.Fatal(err)
		}
		if message.Time != want[r.Topic] || r.Defect != "" {
			t.Errorf("%s: sent as %q, want %q; defect %q", r.Topic, message.Time, want[r.Topic], r.Defect)
		}
	}
}
