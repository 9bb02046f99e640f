package relay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
)

// panicky panics at one topic and remembers what it published, refusing copies.
type panicky struct {
	poison    string
	published []string
	calls     int
}

func (p *panicky) Publish(_ context.Context, batch []outbox.Delivery) []outbox.Result {
	p.calls++
	results := make([]outbox.Result, len(batch))
	for i, d := range batch {
		if d.Topic == p.poison {
			panic("cannot digest " + d.Topic)
		}
		name := d.Topic + ">" + d.Destination
		if results[i].Duplicate = slices.Contains(p.published, name); !results[i].Duplicate {
			p.published = append(p.published, name)
		}
	}
	return results
}

// One poisonous event must not use up the attempts of the thousand it was claimed with.
func TestPanicOfTheSinkIsIsolated(t *testing.T) {
	t.Parallel()
	const n, keys = 100, 10
	for poison := range n {
		sink := &panicky{poison: fmt.Sprint(poison)}
		r, err := relayOf(nil, sink, Config{})
		if err != nil {
			t.Fatal(err)
		}
		var batch []outbox.Delivery
		for i := range n {
			rec := &outbox.Record{
				Event:    outbox.Event{ID: uuid.New(), Topic: fmt.Sprint(i)},
				Keyed:    i%keys != 9,
				OrderKey: int64(i % keys),
			}
			batch = append(batch, outbox.Delivery{Record: rec, Destination: "a"}, outbox.Delivery{Record: rec, Destination: "b"})
		}
		results := r.publisher.publish(t.Context(), batch)
		if len(results) != len(batch) {
			t.Fatalf("%d results for %d deliveries", len(results), len(batch))
		}
		for i, result := range results {
			event := i / 2
			sameKey := event%keys == poison%keys && event%keys != 9
			switch {
			case event == poison:
				if result.Err == nil || !strings.Contains(result.Err.Error(), "cannot digest") {
					t.Errorf("poison %d: its own result is %v", poison, result.Err)
				}
			case sameKey && event > poison:
				if !errors.Is(result.Err, outbox.ErrNotAttempted) {
					t.Errorf("poison %d: event %d of its key: got %v, want not attempted", poison, event, result.Err)
				}
			case result.Err != nil:
				t.Errorf("poison %d: event %d failed too: %v", poison, event, result.Err)
			}
		}
		for _, name := range sink.published {
			var event int
			if _, err := fmt.Sscanf(name, "%d>", &event); err != nil {
				t.Fatal(err)
			}
			if event%keys == poison%keys && event%keys != 9 && event > poison {
				t.Errorf("poison %d: event %d of its key overtook it", poison, event)
			}
		}
		if sink.calls > 40 {
			t.Errorf("poison %d: %d calls of the sink for %d deliveries", poison, sink.calls, len(batch))
		}
	}
}
