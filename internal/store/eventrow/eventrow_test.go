package eventrow

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// Writing itself is tested on PostgreSQL, in store/postgres; here is what happens before a
// statement is sent.

type tenantKey struct{}

func TestPrepareCompletesEvents(t *testing.T) {
	w := outbox.WriterConfig{Source: "shop", Fill: func(ctx context.Context, e *outbox.Event) {
		if e.TenantID == "" {
			e.TenantID, _ = ctx.Value(tenantKey{}).(string)
		}
		e.Metadata = map[string]any{"user_id": "u1"}
	}}
	ctx := context.WithValue(t.Context(), tenantKey{}, "acme")
	given := []outbox.Event{
		{Topic: "a", Payload: json.RawMessage("1")},
		{ID: uuid.New(), Topic: "b", Payload: json.RawMessage("2"), Source: "other", TenantID: "mine", SchemaVersion: 3,
			OccurredAt: time.Unix(1, 0), Destinations: []string{"x", `"y`}},
	}
	rows, err := Prepare(ctx, w, given)
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.ID.Version() != 7 || r.Source != "shop" || r.TenantID != "acme" || r.SchemaVersion != 1 ||
		time.Since(r.OccurredAt) > time.Minute ||
		r.DestinationsJSON != nil || string(r.MetadataJSON) != `{"user_id":"u1"}` {
		t.Errorf("defaults: got %+v", r)
	}
	if r := rows[1]; r.ID != given[1].ID || r.Source != "other" || r.TenantID != "mine" || r.SchemaVersion != 3 ||
		!r.OccurredAt.Equal(time.Unix(1, 0)) ||
		string(r.DestinationsJSON) != `["x","\"y"]` {
		t.Errorf("what is set: got %+v", r)
	}
	if given[0].ID != uuid.Nil || given[0].Metadata != nil {
		t.Errorf("the caller's event was changed: %+v", given[0])
	}
	rows, err = Prepare(t.Context(), outbox.WriterConfig{Source: "s"}, given[:1])
	if err != nil || rows[0].TenantID != DefaultTenant || rows[0].MetadataJSON != nil {
		t.Errorf("without Fill: got %+v, %v", rows, err)
	}
}

func TestPrepareNamesTheEventAndField(t *testing.T) {
	w := outbox.WriterConfig{Source: "shop", MaxPayload: 20}
	for field, spoil := range map[string]func(*outbox.Event){
		"Payload":  func(e *outbox.Event) { e.Payload = json.RawMessage(`"twenty-one characters"`) },
		"Topic":    func(e *outbox.Event) { e.Topic = "" },
		"Metadata": func(e *outbox.Event) { e.Metadata = map[string]any{"a": "\x00"} },
		"TenantID": func(e *outbox.Event) { e.TenantID = "\xff" },
	} {
		events := []outbox.Event{{Topic: "a", Payload: json.RawMessage("1")}, {Topic: "b", Payload: json.RawMessage("2")}}
		spoil(&events[1])
		_, err := Prepare(t.Context(), w, events)
		wantFieldError(t, err, field)
		var fe *outbox.FieldError
		if errors.As(err, &fe) && fe.Event != 1 {
			t.Errorf("%s: it is event %d, want 1", field, fe.Event)
		}
	}
	for _, value := range []any{make(chan int), math.NaN(), "longer than MaxPayload allows"} {
		_, err := Prepare(t.Context(), w,
			[]outbox.Event{{Topic: "a", Payload: json.RawMessage("1"), Metadata: map[string]any{"a": value}}})
		wantFieldError(t, err, "Metadata")
	}
}

func TestCheckInserted(t *testing.T) {
	a, b := Row{Event: outbox.Event{ID: uuid.New()}}, Row{Event: outbox.Event{ID: uuid.New()}}
	ignore := outbox.WriterConfig{}
	refuse := outbox.WriterConfig{RefuseDuplicates: true}
	for _, c := range []struct {
		name     string
		rows     []Row
		inserted []uuid.UUID
		fresh    bool
	}{
		{"all new", []Row{a, b}, []uuid.UUID{a.ID, b.ID}, true},
		{"one was there", []Row{a, b}, []uuid.UUID{a.ID}, false},
		{"all were there", []Row{a}, nil, false},
		{"twice in one call", []Row{a, b, a}, []uuid.UUID{a.ID, b.ID}, false},
	} {
		if err := CheckInserted(ignore, c.rows, c.inserted); err != nil {
			t.Errorf("%s, ignored: %v", c.name, err)
		}
		if err := CheckInserted(refuse, c.rows, c.inserted); errors.Is(err, outbox.ErrDuplicateEvent) == c.fresh {
			t.Errorf("%s, refused: got %v", c.name, err)
		}
	}
}

func wantFieldError(t *testing.T, err error, field string) {
	t.Helper()
	var fe *outbox.FieldError
	if !errors.As(err, &fe) || fe.Field != field || fe.Problem == "" || !errors.Is(err, outbox.ErrInvalidEvent) {
		t.Errorf("got %v, want a *FieldError for %s", err, field)
	}
}
