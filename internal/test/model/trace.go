package model

import (
	"fmt"
	"slices"
)

// Seen is a step that was seen, in a system that runs or in a run of a mutant, and what the
// database had after it.
type Seen struct {
	Action
	// Rows are what a query finds; nil: nobody looked.
	Rows *[events]Row
}

// Row is what a query finds of an event.
type Row struct {
	There    bool
	State    string // NEW, SENT or DEAD
	Attempts int
	Replays  int
}

// rows are what a query finds in a state.
func (s State) rows() (rows [events]Row) {
	for e, r := range s.Rows {
		if r.committed {
			rows[e] = Row{true, [...]string{"NEW", "SENT", "DEAD"}[r.state], int(r.attempts), int(r.replays)}
		}
	}
	return rows
}

// unseen are steps that a trace need not have: of producers, of a relay with itself, and of time.
var unseen = map[string]bool{"write": true, "commit": true, "roll back": true, "lapse": true, "claim": true,
	"lose": true, "cut": true, "crash": true, "recall": true}

// between is how many steps may have been unseen between two that were seen.
const between = 12

// endless lets all go wrong as often as it does.
var endless = Budget{Crashes: 100, Failures: 100, Failovers: 100, Replays: 100, Consumers: 100}

// RejectedError says that the model has no run in which a step can follow on what was seen before
// it.
type RejectedError struct {
	At int // its place in the trace
	Seen
	States int // in which the system may have been
}

func (e *RejectedError) Error() string {
	return fmt.Sprintf("step %d cannot be: %v, then %v (there were %d states)", e.At, e.Action, e.Rows, e.States)
}

// Accept tells whether the model has a run of which the trace is what can be seen, and which steps
// such runs have. ended says that the trace goes on until nothing more happens; hidden are steps
// that it need not have besides those of unseen. The error is a *RejectedError.
func Accept(trace []Seen, ended bool, hidden ...string) (steps map[string]bool, err error) {
	at := map[State]map[string]bool{Start(endless): {}}
	for i, seen := range trace {
		next := map[State]map[string]bool{}
		for s, names := range reach(at, hidden) {
			for _, step := range Next(s, endless, None) {
				if step.Action != seen.Action || Check(step.State, false) != nil {
					continue
				}
				if seen.Rows != nil && step.rows() != *seen.Rows {
					continue
				}
				note(next, step, names)
			}
		}
		if len(next) == 0 {
			return nil, &RejectedError{i, seen, len(at)}
		}
		at = next
	}
	steps = map[string]bool{}
	var why error
	for s, names := range at {
		if ended {
			if why = Check(consumed(s), true); why != nil {
				continue
			}
		}
		for name := range names {
			steps[name] = true
		}
	}
	if len(steps) == 0 {
		return nil, fmt.Errorf("the trace may not end there: %w", why)
	}
	return steps, nil
}

// consumed lets consumers go on, whose steps need not be in a trace.
func consumed(s State) State {
	for again := true; again; {
		again = false
		for _, step := range Next(s, endless, None) {
			if step.Name == "effect" || step.Name == "acknowledge" {
				s, again = step.State, true
				break
			}
		}
	}
	return s
}

// reach adds what unseen steps lead to.
func reach(at map[State]map[string]bool, hidden []string) map[State]map[string]bool {
	all, front := map[State]map[string]bool{}, at
	for s, names := range at {
		all[s] = names
	}
	for range between {
		next := map[State]map[string]bool{}
		for s, names := range front {
			for _, step := range Next(s, endless, None) {
				quiet := step.Name == "settle" && step.rows() == s.rows() // of nothing: nobody hears of it
				quiet = quiet || unseen[step.Name] || slices.Contains(hidden, step.Name)
				if _, known := all[plain(step.State)]; known || !quiet || Check(step.State, false) != nil {
					continue
				}
				note(next, step, names)
			}
		}
		for s, names := range next {
			all[s] = names
		}
		if front = next; len(front) == 0 {
			break
		}
	}
	return all
}

// note keeps a state and which steps have led to it.
func note(states map[State]map[string]bool, step Step, before map[string]bool) {
	s := plain(step.State)
	if _, known := states[s]; known {
		return
	}
	names := map[string]bool{step.Name: true}
	for name := range before {
		names[name] = true
	}
	states[s] = names
}

// plain tells only whether something has gone wrong so far, and not how often; and it forgets what
// no later step asks.
func plain(s State) State {
	if s.Budget != endless {
		s.Budget = Budget{Crashes: 50, Failures: 50, Failovers: 50, Replays: 50, Consumers: 50}
	}
	return s
}
