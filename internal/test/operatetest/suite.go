package operatetest

import (
	"context"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
	"github.com/outboxrelay/outbox/outboxtest"
)

// Harness is a store, as outboxtest.StoreSuite has it, with what operators make of its tables.
type Harness struct {
	outboxtest.StoreHarness
	Operators operate.Database
	// Retention and LetterRetention open what old rows are removed from.
	Retention       func(t *testing.T, layout outbox.Layout) retention.Store
	LetterRetention func(t *testing.T) retention.Store
}

// Browser opens a table.
func (h *Harness) Browser(t *testing.T, layout outbox.Layout) *operate.Browser {
	t.Helper()
	return Opened(t, func(ctx context.Context) (*operate.Browser, error) { return h.Operators.Browser(ctx, layout) })
}

// Pauses opens what operators have paused.
func (h *Harness) Pauses(t *testing.T) *operate.Pauses {
	t.Helper()
	return Opened(t, h.Operators.Pauses)
}

// Opened is what open returns.
func Opened[T any](t *testing.T, open func(context.Context) (T, error)) T {
	t.Helper()
	v, err := open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// suite is one test's harness.
type suite struct {
	Harness
	rows tabletest.Database
}

// letters are those of all the seeds' tables.
func (s *suite) letters(t *testing.T) deadletter.Store {
	t.Helper()
	return s.Letters(t, tabletest.Layouts()...)
}

// behaviour is one, by the name under which both databases show it.
type behaviour struct {
	name string
	run  func(*testing.T, *suite)
}

// operator is who acts in the tests.
var operator = deadletter.Operator{Actor: "test@here", Reason: "because"}

// replay puts back what is chosen.
func replay(t *testing.T, d deadletter.Store, s deadletter.Selection) deadletter.Replayed {
	t.Helper()
	sum, err := deadletter.Replay(t.Context(), d, deadletter.ReplayOptions{Selection: s, Operator: operator})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}
