package postgres

import (
	"math"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
)

// logPlace is how far some lanes of a log have come: every row up to position that the snapshot sees is settled.
//
// A row that commits late stands in front of the position, unseen by the snapshot. All such rows are claimed with the
// next batch. Where they do not fit into one they are gone through in the order of their positions, as a later snapshot
// sees them. Such a pass has come as far as late.
//
// A place is shared by all lanes that are there, and does not change, but for done.
type logPlace struct {
	era      string
	position int64
	snapshot snapshot
	late     *latePass
	// done are rows that are settled, though an earlier one of their lane is not: the database has refused to record it,
	// or the sink was not there for it.
	done map[int64]bool
}

type latePass struct {
	position int64
	snapshot snapshot
}

// origin is in front of all rows.
func origin() *logPlace { return &logPlace{snapshot: snapshot{text: "3:3:", xmax: 3}} }

// settled tells whether a row that a claim from this place has found is settled already.
func (p *logPlace) settled(position int64, xid uint64) bool {
	return p.done[position] || position <= p.position && p.snapshot.sees(xid)
}

// logLane is a lane of a log as a relay holds it.
type logLane struct {
	epoch int64
	place *logPlace
	claim *logClaim // the last one, nil: none yet
	noted *logPlace // was written last
	when  time.Time
}

// logClaim is what one claim has found, to be settled part by part.
type logClaim struct {
	from     map[int16]*logPlace
	era      string   // of all places in from
	position int64    // of all places in from
	bound    int64    // it has looked no further
	snapshot snapshot // in which it was read
	rows     []logRow // in the order of their positions
	late     int      // how many of the rows stand in front of the position
	whole    bool     // late are all of that kind that there are
	end      int64    // where the lanes are once all rows are settled
	places   map[*logPlace]*logPlace
	at       int // of how many settled rows places are
}

// logRow is a row that a claim has found.
type logRow struct {
	position int64
	lane     int16
	done     bool // settled
}

// row returns where in rows one stands.
func (c *logClaim) row(position int64) (int, bool) {
	return slices.BinarySearchFunc(c.rows, position, func(r logRow, p int64) int {
		switch {
		case r.position < p:
			return -1
		case r.position > p:
			return 1
		}
		return 0
	})
}

// gaps returns how many rows count as settled, up to the last one that is, and the lanes that have an unsettled row
// before it. Those stay where they are.
func (c *logClaim) gaps() (n int, behind map[int16]bool) {
	for i := len(c.rows); i > 0; i-- {
		if c.rows[i-1].done {
			n = i
			break
		}
	}
	for _, r := range c.rows[:n] {
		if !r.done {
			if behind == nil {
				behind = map[int16]bool{}
			}
			behind[r.lane] = true
		}
	}
	return n, behind
}

// after returns where lanes that came from a place are once n rows are settled. Equal lanes get the same answer.
func (c *logClaim) after(from *logPlace, n int) *logPlace {
	if c.places == nil || c.at != n {
		c.places, c.at = map[*logPlace]*logPlace{}, n
	}
	inLate := n < c.late || !c.whole
	key := from
	if !inLate {
		key = nil // wherever they came from
	}
	if place, ok := c.places[key]; ok {
		return place
	}
	place := &logPlace{era: c.era, position: c.position, snapshot: c.passed(from)}
	switch {
	case inLate && n > 0:
		place.snapshot = from.snapshot
		place.late = &latePass{c.rows[n-1].position, c.passed(from)}
	case inLate:
		place = from
	case n == len(c.rows):
		place.position = c.end
	case n > c.late:
		place.position = c.rows[n-1].position
	}
	c.places[key] = place
	return place
}

// passed is the snapshot whose late rows the claim has gone through.
func (c *logClaim) passed(from *logPlace) snapshot {
	if from.late != nil {
		return from.late.snapshot
	}
	return c.snapshot
}

// group is some lanes that are at equal positions.
type logGroup struct {
	lanes  []int16
	places []*logPlace // different ones
	bound  int64       // where others are
}

// groupOf chooses which of some lanes to claim for: those that are furthest behind, or furthest ahead. The former come
// no further than the next others are, and go on together with them. By turns, so that nobody waits for lanes that
// another relay has left far behind.
func groupOf(lanes []outbox.Lane, at map[int16]*logLane, ahead bool) logGroup {
	first := at[lanes[0].Number].place
	for _, l := range lanes[1:] {
		p := at[l.Number].place
		further := p.position > first.position
		if p.position == first.position {
			if p.late != nil && first.late == nil { // alone in its pass
				first = p
			}
		} else if further == ahead {
			first = p
		}
	}
	g := logGroup{bound: math.MaxInt64}
	for _, l := range lanes {
		switch p := at[l.Number].place; {
		case p == first, p.position == first.position && p.late == nil && first.late == nil:
			g.lanes = append(g.lanes, l.Number)
			if !slices.Contains(g.places, p) {
				g.places = append(g.places, p)
			}
		case p.position > first.position:
			g.bound = min(g.bound, p.position)
		}
	}
	return g
}
