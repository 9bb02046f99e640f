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
