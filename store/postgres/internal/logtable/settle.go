package logtable

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Settle implements outbox.Store.
func (l *Store) Settle(
	ctx context.Context, owner uuid.UUID, lanes []outbox.Lane, outcomes []outbox.Outcome,
) (outbox.Settled, error) {
	t := settling{Store: l, owner: owner, lanes: lanes}
	err := t.settle(ctx, outcomes)
	switch {
	case err != nil:
		return outbox.Settled{}, pgtable.NameBlocker(ctx, l.Pool, l.Layout.Table, err)
	case len(t.refusal.Outcomes) > 0:
		return t.settled, &t.refusal
	}
	return t.settled, nil
}

// settling is the work of one Settle: what sinks owe and what is dead is copied, and the position
// noted, in one transaction.
type settling struct {
	*Store
	owner   uuid.UUID
	lanes   []outbox.Lane
	settled outbox.Settled
	refusal outbox.RefusedError
	asked   bool // whether the table's rights are there
}

// compactEvery is after how many notes of this process those that say nothing any more are removed.
const compactEvery = 1024

// settle settles outcomes, in halves where they are refused together.
func (t *settling) settle(ctx context.Context, outcomes []outbox.Outcome) error {
	err := t.once(ctx, outcomes)
	if pgtable.Transient(err) {
		err = t.once(ctx, outcomes)
	}
	if !t.asked || !pgtable.OfAccess(err) {
		t.asked = pgtable.OfAccess(err)
		if whole := t.whole(ctx, err); whole != nil {
			return whole
		}
	}
	if !pgtable.Refused(err) {
		return err
	}
	if half := len(outcomes) / 2; half > 0 {
		if err := t.settle(ctx, outcomes[:half]); err != nil {
			return err
		}
		return t.settle(ctx, outcomes[half:])
	}
	if o := outcomes[0]; pgtable.OfTheData(err) && pgtable.Abandon(&o, err) {
		rec := *o.Record
		o.Record = &rec
		for _, sql := range append([]string{t.sql.dead}, t.sql.deadReduced[:]...) { // each holds less of the row
			if buried := t.settleBy(ctx, []outbox.Outcome{o}, sql); buried == nil || !pgtable.Refused(buried) {
				return buried
			}
			rec.TenantID = "" // the default one
		}
	}
	t.refusal.Outcomes = append(t.refusal.Outcomes, outcomes...)
	if t.refusal.Err == nil {
		t.refusal.Err = err
	}
	return nil
}

// once is one request.
func (t *settling) once(ctx context.Context, outcomes []outbox.Outcome) error {
	return t.settleBy(ctx, outcomes, t.sql.dead)
}

// settleBy is once, with the statement that writes dead letters.
func (t *settling) settleBy(ctx context.Context, outcomes []outbox.Outcome, letters string) error {
	numbers, epochs := pgtable.SplitLanes(t.lanes)
	guard := func(args ...any) []any { return append([]any{t.LeaseName(), t.owner, numbers, epochs}, args...) }
	var batch pgx.Batch
	var owed pgtable.Debts
	var dead pgtable.Deaths
	var deadLanes []int16 // one entry a letter
	var eras []string     // one entry a row that a sink owes
	t.mu.Lock()
	for i := range outcomes {
		switch o := &outcomes[i]; {
		case o.State == outbox.Dead:
			dead.Add(o)
			for range o.Failures {
				deadLanes = append(deadLanes, o.Record.Lane)
			}
		case len(o.Owed) > 0:
			owed.Add(o)
			eras = append(eras, t.eraOf(o.Record.Lane))
		}
	}
	marks := t.mark(outcomes)
	lanes, place := t.moved(marks)
	compact := t.notes%compactEvery == 0
	t.notes++
	t.mu.Unlock()
	if len(owed.Positions)+dead.Records > 0 {
		batch.Queue(t.sql.durable)
	}
	if len(owed.Positions) > 0 {
		batch.Queue(t.sql.owed, append(guard(owed.Args()...), eras)...)
	}
	if dead.Records > 0 {
		batch.Queue(t.sql.apps, dead.Tenants)
		batch.Queue(letters, append(guard(dead.Args(t.Layout.Table)...), deadLanes)...)
	}
	if compact {
		batch.Queue(t.sql.compact, t.LeaseName(), outbox.LaneCount)
	}
	var held *int64
	batch.Queue(t.sql.settle, guard(noteArgs(lanes, place)...)...).
		QueryRow(func(row pgx.Row) error { return row.Scan(&held) })
	err := t.Pool.SendBatch(ctx, &batch).Close()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		for _, m := range marks {
			m.undo()
		}
		return fmt.Errorf("settle in %s: %w", t.Layout.Table, err)
	}
	t.noted(lanes, place)
	for claim := range claimsOf(marks) {
		t.advance(claim)
	}
	t.count(outcomes, held)
	return nil
}

