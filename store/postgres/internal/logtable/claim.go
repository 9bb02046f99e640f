package logtable

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// noteEvery is how often a position is written of lanes that have nothing to settle, while rows of
// others pass them.
const noteEvery = time.Second

// Claim implements outbox.Store. What limit leaves out is read all the same: a position passes no
// row that is not settled.
func (l *Store) Claim(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) ([]*outbox.Record, error) {
	if len(lanes) == 0 {
		return nil, nil
	}
	defer l.Pool.Distrust(ctx)
	claim, records, err := l.next(ctx, lanes, limit)
	for another := (anotherEra{}); errors.As(err, &another); claim, records, err = l.next(ctx, lanes, limit) {
		l.mu.Lock()
		l.era = another.era
		l.mu.Unlock()
	}
	if err == nil {
		err = l.verify(ctx, lanes, claim.repeated)
	}
	if err != nil {
		return nil, pgtable.NameBlocker(ctx, l.Pool, l.Layout.Table, err)
	}
	l.mu.Lock()
	for lane := range claim.from {
		l.lanes[lane].claim = claim
	}
	if len(records) == 0 {
		l.advance(claim)
	}
	of, place := l.unnoted(claim)
	l.mu.Unlock()
	if len(records) > 0 || place == nil {
		return records, nil
	}
	if _, err := l.Pool.Exec(ctx, l.sql.note, append([]any{l.LeaseName()}, noteArgs(of, place)...)...); err != nil {
		return nil, fmt.Errorf("note a position of %s: %w", l.Layout.Table, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noted(of, place)
	return nil, nil
}

// next claims for lanes that are at one place, or after some claims will be.
func (l *Store) next(
	ctx context.Context, lanes []outbox.Lane, limit outbox.ClaimLimit,
) (*batch, []*outbox.Record, error) {
	if err := l.load(ctx, lanes); err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	l.turns++
	g := groupOf(lanes, l.lanes, l.turns%2 == 0)
	l.mu.Unlock()
	claim, records, err := l.read(ctx, g, limit)
	if err == nil && !claim.whole && len(g.places) > 1 { // each goes through its late rows alone
		return l.read(ctx, l.partOf(g), limit)
	}
	return claim, records, err
}

// unnoted returns a place of some lanes of a claim, as bits, that has not been written for some
// time. The caller holds mu.
func (l *Store) unnoted(c *batch) (lanes int64, place *progress) {
	for n := range c.from {
		at := l.lanes[n]
		if at.place != at.noted && at.place.position > 0 && time.Since(at.when) >= noteEvery {
			place = at.place
			break
		}
	}
	for n := range c.from {
		if place != nil && l.lanes[n].place == place {
			lanes |= pgtable.Bit(n)
		}
	}
	return lanes, place
}

// noted remembers what was written. The caller holds mu.
func (l *Store) noted(lanes int64, place *progress) {
	for n, at := range l.lanes {
		if lanes&pgtable.Bit(n) != 0 {
			at.noted, at.when = place, time.Now()
		}
	}
}

// partOf returns those lanes of a group that share one place.
func (l *Store) partOf(g group) group {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := group{places: g.places[:1], bound: g.bound}
	for _, lane := range g.lanes {
		if l.lanes[lane].place == g.places[0] {
			one.lanes = append(one.lanes, lane)
		}
	}
	return one
}

// read runs one claim.
func (l *Store) read(
	ctx context.Context, g group, limit outbox.ClaimLimit,
) (claim *batch, records []*outbox.Record, err error) {
	ask := l.rows.Size.Limit(limit)
	for _, p := range g.places {
		ask += len(p.done)
	}
	err = l.sieve.Claim(ctx, l.Pool, func(db pgtable.Querier, _ bool) (found bool, err error) {
		claim, records, err = l.query(ctx, db, l.sql.claim, ask, g, limit)
		return claim != nil && len(claim.rows) > 0, err
	}, func(db pgtable.Querier, least bool) ([]*outbox.Record, error) {
		statement := l.sql.unreadable
		if least {
			statement = l.sql.bare
		}
		claim, records, err = l.query(ctx, db, statement, 1, g, limit)
		return records, err
	})
	return claim, records, err
}

// query runs a claim of at most ask rows. With an error it returns what came before that.
func (l *Store) query(
	ctx context.Context, db pgtable.Querier, sql string, ask int, g group, limit outbox.ClaimLimit,
) (*batch, []*outbox.Record, error) {
	first := g.places[0]
	claim := &batch{from: map[int16]*progress{}, era: first.era, position: first.position, bound: g.bound}
	var lanes int64
	l.mu.Lock()
	for _, lane := range g.lanes {
		claim.from[lane] = l.lanes[lane].place
		lanes |= pgtable.Bit(lane)
	}
	l.mu.Unlock()
	snapshots := make([]snapshot, len(g.places))
	for i, p := range g.places {
		snapshots[i] = p.snapshot
	}
	active, unknown := unseen(snapshots)
	beyond, pass := int64(math.MinInt64), (*string)(nil)
	if first.late != nil {
		beyond, pass = first.late.position, &first.late.snapshot.text
	}
	if first.position == 0 { // nothing stands in front of it
		active, unknown = []string{}, fmt.Sprint(uint64(math.MaxUint64))
	}
	rows, err := db.Query(ctx, sql, pgtable.ClaimFormats, lanes, ask, claim.position, g.bound, active, unknown, beyond,
		pass)
	if err != nil {
		return nil, nil, fmt.Errorf("query %s: %w", l.Layout.Table, err)
	}
	defer rows.Close()
	read := reading{Store: l, claim: claim, limit: limit, ask: ask, pass: first.late != nil, read: l.rows.Batch(ask)}
	for rows.Next() {
		more, err := read.row(rows.RawValues())
		if err != nil {
			return nil, nil, fmt.Errorf("decode a row of %s: %w", l.Layout.Table, err)
		}
		if !more {
			break
		}
	}
	rows.Close()
	err = rows.Err()
	if claim.snapshot.text == "" && err == nil {
		err = fmt.Errorf("the statement has told no snapshot")
	}
	read.end(err != nil)
	if err != nil {
		return claim, read.records, fmt.Errorf("read %s: %w", l.Layout.Table, pgtable.TimeLimit(ctx, err))
	}
	return claim, read.records, nil
}

// reading turns the rows of a claim's answer into records, and notes what it has read.
type reading struct {
	*Store
	claim *batch
	limit outbox.ClaimLimit
	ask   int
	pass  bool // over late rows only

	head    int64 // position of the newest row
	found   int   // rows behind the position, the claim's late ones apart
	late    int   // rows in front of it
	cut     bool  // something is left that belongs to what was asked for
	last    int64
	read    *pgtable.Batch
	records []*outbox.Record
}

// row takes a row over, and tells whether another one may come.
func (r *reading) row(raw [][]byte) (more bool, err error) {
	if raw[pgtable.ColID] == nil { // the first
		if r.claim.snapshot, err = parseSnapshot(string(raw[pgtable.ColPayload])); err != nil {
			return false, err
		}
		r.head = position(raw)
		if era := string(raw[pgtable.ColTopic]); era != r.claim.era {
			return false, anotherEra{era}
		}
		return true, nil
	}
	if behind := position(raw) > r.claim.position; behind && r.late == r.ask {
		return false, nil // there may be more late rows, and they come first
	}
	if len(r.claim.rows) > 0 && r.read.Exceeds(raw, r.limit) {
		r.cut = true
		return false, nil // Close discards the rest, which never was in memory at once
	}
	rec, err := r.read.Add(raw)
	if err != nil {
		return false, err
	}
	from := r.claim.from[rec.Lane]
	if rec.Position > r.claim.position {
		r.found++
	} else if r.late++; from.snapshot.sees(rec.Place) {
		return true, nil // late for other lanes
	} else {
		r.claim.late++
	}
	r.claim.repeated = r.claim.repeated || len(r.claim.rows) > 0 && r.last == rec.Position
	r.last = rec.Position
	settled := from.settled(rec.Position, rec.Place)
	r.claim.rows = append(r.claim.rows, row{rec.Position, rec.Lane, settled})
	if !settled && !excluded(rec, r.limit) {
		r.records = append(r.records, rec)
	}
	return true, nil
}

func position(raw [][]byte) int64 { return int64(binary.BigEndian.Uint64(raw[pgtable.ColPosition])) }

// end says what the claim has come to once all rows are read, or no further ones because of a
// failure.
func (r *reading) end(failed bool) {
	c := r.claim
	stopped := failed || r.cut
	c.whole = r.late < r.ask && (!stopped || r.found > 0)
	switch {
	case r.pass:
		c.end = c.position
	case stopped || r.found == r.ask:
		c.end = max(r.last, c.position)
	default:
		c.end = min(max(r.head, c.position), c.bound)
	}
	r.rows.Size.Saw(len(c.rows), r.read.Bytes)
}

// excluded tells whether a record is left out of a claim because its outcome is not recorded yet,
// or because it is behind such a one.
func excluded(rec *outbox.Record, limit outbox.ClaimLimit) bool {
	return rec.Keyed && slices.Contains(limit.WithoutKeys, rec.OrderKey) || slices.Contains(limit.WithoutEvents, rec.ID)
}
