package logtable

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// progress is how far some lanes of a log have come: every row up to position that the snapshot
// sees is settled.
//
// A row that commits late stands in front of the position, unseen by the snapshot. All such rows
// are claimed with the next batch. Where they do not fit into one they are gone through in the
// order of their positions, as a later snapshot sees them. Such a pass has come as far as late.
//
// A place is shared by all lanes that are there, and does not change, but for done.
type progress struct {
	era      string
	position int64
	snapshot snapshot
	late     *latePass
	// done are rows that are settled, though an earlier one of their lane is not: the database has
	// refused to record it, or the sink was not there for it.
	done map[int64]bool
}

type latePass struct {
	position int64
	snapshot snapshot
}

// origin is in front of all rows.
func origin() *progress { return &progress{snapshot: snapshot{text: "3:3:", xmax: 3}} }

// settled tells whether a row that a claim from this place has found is settled already.
func (p *progress) settled(position int64, xid uint64) bool {
	return p.done[position] || position <= p.position && p.snapshot.sees(xid)
}

// held is a lane of a log as a relay holds it.
type held struct {
	epoch int64
	place *progress
	claim *batch    // the last one, nil: none yet
	noted *progress // was written last
	when  time.Time
}

// batch is what one claim has found, to be settled part by part.
type batch struct {
	from     map[int16]*progress
	era      string   // of all places in from
	position int64    // of all places in from
	bound    int64    // it has looked no further
	snapshot snapshot // in which it was read
	rows     []row    // in the order of their positions
	late     int      // how many of the rows stand in front of the position
	repeated bool     // two of the rows have one position
	whole    bool     // late are all of that kind that there are
	end      int64    // where the lanes are once all rows are settled
	places   map[*progress]*progress
	at       int // of how many settled rows places are
}

// row is a row that a claim has found.
type row struct {
	position int64
	lane     int16
	done     bool // settled
}

// row returns where in rows one stands.
func (c *batch) row(position int64) (int, bool) {
	return slices.BinarySearchFunc(c.rows, position, func(r row, p int64) int {
		switch {
		case r.position < p:
			return -1
		case r.position > p:
			return 1
		}
		return 0
	})
}

// gaps returns how many rows count as settled, up to the last one that is, and the lanes that have
// an unsettled row before it. Those stay where they are.
func (c *batch) gaps() (n int, behind map[int16]bool) {
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

// after returns where lanes that came from a place are once n rows are settled. Equal lanes get the
// same answer.
func (c *batch) after(from *progress, n int) *progress {
	if c.places == nil || c.at != n {
		c.places, c.at = map[*progress]*progress{}, n
	}
	inLate := n < c.late || !c.whole
	key := from
	if !inLate {
		key = nil // wherever they came from
	}
	if place, ok := c.places[key]; ok {
		return place
	}
	place := &progress{era: c.era, position: c.position, snapshot: c.passed(from)}
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
func (c *batch) passed(from *progress) snapshot {
	if from.late != nil {
		return from.late.snapshot
	}
	return c.snapshot
}

// group is some lanes that are at equal positions.
type group struct {
	lanes  []int16
	places []*progress // different ones
	bound  int64       // where others are
}

// groupOf chooses which of some lanes to claim for: those that are furthest behind, or furthest
// ahead. The former come no further than the next others are, and go on together with them. By
// turns, so that nobody waits for lanes that another relay has left far behind.
func groupOf(lanes []outbox.Lane, at map[int16]*held, ahead bool) group {
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
	g := group{bound: math.MaxInt64}
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

// snapshot is a pg_snapshot: which transactions had ended when it was taken.
type snapshot struct {
	text   string
	xmax   uint64   // the first transaction that it knows nothing of
	active []uint64 // those before that were in progress, ascending
}

// parseSnapshot reads PostgreSQL's text of one: xmin:xmax:xip,xip.
func parseSnapshot(text string) (snapshot, error) {
	s := snapshot{text: text}
	_, rest, ok := strings.Cut(text, ":")
	xmax, list, more := strings.Cut(rest, ":")
	var err error
	if s.xmax, err = strconv.ParseUint(xmax, 10, 64); !ok || !more || err != nil {
		return s, fmt.Errorf("read snapshot %q: want xmin:xmax:transactions", text)
	}
	for one := range strings.SplitSeq(list, ",") {
		if one == "" {
			continue
		}
		xid, err := strconv.ParseUint(one, 10, 64)
		if err != nil {
			return s, fmt.Errorf("read snapshot %q: %w", text, err)
		}
		s.active = append(s.active, xid)
	}
	slices.Sort(s.active)
	return s, nil
}

// sees tells whether a transaction had ended. Of one that did not commit there are no rows to be
// seen.
func (s *snapshot) sees(xid uint64) bool {
	_, active := slices.BinarySearch(s.active, xid)
	return xid < s.xmax && !active
}

// unseen returns what tells the transactions that one of some snapshots does not see: those that
// were in progress, as texts, and the first of all that are unknown.
func unseen(snapshots []snapshot) (active []string, first string) {
	xmax := snapshots[0].xmax
	for _, s := range snapshots[1:] {
		xmax = min(xmax, s.xmax)
	}
	var xids []uint64
	for _, s := range snapshots {
		for _, xid := range s.active {
			if xid < xmax {
				xids = append(xids, xid)
			}
		}
	}
	slices.Sort(xids)
	active = []string{} // not NULL
	for _, xid := range slices.Compact(xids) {
		active = append(active, strconv.FormatUint(xid, 10))
	}
	return active, strconv.FormatUint(xmax, 10)
}
