package model

import (
	"strings"
	"testing"
	"time"
)

// What may go wrong at a time. All of it together is more than a search gets through in a minute.
var budgets = []Budget{
	{Crashes: 2},
	{Crashes: 1, Failures: 1},
	{Crashes: 1, Replays: 1},
	{Crashes: 1, Failovers: 1},
	{Failures: 1, Replays: 1, Failovers: 1},
	{Crashes: 1, Consumers: 1},
}

func TestProtocol(t *testing.T) {
	t.Parallel()
	all := map[string]int{}
	for _, b := range budgets {
		began := time.Now()
		states, seen, found := Search(b, None)
		if found != nil {
			t.Fatalf("%+v: %v after %v", b, found.Why, found.Run)
		}
		t.Logf("%+v: %d states in %s", b, states, time.Since(began).Round(time.Millisecond))
		for name, n := range seen {
			all[name] += n
		}
	}
	for _, name := range []string{"write", "commit", "roll back", "lease", "lapse", "lose", "crash", "claim", "publish",
		"no answer", "cut", "refusal", "settle", "effect", "acknowledge", "replay", "failover", "recall"} {
		if all[name] == 0 {
			t.Errorf("nothing of the searches is a %s", name)
		}
	}
}

// Each rule of the protocol is there for a run in which something breaks without it.
func TestMutants(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		Mutant
		Budget
		why string
	}{
		{NoEpochGuard, Budget{Crashes: 1}, strangersSettle.String()},
		{AttemptsAsGuard, Budget{Crashes: 1}, strangersSettle.String()},
		{SettleFirst, Budget{}, "counts as delivered, and the sink does not have it"},
		{Fence, Budget{}, "is never delivered"},
		{PassFailed, Budget{Failures: 1}, outOfOrder.String()},
		{NoExpiry, Budget{}, copySent.String()},
		{SameGeneration, Budget{Replays: 1}, "was replayed 1 times, and the sink refused it as a copy"},
		{GuardApart, Budget{Consumers: 1}, "arrived and never has its effect"},
		{NoGuard, Budget{Consumers: 1}, "has had its effect 2 times"},
		{AckFirst, Budget{Consumers: 1}, "arrived and never has its effect"},
	} {
		_, _, found := Search(tt.Budget, tt.Mutant)
		if found == nil {
			t.Errorf("mutant %d: nothing breaks", tt.Mutant)
		} else if !strings.HasSuffix(found.Why.Error(), tt.why) {
			t.Errorf("mutant %d: %v, want %s", tt.Mutant, found.Why, tt.why)
		} else {
			t.Logf("mutant %d: %v, after %d steps: %v", tt.Mutant, found.Why, len(found.Run), found.Run)
		}
	}
}
