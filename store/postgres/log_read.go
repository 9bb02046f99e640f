package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/outboxrelay/outbox"
)

// logReading turns the rows of a claim's answer into records, and notes what it has read.
type logReading struct {
	*logStore
	claim *logClaim
	limit outbox.ClaimLimit
	ask   int
	pass  bool // over late rows only

	head    int64 // position of the newest row
	found   int   // rows behind the position, the claim's late ones apart
	late    int   // rows in front of it
	bytes   int
	cut     bool // something is left that belongs to what was asked for
	last    int64
	block   []outbox.Record
	records []*outbox.Record
	payload arena
}

// row takes a row over, and tells whether another one may come.
func (r *logReading) row(raw [][]byte) (more bool, err error) {
	if raw[colID] == nil { // the first
		if r.claim.snapshot, err = parseSnapshot(string(raw[colPayload])); err != nil {
			return false, err
		}
		r.head = position(raw)
		if era := string(raw[colTopic]); era != r.claim.era {
			return false, anotherEra{era}
		}
		return true, nil
	}
	size := len(raw[colPayload])
	if behind := position(raw) > r.claim.position; behind && r.late == r.ask {
		return false, nil // there may be more late rows, and they come first
	}
	if len(r.claim.rows) > 0 && r.bytes+size > r.limit.Bytes {
		r.cut = true
		return false, nil // Close discards the rest, which never was in memory at once
	}
	r.bytes += size
	if len(r.block) == cap(r.block) {
		r.block = make([]outbox.Record, 0, min(max(r.ask, 1), 256)) // the records before stay where they are
	}
	r.block = r.block[:len(r.block)+1]
	rec := &r.block[len(r.block)-1]
	if err := r.decode(rec, raw, &r.payload); err != nil {
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
	r.last = rec.Position
	settled := from.settled(rec.Position, rec.Place)
	r.claim.rows = append(r.claim.rows, logRow{rec.Position, rec.Lane, settled})
	if !settled && !excluded(rec, r.limit) {
		r.records = append(r.records, rec)
	}
	return true, nil
}

func position(raw [][]byte) int64 { return int64(binary.BigEndian.Uint64(raw[colPosition])) }

// end says what the claim has come to once all rows are read, or no further ones because of a failure.
func (r *logReading) end(failed bool) {
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
	r.claims.saw(len(c.rows), r.bytes)
}

// excluded tells whether a record is left out of a claim because its outcome is not recorded yet, or because it is
// behind such a one.
func excluded(rec *outbox.Record, limit outbox.ClaimLimit) bool {
	return rec.Keyed && slices.Contains(limit.WithoutKeys, rec.OrderKey) || slices.Contains(limit.WithoutEvents, rec.ID)
}
