package model

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// walk is a run of the model, and what can be seen of it.
func walk(random *rand.Rand, b Budget, m Mutant) (trace []Seen, ended bool) {
	s := Start(b)
	for range 60 {
		steps := Next(s, b, m)
		if len(steps) == 0 {
			return trace, true
		}
		step := steps[random.IntN(len(steps))]
		rows := step.rows()
		if quiet := step.Name == "settle" && rows == s.rows(); !unseen[step.Name] && !quiet {
			trace = append(trace, Seen{step.Action, &rows})
		}
		s = step.State
	}
	return trace, false
}

func TestTracesOfTheModelAreAccepted(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for i := range uint64(60) {
		b := budgets[i%uint64(len(budgets))]
		trace, ended := walk(rand.New(rand.NewPCG(i, 0)), b, None)
		if _, err := Accept(trace, ended); err != nil {
			t.Fatalf("run %d, %+v: %v", i, b, err)
		}
	}
}

// What a system does that lacks a rule can be seen from outside. (Of NoExpiry it cannot without a
// clock: each lane that is taken may have lapsed. AckFirst loses, and what is lost is not seen.)
func TestTracesOfMutantsAreRejected(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for m, b := range map[Mutant]Budget{
		NoEpochGuard: {Crashes: 1}, AttemptsAsGuard: {Crashes: 1}, SettleFirst: {}, Fence: {}, PassFailed: {Failures: 1},
		SameGeneration: {Replays: 1}, GuardApart: {Consumers: 1}, NoGuard: {Consumers: 1},
	} {
		const runs = 3000
		for i := uint64(0); ; i++ {
			trace, ended := walk(rand.New(rand.NewPCG(i, 1)), b, m)
			_, err := Accept(trace, ended)
			if rejected := (*RejectedError)(nil); errors.As(err, &rejected) || err != nil && ended {
				t.Logf("mutant %d, run %d: %v", m, i, err)
				break
			}
			if i == runs {
				t.Errorf("mutant %d: all of %d runs are accepted", m, runs)
				break
			}
		}
	}
}

// A webhook source whose database dies behind its commit answers with a failure, which counts an
// attempt. The effect is there.
func TestAttemptsOfWhatHasArrivedAreAccepted(t *testing.T) {
	t.Parallel()
	tried := [events]Row{{There: true, State: "NEW", Attempts: 1}}
	if _, err := Accept([]Seen{
		{Action{"lease", 0, 0, -1}, nil},
		{Action{"effect", -1, -1, 0}, nil},
		{Action{"settle", 0, 0, -1}, &tried},
	}, false, "publish", "no answer", "refusal", "acknowledge"); err != nil {
		t.Error(err)
	}
}
