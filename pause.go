package outbox

import (
	"log/slog"
	"slices"
	"strings"
)

// Paused is what operators have paused of a table. Names may be patterns, in which * stands for any text. A pause takes
// effect between two batches and counts no attempt: what is paused waits, with what is behind it in its key.
type Paused struct {
	Table        bool // all of it
	Topics       []string
	Destinations []string
}

// parts tells whether topics or destinations are paused.
func (p Paused) parts() bool { return len(p.Topics)+len(p.Destinations) > 0 }

// Holds tells whether an event of a topic waits that has these destinations still to go to.
func (p Paused) Holds(topic string, destinations []string) bool {
	return p.Table || anyFits(p.Topics, topic) ||
		slices.ContainsFunc(destinations, func(d string) bool { return anyFits(p.Destinations, d) })
}

func (p Paused) equal(other Paused) bool {
	return p.Table == other.Table && slices.Equal(p.Topics, other.Topics) &&
		slices.Equal(p.Destinations, other.Destinations)
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

// HeldBack returns what tells of each record of a claim, asked in their order, whether it is paused or behind one of
// its key that is. It is nil where nothing is paused.
func (l *ClaimLimit) HeldBack() func(*Record) bool {
	if !l.Paused.parts() {
		return nil
	}
	held := heldKeys{}
	return func(rec *Record) bool {
		if held.holds(rec) {
			return true
		}
		var destinations []string
		if len(l.Paused.Destinations) > 0 && rec.Defect == "" {
			// One without a destination is handed out: it becomes a dead letter.
			destinations, _ = rec.outstanding(l.Destination)
		}
		if !l.Paused.Holds(rec.Topic, destinations) {
			return false
		}
		held.hold(rec)
		return true
	}
}

// pauses are those of the relay's table, as its last lease check found them.
type pauses struct {
	Paused
	changes int
}

// change takes over what a lease check found, and tells whether it is something new.
func (p *pauses) change(found Paused) bool {
	if p.equal(found) {
		return false
	}
	p.Paused = found
	p.changes++
	return true
}

func (p *pauses) log(logger *slog.Logger, table string) {
	switch {
	case p.Table:
		logger.Warn("table paused by an operator", "table", table)
	case p.parts():
		logger.Warn("topics or destinations paused by an operator", "table", table,
			"topics", p.Topics, "destinations", p.Destinations)
	default:
		logger.Info("resumed by an operator", "table", table)
	}
}

// paused returns what is paused now.
func (k *leaseKeeper) paused() pauses {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pauses
}
