package model

import "fmt"

// Check says what is wrong with a state, or returns nil. quiet says that nothing happens any more
// unless something goes wrong.
func Check(s State, quiet bool) error {
	if s.Broken != unbroken {
		return fmt.Errorf("%s", s.Broken)
	}
	for e, row := range s.Rows {
		c := s.Messages[e]
		switch {
		case row.undone && s.Taken[e] > 0:
			return fmt.Errorf("event %d was published, and its transaction is rolled back", e)
		case row.state == delivered && !s.took(e):
			return fmt.Errorf("event %d counts as delivered, and the sink does not have it", e)
		case c.effects > 1:
			return fmt.Errorf("event %d has had its effect %d times", e, c.effects)
		case !quiet:
			continue
		case row.committed && row.state == pending:
			return fmt.Errorf("event %d is never delivered", e)
		case row.state == delivered && s.Taken[e] != s.Asked[e]+1:
			return fmt.Errorf("event %d was replayed %d times, and the sink refused it as a copy", e, s.Asked[e])
		case s.Taken[e] > 0 && c.effects == 0:
			return fmt.Errorf("event %d arrived and never has its effect", e)
		}
	}
	return nil
}

// Found is the run that a search has found to break a rule.
type Found struct {
	Why error
	Run []Action
}

// Search visits every state that can be reached, the nearest first, and returns how many there are.
// With a budget that lets something break it returns the shortest run that does.
func Search(b Budget, m Mutant) (states int, seen map[string]int, found *Found) {
	type origin struct {
		from   int
		action Action
	}
	start := Start(b)
	known := map[State]struct{}{start: {}}
	all, origins := []State{start}, []origin{{-1, Action{}}}
	seen = map[string]int{}
	for i := 0; i < len(all); i++ {
		quiet := true
		for _, step := range Next(all[i], b, m) {
			seen[step.Name]++
			quiet = quiet && step.Budget != all[i].Budget // a step that costs something is one that need not happen
			if _, ok := known[step.State]; !ok {
				known[step.State] = struct{}{}
				all, origins = append(all, step.State), append(origins, origin{i, step.Action})
			}
		}
		if err := Check(all[i], quiet); err != nil {
			found = &Found{Why: err}
			for at := i; origins[at].from >= 0; at = origins[at].from {
				found.Run = append([]Action{origins[at].action}, found.Run...)
			}
			return len(all), seen, found
		}
	}
	return len(all), seen, nil
}
