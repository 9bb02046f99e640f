package model

import (
	"fmt"
	"slices"
)

// The bounds of the search.
const (
	relays = 2
	events = 3
	lanes  = 2 // one for each key
)

// keyOf is the key, and the lane, of each event: the first two stay in order.
var keyOf = [events]int{0, 0, 1}

// Mutant is a rule of the protocol that is left out.
type Mutant int

// The mutants, each with what guards against it in the code.
const (
	None            Mutant = iota
	NoEpochGuard           // a settle changes rows whoever holds the lane (held in the settle statements)
	AttemptsAsGuard        // a settle asks for the row's attempts in place of the lane's epoch
	SettleFirst            // an event is recorded as delivered before it is published
	Fence                  // a claim asks for positions beyond the last one, and not by state
	PassFailed             // what is behind a failed event of its key goes out (outbox.HeldKeys)
	NoExpiry               // a lane is taken over although its lease has not lapsed
	SameGeneration         // an operator's replay keeps the generation, so that the sink refuses it as a copy
	GuardApart             // a consumer remembers the id in another transaction than its effect
	NoGuard                // a consumer remembers nothing
	AckFirst               // a consumer acknowledges before its effect
	mutants
)

// row is what the database has of an event.
type row struct {
	written   bool // its transaction has drawn a position
	committed bool
	undone    bool // rolled back
	state     state
	attempts  int8
	replays   int8 // its generation
	position  int8
}

type state int8

const (
	pending state = iota
	delivered
	dead
)

// lease is what the database has of a lane.
type lease struct {
	owner  int8 // 0: nobody's
	epoch  int8
	lapsed bool
}

// turn is what a relay does at a lane.
type turn struct {
	epoch   int8 // at which it believes to hold the lane; 0: it does not
	step    step
	results [events]result // of what was claimed
	tries   [events]int8   // attempts of the row, as claimed
}

type step int8

const (
	idle step = iota
	publishing
	settling
)

type result int8

const (
	no        result = iota // not claimed
	claimed                 // to be published
	ok                      // the sink has it
	failed                  // it refused it: an attempt
	unknown                 // no answer came
	unsettled               // claimed, and not attempted behind a failure
)

// consumer is what a consumer has of an event's message.
type consumer struct {
	remembered, acked bool
	effects           int8
	half              bool // remembers the id, and has not had the effect yet (GuardApart)
}

// State is all there is. It is comparable: a search tells states by it.
type State struct {
	Rows  [events]row
	Lanes [lanes]lease
	Turns [relays][lanes]turn
	// Taken is what the sink remembers: by event, the generations plus one.
	Taken    [events]int8
	Messages [events]consumer
	Asked    [events]int8 // replays that operators have asked for
	// Known are the generations plus one that a relay has published with an answer, as long as its
	// process lives. They are asked for after a failover alone, and a search without one would tell
	// states by them.
	Known [relays][events]int8
	Budget
	Broken rule // by the last step
	drawn  int8 // the last position that was drawn
	fence  int8 // the furthest settled position
}

// rule is one that a step can break.
type rule int8

const (
	unbroken rule = iota
	copySent
	outOfOrder
	strangersSettle
)

func (r rule) String() string {
	return [...]string{"", "a copy was sent although nothing went wrong",
		"an event went out before an earlier one of its key", "a relay settled at a lane that is another's"}[r]
}

// Budget is how often what need not happen may still happen: a lease that lapses or a process that
// dies, a message that is refused or not answered, a failover that forgets a settle, a replay; and
// a consumer that dies. Where none does, a consumer is one step, which keeps the search small.
type Budget struct{ Crashes, Failures, Failovers, Replays, Consumers int8 }

// Start is the empty system.
func Start(b Budget) State { return State{Budget: b} }

// Step is something that happens, and what it leads to.
type Step struct {
	Action
	State
}

// Action is what happens: to an event, at a lane or of a relay where it is of one.
type Action struct {
	Name               string
	Relay, Lane, Event int8 // -1: of none
}

func (a Action) String() string {
	text := a.Name
	for _, of := range []struct {
		name string
		n    int8
	}{{"relay", a.Relay}, {"lane", a.Lane}, {"event", a.Event}} {
		if of.n >= 0 {
			text += fmt.Sprintf(" %s %d", of.name, of.n)
		}
	}
	return text
}

// Next returns everything that may happen next, where the search began with some budget.
func Next(s State, all Budget, m Mutant) []Step {
	n := next{from: s, all: all, mutant: m}
	n.producers()
	for l := range lanes {
		n.database(l)
		for r := range relays {
			n.relay(r, l)
		}
	}
	for e := range events {
		n.consumer(e)
		n.operator(e)
	}
	return n.steps
}

type next struct {
	from   State
	all    Budget // what the search began with
	mutant Mutant
	steps  []Step
}

func (n *next) add(to State, name string, relay, lane, event int) {
	n.steps = append(n.steps, Step{Action{name, int8(relay), int8(lane), int8(event)}, to})
}

