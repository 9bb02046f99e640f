package operatetest

import (
	"slices"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

// Suite runs the contract against databases made by newHarness, one a test.
func Suite(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, b := range slices.Concat(browseTests(), backlogTests(), skipTests(), againTests(), pauseTests(), debtTests(),
		deliveryTests(), retentionTests(), readerTests(),
		factTests()) {
		t.Run("operate/"+b.name, func(t *testing.T) {
			t.Parallel()
			h := newHarness(t)
			b.run(t, &suite{Harness: h, rows: tabletest.Database{Exec: h.Exec, Value: h.Value, Open: h.Table}})
		})
	}
}
