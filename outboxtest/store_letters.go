package outboxtest

import (
	"slices"
	"testing"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

// letterTests are what people see of a table and of what could not arrive, and what they do about
// it.
func letterTests() []storeTest {
	return slices.Concat(lookTests(), replayTests(), clearTests(),
		collectTests(),
		mappedTests())
}

// operator is who acts in the tests.
var operator = deadletter.Operator{Actor: "test@here", Reason: "because"}

func (s *storeSuite) letters(t *testing.T) deadletter.Store {
	t.Helper()
	return s.Letters(t, tabletest.Layouts()...)
}
