package outboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

func writerTests() []storeTest {
	return []storeTest{
		{name: "an event that is written again is ignored", run: ignoresDuplicates, notInLog: noIndexes},
		{name: "where duplicates are refused the transaction stays usable, with the call's other events",
			run: refusesDuplicates, notInLog: noIndexes},
		{name: "many events of one call keep their order", run: writesManyInOrder},
		{name: "a call whose last event the database refuses leaves nothing", run: writesAllOrNothing, notInLog: noIndexes},
		{name: "after an error of the database the transaction goes on", run: goesOnAfterError, notInLog: noIndexes,
			needs: func(f StoreFeatures) (string, bool) { return "SurvivesErrors", f.SurvivesErrors }},
		{name: "the largest payload arrives whole, one byte more is refused", run: writesLargest},
		{name: "an event that cannot be stored is refused before anything is sent", run: refusesUnstorable},
		{name: "an event of the greatest lengths is stored", run: writesLongest},
		{name: "writers beside each other lose nothing", run: writesConcurrently},
		{name: "with strict order the second writer of a key waits for the first", run: writesInStrictOrder},
	}
}

func ignoresDuplicates(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	e, other := keyed("first", "a"), keyed("other", "a")
	e.ID = tabletest.NewID(t)
	s.commits(t, e)
	e.Topic = "again"
	s.commits(t, e)
	s.commits(t, other, e, keyed("third", "a"))
	r.wants("first", "other", "third")
	if err := s.Write(t.Context(), outbox.WriterConfig{}, true, []outbox.Event{e},
		[]outbox.Event{keyed("fourth", "a"), e}); err != nil {
		t.Fatal(err)
	}
	r.wants("first", "other", "third", "fourth")
}

func refusesDuplicates(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	refuse := outbox.WriterConfig{RefuseDuplicates: true}
	e := keyed("first", "a")
	e.ID = tabletest.NewID(t)
	twice := keyed("twice", "a")
	twice.ID = tabletest.NewID(t)
	if err := s.Write(t.Context(), refuse, true, []outbox.Event{e}, numbered(2, "b")); err != nil {
		t.Fatal(err)
	}
	err := s.Write(t.Context(), refuse, true, []outbox.Event{e}, []outbox.Event{keyed("second", "a")},
		[]outbox.Event{keyed("third", "a"), e}, []outbox.Event{twice, twice})
	if !errors.Is(err, outbox.ErrDuplicateEvent) || strings.Count(err.Error(), outbox.ErrDuplicateEvent.Error()) != 3 {
		t.Errorf("got error %v, want three duplicates", err)
	}
	r.wants("first", "b/1", "b/2", "second", "third", "twice")
}