// producers write and commit. The transactions of one key follow each other (Strict); those of
// others overlap, so that a lower position may be committed later. One event's transaction may be
// rolled back.
func (n *next) producers() {
	for e := range events {
		s := n.from
		r := &s.Rows[e]
		switch {
		case !r.written:
			first := e > 0 && keyOf[e-1] == keyOf[e]
			if first && !s.Rows[e-1].committed && !s.Rows[e-1].undone {
				continue
			}
			r.written = true
			if n.mutant == Fence { // nothing else asks for positions, and a search would tell states by them
				r.position = s.drawn + 1
				s.drawn++
			}
			n.add(s, "write", -1, keyOf[e], e)
		case !r.committed && !r.undone:
			r.committed = true
			n.add(s, "commit", -1, keyOf[e], e)
			if e == 0 {
				r.committed, r.undone = false, true
				n.add(s, "roll back", -1, keyOf[e], e)
			}
		}
	}
}

// database is what happens to a lane by itself.
func (n *next) database(l int) {
	if s := n.from; s.Lanes[l].owner != 0 && !s.Lanes[l].lapsed && s.Crashes > 0 {
		s.Lanes[l].lapsed = true // its relay sleeps, hangs or is cut off, and may come back as a zombie
		s.Crashes--
		n.add(s, "lapse", -1, l, -1)
	}
}

// relay is what a relay does at a lane.
func (n *next) relay(r, l int) {
	n.lease(r, l)
	t := n.from.Turns[r][l]
	switch t.step {
	case idle:
		if t.epoch != 0 {
			n.claim(r, l)
		}
	case publishing:
		n.publish(r, l)
	case settling:
		n.settle(r, l)
	}
}

// lease takes a lane, or crashes with it: another process comes in the relay's place, which knows
// nothing.
func (n *next) lease(r, l int) {
	s := n.from
	at, t := &s.Lanes[l], &s.Turns[r][l]
	mine := at.owner == int8(r+1) && t.epoch == at.epoch
	early := n.mutant == NoExpiry && at.epoch < 3 // or it would go on for ever
	if free := at.owner == 0 || at.lapsed || early; free && !mine && t.step == idle {
		at.owner, at.lapsed = int8(r+1), false
		at.epoch++
		t.epoch = at.epoch
		n.add(s, "lease", r, l, -1)
	}
	if s := n.from; s.Crashes > 0 && s.Turns[r][l].step != idle {
		s.Crashes--
		s.Turns[r][l] = turn{}
		for e := range events {
			if keyOf[e] == l {
				s.Known[r][e] = 0
			}
		}
		if s.Lanes[l].owner == int8(r+1) {
			s.Lanes[l].lapsed = true
		}
		n.add(s, "crash", r, l, -1)
	}
}

// claim reads what is pending of the lane. The relay then looks at its own clock, which ends no
// later than the lease.
func (n *next) claim(r, l int) {
	s := n.from
	t := &s.Turns[r][l]
	if s.Lanes[l].owner != int8(r+1) || s.Lanes[l].epoch != t.epoch || s.Lanes[l].lapsed {
		t.epoch = 0
		n.add(s, "lose", r, l, -1)
		return
	}
	any := false
	for e, row := range s.Rows {
		if keyOf[e] != l || !row.committed || row.state != pending {
			continue
		}
		if n.mutant == Fence && row.position <= s.fence {
			continue
		}
		t.results[e], t.tries[e], any = claimed, row.attempts, true
	}
	if !any {
		return
	}
	if t.step = publishing; n.mutant == SettleFirst {
		n.record(&s, r, l, true)
	}
	n.add(s, "claim", r, l, -1)
}

// publish hands the first event that is left to the sink. It does not ask whether the lease lasts:
// a process that was stopped in front of this step wakes in it.
func (n *next) publish(r, l int) {
	t := n.from.Turns[r][l]
	for e, was := range t.results {
		if was != claimed {
			continue
		}
		s := n.from
		if s.Known[r][e] > s.Rows[e].replays { // the database has forgotten that it was settled
			s.Turns[r][l].answer(e, ok)
			n.add(s, "recall", r, keyOf[e], e)
			s = n.from
		}
		n.take(&s, e)
		s.Turns[r][l].answer(e, ok)
		if n.all.Failovers > 0 {
			s.Known[r][e] = s.Rows[e].replays + 1
		}
		n.add(s, "publish", r, keyOf[e], e)
		if n.from.Failures > 0 {
			s.Failures--
			n.stop(&s, r, l, e, unknown)
			n.add(s, "no answer", r, keyOf[e], e)
			s.Turns[r][l].results[e] = failed // whose endpoint is one's own counts an attempt for it
			n.add(s, "no answer", r, keyOf[e], e)
			s = n.from
			s.Failures--
			n.stop(&s, r, l, e, unsettled)
			n.add(s, "cut", r, keyOf[e], e) // the time of the call is over before this one is begun
			if s = n.from; !s.took(e) {     // one that the sink has it calls a copy, and does not refuse
				s.Failures--
				n.stop(&s, r, l, e, failed)
				n.add(s, "refusal", r, keyOf[e], e)
			}
		}
		return
	}
}