// count counts what was settled, and forgets the lanes that went to another relay.
func (t *settling) count(outcomes []outbox.Outcome, held *int64) {
	for i := range outcomes {
		lane := outcomes[i].Record.Lane
		switch {
		case held == nil || *held&pgtable.Bit(lane) == 0:
			t.settled.Lost++
			delete(t.Store.lanes, lane)
		case outcomes[i].State == outbox.Dead:
			t.settled.Dead++
		default:
			t.settled.Delivered++
		}
	}
}

// marked is a row that counts as settled once the request has succeeded.
type marked struct {
	claim *batch // nil: it is none of the last claim's
	row   int
	place *progress
	at    int64
}

func (m *marked) undo() {
	if m.claim != nil {
		m.claim.rows[m.row].done = false
	} else {
		delete(m.place.done, m.at)
	}
}

// mark marks the rows of outcomes as settled. The caller holds mu.
func (l *Store) mark(outcomes []outbox.Outcome) (all []marked) {
	for i := range outcomes {
		rec := outcomes[i].Record
		lane := l.lanes[rec.Lane]
		if lane == nil {
			continue
		}
		if lane.claim != nil {
			if at, ok := lane.claim.row(rec.Position); ok && lane.claim.rows[at].lane == rec.Lane {
				lane.claim.rows[at].done = true
				all = append(all, marked{claim: lane.claim, row: at})
				continue
			}
		}
		if lane.place.done == nil {
			lane.place.done = map[int64]bool{}
		}
		lane.place.done[rec.Position] = true
		all = append(all, marked{place: lane.place, at: rec.Position})
	}
	return all
}

// eraOf is the era in which a lane was claimed, "" where that is not known. The caller holds mu.
func (l *Store) eraOf(lane int16) string {
	if at := l.lanes[lane]; at != nil {
		return at.place.era
	}
	return ""
}

// claimsOf are the claims of marked rows, mostly one.
func claimsOf(marks []marked) map[*batch]bool {
	claims := map[*batch]bool{}
	for _, m := range marks {
		if m.claim != nil {
			claims[m.claim] = true
		}
	}
	return claims
}

// moved returns lanes that move to a place by what is marked, as bits. Of several places it is the
// one that most rows lead to: the others are noted with a later request. The caller holds mu.
func (l *Store) moved(marks []marked) (lanes int64, to *progress) {
	most := 0
	for claim := range claimsOf(marks) {
		n, behind := claim.gaps()
		at := map[*progress]int64{}
		for lane, from := range claim.from {
			if l.lanes[lane] == nil {
				continue
			}
			if place := claim.after(from, n); !behind[lane] && place != l.lanes[lane].place {
				at[place] |= pgtable.Bit(lane)
			}
		}
		for place, of := range at {
			if count := bits.OnesCount64(uint64(of)); count > most {
				most, lanes, to = count, of, place
			}
		}
	}
	return lanes, to
}

// advance moves the lanes of a claim as far as its rows are settled, and tells whether one has
// moved to another position. The caller holds mu.
func (l *Store) advance(c *batch) (moved bool) {
	n, behind := c.gaps()
	for lane, from := range c.from {
		at := l.lanes[lane]
		if at == nil || at.claim != c {
			continue
		}
		if !behind[lane] {
			place := c.after(from, n)
			moved = moved || place.position != at.place.position
			at.place = place
		}
	}
	for _, r := range c.rows[:n] {
		if !r.done || !behind[r.lane] {
			continue
		}
		if from := c.from[r.lane]; from.done == nil {
			from.done = map[int64]bool{r.position: true}
		} else {
			from.done[r.position] = true
		}
	}
	return moved
}

// noteArgs are $5 and the following of settle.sql.
func noteArgs(lanes int64, to *progress) []any {
	if to == nil {
		to = origin() // of no lane
	}
	var at *int64
	var seen *string
	if to.late != nil {
		at, seen = &to.late.position, &to.late.snapshot.text
	}
	return []any{lanes, to.position, to.snapshot.text, at, seen, eventrow.OrNull(to.era)}
}
