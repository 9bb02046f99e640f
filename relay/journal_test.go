package relay

import (
	"errors"
	"testing"

	"github.com/outboxrelay/outbox"
)

// What is behind a refused event in its key is owed with it; what had no turn, and what nobody was
// there for, stays in the log with all that is behind it.
func TestWhatTheLogsSinkOwes(t *testing.T) {
	t.Parallel()
	refused, away := errors.New("it is too large"), outbox.Unavailable(errors.New("nobody is there"))
	for _, tt := range []struct {
		name    string
		answers []error // of events of one key, in their order
		want    string  // o: owed, s: stays
	}{
		{"delivered, and no turn", []error{nil, outbox.ErrNotAttempted, outbox.ErrNotAttempted}, "-ss"},
		{"refused", []error{nil, refused, outbox.ErrNotAttempted}, "-oo"},
		{"nobody there", []error{nil, away, outbox.ErrNotAttempted}, "-ss"},
		{"refused, then nobody there", []error{refused, away, outbox.ErrNotAttempted}, "oss"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &worker{tableRelay: &tableRelay{}}
			batch, results := make([]outbox.Delivery, len(tt.answers)), make([]outbox.Result, len(tt.answers))
			for i, err := range tt.answers {
				batch[i].Record, results[i].Err = &outbox.Record{Keyed: true, OrderKey: 7}, err
			}
			w.owe(batch, results, false)
			got := ""
			for _, r := range results {
				switch {
				case r.Err == nil:
					got += "-"
				case isOwed(r.Err):
					got += "o"
				default:
					got += "s"
				}
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// A batch of a log of which the sink took nothing says why, also if all of it is owed.
func TestBatchOfALogSaysWhyItsSinkIsDown(t *testing.T) {
	t.Parallel()
	away := outbox.Unavailable(errors.New("no connection is free"))
	for _, isolate := range []bool{false, true} {
		o := &outlet{owed: &tableRelay{}}
		r := &tableRelay{cfg: tableConfig{table: Table{Sink: "billing"}}}
		r.mode = &journal{fanout: fanout{outlets: map[string]*outlet{"billing": o}}}
		w := &worker{tableRelay: r}
		rec := &outbox.Record{Keyed: true, OrderKey: 7}
		batch, results := []outbox.Delivery{{Record: rec, Destination: "e"}}, []outbox.Result{{Err: away}}
		w.owe(batch, results, isolate)
		v := r.verdict([]*outbox.Record{rec}, batch, []int{0}, results, nil, isolate)
		if class, _ := outbox.Classify(v.unavailable); class != outbox.ClassUnavailable {
			t.Errorf("isolate %t: the reason is %v", isolate, v.unavailable)
		}
	}
}