// stop ends a publish at a failure: what is behind it in its key is not attempted.
func (n *next) stop(s *State, r, l, e int, why result) {
	t := &s.Turns[r][l]
	for o := e + 1; o < events; o++ {
		if t.results[o] == claimed && n.mutant != PassFailed {
			t.results[o] = unsettled
		}
	}
	t.answer(e, why)
}

// answer takes an answer. With the last one the turn is published.
func (t *turn) answer(e int, r result) {
	t.results[e] = r
	if !slices.Contains(t.results[:], claimed) {
		t.step = settling
	}
}

func (s *State) took(e int) bool { return s.Taken[e] > s.Rows[e].replays }

// take is what the sink does with a message: it refuses a copy of the same generation.
func (n *next) take(s *State, e int) {
	if s.took(e) {
		if s.Budget == n.all {
			s.Broken = copySent
		}
		return
	}
	s.Taken[e] = s.Rows[e].replays + 1
	s.Messages[e].acked = false // a replay is another message
	if first := s.Rows[0]; e == 1 && first.committed && first.state == pending && s.Taken[0] == 0 && first.replays == 0 {
		s.Broken = outOfOrder
	}
}

// settle records the results of a turn.
func (n *next) settle(r, l int) {
	s := n.from
	if n.mutant != SettleFirst {
		n.record(&s, r, l, false)
	}
	s.Turns[r][l] = turn{epoch: s.Turns[r][l].epoch}
	n.add(s, "settle", r, l, -1)
}

// record writes results into the rows, if the relay holds the lane at its epoch. What has no result
// stays pending.
func (n *next) record(s *State, r, l int, all bool) {
	t := s.Turns[r][l]
	holds := s.Lanes[l].owner == int8(r+1) && s.Lanes[l].epoch == t.epoch
	for e, result := range t.results {
		row := &s.Rows[e]
		guarded := holds
		switch n.mutant {
		case NoEpochGuard:
			guarded = true
		case AttemptsAsGuard:
			guarded = row.attempts == t.tries[e]
		}
		change := all && result == claimed || result == ok || result == failed
		if !change || !guarded || row.state != pending {
			continue
		}
		if !holds {
			s.Broken = strangersSettle
		}
		switch {
		case result != failed:
			row.state = delivered
			s.fence = max(s.fence, row.position)
		case row.attempts == 1:
			row.attempts, row.state = 2, dead
		default:
			row.attempts++
		}
	}
}

// consumer handles the message of an event: the id and the effect in one transaction, then the
// acknowledgement. What is not acknowledged comes again.
func (n *next) consumer(e int) {
	s := n.from
	c := &s.Messages[e]
	switch {
	case s.Taken[e] == 0 || c.acked:
		return
	case n.mutant == AckFirst:
		c.acked, c.effects = true, c.effects+1
	case c.remembered && !c.half || n.mutant == NoGuard && c.effects > 0:
		c.acked = true
		n.add(s, "acknowledge", -1, -1, e)
		if again := n.from; n.mutant == NoGuard && n.consumerDies(&again) {
			again.Messages[e].effects++
			n.add(again, "effect", -1, -1, e)
		}
		return
	case n.mutant == GuardApart && !c.remembered:
		c.remembered, c.half = true, true
		n.add(s, "remember", -1, -1, e)
		return
	case n.mutant == GuardApart:
		c.effects, c.half = c.effects+1, false
	default:
		c.remembered = n.mutant != NoGuard
		c.effects++
		c.acked = n.all.Consumers == 0
	}
	n.add(s, "effect", -1, -1, e)
	if s = n.from; n.consumerDies(&s) {
		switch c := &s.Messages[e]; n.mutant {
		case AckFirst:
			c.acked = true
		case GuardApart:
			c.half = false // its successor finds the id
		default:
			return // its transaction is rolled back, as if nothing had happened
		}
		n.add(s, "consumer crash", -1, -1, e)
	}
}

func (n *next) consumerDies(s *State) bool {
	s.Consumers--
	return s.Consumers >= 0
}

// operator replays a dead letter, and the database forgets its last settle in a failover.
func (n *next) operator(e int) {
	if s := n.from; s.Rows[e].state != pending && s.Replays > 0 {
		s.Replays--
		s.Asked[e]++
		s.Rows[e].state, s.Rows[e].attempts = pending, 0
		if n.mutant != SameGeneration {
			s.Rows[e].replays++
		}
		n.add(s, "replay", -1, keyOf[e], e)
	}
	if s := n.from; s.Rows[e].state == delivered && s.Failovers > 0 {
		s.Failovers--
		s.Rows[e].state = pending
		n.add(s, "failover", -1, keyOf[e], e)
	}
}
