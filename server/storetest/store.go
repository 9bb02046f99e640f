package storetest

import (
	"slices"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

// StoreHarness is a database with the tables of sets core and crawl, fresh for one test, and what
// the store under test makes of it.
type StoreHarness struct {
	Runs   func(t *testing.T) crawl.Store
	Tokens func(t *testing.T) token.Store
	// Outbox opens crawl_outbox as a relay does.
	Outbox func(t *testing.T) outbox.Store
	// Exec and Value are as those of outboxtest.StoreHarness.
	Exec  func(t *testing.T, sql string, args ...any)
	Value func(t *testing.T, sql string, args ...any) string
	// TryExec is Exec for a statement that the database may refuse.
	TryExec func(t *testing.T, sql string, args ...any) error
}

// suite is one test's harness.
type suite struct{ StoreHarness }

// test is one behaviour, by the name under which every store shows it.
type test struct {
	name string
	run  func(*testing.T, *suite)
}

// The areas of StoreSuite.
const (
	AreaRuns   = "runs"   // crawl runs and their log
	AreaTokens = "tokens" // of the HTTP API
)

// StoreSuite runs the contract of a store against databases made by newHarness, one a test: that of
// the areas, or of all where none is named. A harness needs only the fields that its areas use.
func StoreSuite(t *testing.T, newHarness func(t *testing.T) StoreHarness, areas ...string) {
	for _, area := range []struct {
		name  string
		tests []test
	}{
		{AreaRuns, runTests()},
		{AreaTokens, tokenTests()},
	} {
		if len(areas) > 0 && !slices.Contains(areas, area.name) {
			continue
		}
		t.Run(area.name, func(t *testing.T) {
			for _, test := range area.tests {
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					test.run(t, &suite{newHarness(t)})
				})
			}
		})
	}
}