func writesManyInOrder(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	events := numbered(100, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
	var want []string
	for i := range events {
		if i%3 == 0 {
			events[i].Metadata = map[string]any{"i": i}
		}
		want = append(want, events[i].Topic)
	}
	s.commits(t, events...)
	for i, rec := range r.wants(want...) {
		if meta := string(rec.RawMetadata); (meta != "") != (i%3 == 0) || meta != "" &&
			!tabletest.SameJSON(rec.RawMetadata, fmt.Appendf(nil, `{"i": %d}`, i)) {
			t.Fatalf("%s has metadata %q", rec.Topic, meta)
		}
	}
	s.commits(t) // none
}

// refusable makes the database refuse the last of many events, which is there once already.
func (s *storeSuite) refusable(t *testing.T) []outbox.Event {
	t.Helper()
	s.Exec(t, "CREATE UNIQUE INDEX once ON outbox_events (event_topic) WHERE event_topic = 'once'")
	s.commits(t, keyed("once", "a"))
	return append(numbered(450, "b"), keyed("once", "b"))
}

// More than one statement of any store takes.
func writesAllOrNothing(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	if err := s.Write(t.Context(), outbox.WriterConfig{}, true, s.refusable(t)); err == nil {
		t.Error("there was no error")
	}
	r.wants("once")
}

func goesOnAfterError(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	if err := s.Write(t.Context(), outbox.WriterConfig{}, true, numbered(1, "x"), s.refusable(t),
		numbered(2, "y")); err == nil {
		t.Error("there was no error")
	}
	r.wants("once", "x/1", "y/1", "y/2")
}

func writesLargest(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	e := keyed("large", "a")
	e.Payload = json.RawMessage(`"` + strings.Repeat("ü", outbox.DefaultMaxPayload/2-1) + `"`)
	s.commits(t, e)
	if got := r.only(); !s.sameContent(got.Payload, e.Payload) {
		t.Errorf("%d bytes came back of %d", len(got.Payload), len(e.Payload))
	}
	e.Payload = json.RawMessage(`"` + strings.Repeat("ü", outbox.DefaultMaxPayload/2-1) + `x"`)
	if err := s.Write(t.Context(), outbox.WriterConfig{}, true, []outbox.Event{e}); !errors.Is(err,
		outbox.ErrPayloadTooLarge) {
		t.Errorf("got error %v", err)
	}
}

// The same of every store: what one takes and another refuses would make moving between them a
// surprise.
func refusesUnstorable(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	payload := func(p string) outbox.Event {
		e := keyed("bad", "a")
		e.Payload = json.RawMessage(p)
		return e
	}
	topic, source, when := keyed("nul \x00", "a"), keyed("source", "a"), keyed("when", "a")
	source.Source, when.OccurredAt = "", time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	metadata, destination := keyed("metadata", "a"), keyed("destination", "a")
	metadata.Metadata, destination.Destinations = map[string]any{"f": func() {}}, []string{"a", "a"}
	for _, tt := range []struct {
		field string
		event outbox.Event
	}{
		{"Payload", payload("")}, {"Payload", payload("{")}, {"Payload", payload(`"\u0000"`)},
		{"Payload", payload(`"\ud800"`)}, {"Payload", payload("\"\xff\"")},
		{"Payload", payload("1e999999")}, {"Payload", payload("{} {}")}, {"Topic", topic}, {"Topic", keyed("", "a")},
		{"Topic", keyed(strings.Repeat("t", 151), "a")}, {"Source", source},
		{"OccurredAt", when}, {"Metadata", metadata}, {"Destinations[1]", destination}, {"AggregateID", keyed("key", "\xff")},
	} {
		err := s.Write(t.Context(), outbox.WriterConfig{}, true, []outbox.Event{keyed("beside", "a"), tt.event},
			[]outbox.Event{keyed("good", "a")})
		var field *outbox.FieldError
		if !errors.As(err, &field) || field.Field != tt.field || field.Event != 1 {
			t.Errorf("%s %.30q: got error %v", tt.field, tt.event.Payload, err)
		}
		r.settle(delivered(r.wants("good")...)...)
	}
}

// The longest values of an event, in characters, are those of ADR-004's columns.
func writesLongest(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	long := func(n int) string { return strings.Repeat("ü", n) }
	e := outbox.Event{Topic: long(150), Source: long(50), SchemaID: long(128),
		SchemaVersion: 1<<31 - 1, AggregateType: long(100),
		AggregateID: long(128), TenantID: long(64),
		Destinations: []string{long(150)}, Payload: json.RawMessage("1"),
		OccurredAt: time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)}
	early := keyed("early", "a")
	early.OccurredAt = time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)
	s.commits(t, e, early)
	records := r.wants(e.Topic, "early")
	if got := records[0]; got.AggregateID != e.AggregateID || got.SchemaVersion != e.SchemaVersion ||
		got.TenantID != e.TenantID || !got.OccurredAt.Equal(e.OccurredAt) {
		t.Errorf("got %+v", *got)
	}
	if !records[1].OccurredAt.Equal(early.OccurredAt) {
		t.Errorf("it occurred at %s", records[1].OccurredAt)
	}
	r.settles(outbox.Settled{Delivered: 1, Dead: 1}, buried(records[0], long(150)), delivered(records[1])[0])
}

func writesConcurrently(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	const writers, each = 6, 20
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				key := fmt.Sprint(w)
				if err := s.Write(t.Context(), outbox.WriterConfig{}, i%5 != 4,
					[]outbox.Event{keyed(fmt.Sprintf("%s/%02d", key, i), key)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	of := map[string][]string{}
	for _, rec := range r.claim() {
		of[rec.AggregateID] = append(of[rec.AggregateID], rec.Topic)
	}
	for w := range writers {
		if got := of[fmt.Sprint(w)]; len(got) != each*4/5 || !slices.IsSorted(got) {
			t.Errorf("writer %d: %q", w, got)
		}
	}
}

// Its position is drawn after the first has committed, so it comes behind it whenever it commits.
func writesInStrictOrder(t *testing.T, s *storeSuite) {
	r := s.serve(t, outbox.OutboxEvents())
	strict := outbox.WriterConfig{Strict: true}
	end := s.Hold(t, strict, keyed("first", "a"))
	second := make(chan error, 1)
	go func() { second <- s.Write(t.Context(), strict, true, []outbox.Event{keyed("second", "a")}) }()
	select {
	case err := <-second:
		t.Errorf("the second writer did not wait, error %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	var others []string
	if s.features.ConcurrentWriters {
		tenant, kind := keyed("tenant", "a"), keyed("kind", "a")
		tenant.TenantID, kind.AggregateType = "other", "Other"
		others = []string{"key", "tenant", "kind", "keyless"}
		if err := s.Write(t.Context(), strict, true,
			[]outbox.Event{keyed("key", "b"), tenant, kind, keyed("keyless", "")}); err != nil {
			t.Fatal(err)
		}
	}
	r.wants(others...)
	end(true)
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	r.wants(append(append([]string{"first"}, others...), "second")...)
}
