package outboxtest

import (
	"slices"
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tabletest"
)

// StoreSuite runs the contract of a store against databases made by newHarness, one a test. What a
// relay and a writer ask runs with tables in settle mode mark, and with a log in the place of
// outbox_events, where the store has one. What follows a settle runs in mode delete too, and the
// settle itself in mode archive. All tests run in parallel, so they begin when the caller's test
// returns: what they share is freed by t.Cleanup. Two stores that pass it show the same list of
// names, but for what one of them declares to lack.
func StoreSuite(t *testing.T, features StoreFeatures, newHarness func(t *testing.T) StoreHarness) {
	for _, area := range []struct {
		name   string
		mode   outbox.SettleMode
		events outbox.Layout
		tests  []storeTest
	}{
		{"engine", outbox.SettleMark, outbox.OutboxEvents(), engineTests()},
		{"engine", outbox.SettleDelete, outbox.OutboxEvents(),
			slices.Concat(settleTests(), relayTests(), routeTests())},
		{"engine", outbox.SettleArchive, outbox.OutboxEvents(), settleTests()},
		{"engine", "", outbox.OutboxLog(), engineTests()},
		{"letters", outbox.SettleMark, outbox.OutboxEvents(), letterTests()},
	} {
		if features.EngineOnly && (area.name != "engine" || area.mode != "" && area.mode != outbox.SettleMark) {
			continue
		}
		name := area.name
		switch area.mode {
		case "":
			if name += " of a log"; !features.LogTables {
				t.Logf("%s: left out, the store has no log tables", name)
				continue
			}
		case outbox.SettleDelete, outbox.SettleArchive:
			name += ", settle mode " + string(area.mode)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, test := range area.tests {
				if test.needs != nil {
					if feature, has := test.needs(features); !has {
						t.Logf("%s: not promised by this store (%s)", test.name, feature)
						continue
					}
				}
				if !area.events.KeepsState() && test.notInLog != "" {
					t.Logf("%s: not promised by a log (%s)", test.name, test.notInLog)
					continue
				}
				t.Run(test.name, func(t *testing.T) {
					t.Parallel()
					h := newHarness(t)
					if !area.events.KeepsState() {
						h = inLog(h)
					}
					open := h.Table
					h.Table = func(t *testing.T, layout outbox.Layout) outbox.Store {
						if layout.KeepsState() {
							layout.Settle = area.mode
						}
						return open(t, layout)
					}
					rows := tabletest.Database{Exec: h.Exec, Value: h.Value, Open: h.Table}
					test.run(t, &storeSuite{StoreHarness: h, rows: rows, features: features, mode: area.mode,
						events: area.events})
				})
			}
		})
	}
}

// engineTests are what a relay asks of a store, and a producer of its writer.
func engineTests() []storeTest {
	return slices.Concat(claimTests(), fairTests(), settleTests(), laneTests(), writerTests(), relayTests(), routeTests(),
		pauseTests())
}
