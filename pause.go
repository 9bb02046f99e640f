package outbox

import (
	"slices"
	"strings"
)

// Paused is what operators have paused of a table. Names may be patterns, in which * stands for any
// text. A pause takes effect between two batches and counts no attempt: what is paused waits, with
// what is behind it in its key.
type Paused struct {
	Table        bool // all of it
	Topics       []string
	Destinations []string
}

// Parts tells whether topics or destinations are paused.
func (p Paused) Parts() bool { return len(p.Topics)+len(p.Destinations) > 0 }

// Holds tells whether an event of a topic waits that has these destinations still to go to.
func (p Paused) Holds(topic string, destinations []string) bool {
	return p.Table || anyFits(p.Topics, topic) ||
		slices.ContainsFunc(destinations, func(d string) bool { return anyFits(p.Destinations, d) })
}

func anyFits(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, name) })
}

// fits tells whether a name is one of a pattern, in which * stands for any text.
func fits(pattern, name string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	name, ok := strings.CutPrefix(name, first)
	if !ok || !wild {
		return ok && name == ""
	}
	for part := ""; ; {
		part, rest, wild = strings.Cut(rest, "*")
		if !wild {
			return strings.HasSuffix(name, part)
		}
		at := strings.Index(name, part)
		if at < 0 {
			return false
		}
		name = name[at+len(part):]
	}
}

// HeldBack returns what tells of each record of a claim, asked in their order, whether it is paused
// or behind one of its key that is. It is nil where nothing is paused.
func (l *ClaimLimit) HeldBack() func(*Record) bool {
	if !l.Paused.Parts() {
		return nil
	}
	held := HeldKeys{}
	return func(rec *Record) bool {
		if held.Holds(rec) {
			return true
		}
		var destinations []string
		if len(l.Paused.Destinations) > 0 && rec.Defect == "" {
			// One without a destination is handed out: it becomes a dead letter.
			destinations, _ = rec.Outstanding(l.Destination)
		}
		if !l.Paused.Holds(rec.Topic, destinations) {
			return false
		}
		held.Hold(rec)
		return true
	}
}
