package pgtable

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// Reader makes records of the rows of a table that a claim has read, and knows how large they are.
// They are decoded from the wire by hand: they are a relay's largest flow, and pgx's general Scan
// of twenty columns cost more than the query. It is safe for concurrent use.
type Reader struct {
	Layout     outbox.Layout
	MaxPayload int // bytes of a payload as text; a longer one is a defect
	Size       ClaimSize

	intern interner
}

// MaxPayload is what jsonb itself can hold. Only numbers with large exponents are longer as text,
// up to 15,000 times. One message of them is more than Redis takes (512 MB). Redis answers it by
// closing the connection, and so the whole relay would wait for ever.
const MaxPayload = 256 << 20

// Batch is the records of one claim.
type Batch struct {
	Bytes int // of payload

	reader  *Reader
	block   []outbox.Record // blocks, because a grown slice would move the records under their pointers
	payload arena
}

// blockRecords is how many records of a claim are allocated together.
const blockRecords = 256

// Batch returns an empty one, for at most so many records.
func (r *Reader) Batch(records int) *Batch {
	return &Batch{reader: r, block: make([]outbox.Record, 0, min(max(records, 1), blockRecords))}
}

// Exceeds tells whether a row's payload makes the batch larger than a limit.
func (b *Batch) Exceeds(raw [][]byte, limit outbox.ClaimLimit) bool {
	return b.Bytes+len(raw[ColPayload]) > limit.Bytes
}

// Add decodes a row.
func (b *Batch) Add(raw [][]byte) (*outbox.Record, error) {
	if len(b.block) == cap(b.block) {
		b.block = make([]outbox.Record, 0, blockRecords)
	}
	b.block = b.block[:len(b.block)+1]
	rec := &b.block[len(b.block)-1]
	b.Bytes += len(raw[ColPayload])
	return rec, b.reader.decode(rec, raw, &b.payload)
}

// The columns of claim_row.sql.
const (
	ColID = iota
	ColPosition
	ColLane
	ColOrderKey
	ColSequence
	ColAttempts
	ColGeneration
	ColWrittenAt
	ColOccurredAt
	ColTopic
	ColAggregateType
	ColKey
	ColTenant
	ColApp
	ColSource
	ColSchemaID
	ColSchemaVersion
	ColDestinations
	ColDeliveredTo
	ColMetadata
	ColPayload
	ColPlace
	ClaimColumns
)

// textColumns are those whose bytes go into a message or a dead letter.
var textColumns = [ClaimColumns]string{ColTopic: "topic", ColAggregateType: "aggregate type", ColKey: "key",
	ColTenant: "tenant", ColSource: "source", ColSchemaID: "schema id", ColDestinations: "list of destinations",
	ColMetadata: "metadata", ColPayload: "payload"}

// ClaimFormats asks for every column in binary, which for text is the text itself.
var ClaimFormats = func() pgx.QueryResultFormats {
	f := make(pgx.QueryResultFormats, ClaimColumns)
	for i := range f {
		f[i] = pgx.BinaryFormatCode
	}
	return f
}()

func (r *Reader) decode(rec *outbox.Record, raw [][]byte, payload *arena) error {
	if len(raw) != ClaimColumns || len(raw[ColID]) != 16 {
		return fmt.Errorf("%d columns, event id of %d bytes: the statement and this program disagree", len(raw),
			len(raw[ColID]))
	}
	copy(rec.ID[:], raw[ColID])
	rec.Position = int64(binary.BigEndian.Uint64(raw[ColPosition]))
	if k := raw[ColOrderKey]; k != nil {
		rec.OrderKey, rec.Keyed = int64(binary.BigEndian.Uint64(k)), true
		rec.Lane = int16(rec.OrderKey & (outbox.LaneCount - 1))
	}
	if l := raw[ColLane]; l != nil {
		rec.Lane = int16(binary.BigEndian.Uint16(l))
	}
	rec.Sequence = int64(binary.BigEndian.Uint64(raw[ColSequence]))
	rec.Attempts = int(int32(binary.BigEndian.Uint32(raw[ColAttempts])))
	rec.Generation = int(int32(binary.BigEndian.Uint32(raw[ColGeneration])))
	for i, name := range textColumns {
		if name != "" && !utf8.Valid(raw[i]) {
			raw[i], rec.Defect = bytes.ToValidUTF8(raw[i], []byte("\uFFFD")), "the "+name+" is not valid UTF-8"
		}
	}
	rec.Topic = r.intern.string(raw[ColTopic])
	rec.AggregateType = r.intern.string(raw[ColAggregateType])
	rec.AggregateID = string(raw[ColKey])
	rec.TenantID = r.intern.string(raw[ColTenant])
	copy(rec.AppID[:], raw[ColApp])
	rec.Source = r.intern.string(raw[ColSource])
	if rec.Source == "" {
		rec.Source = r.Layout.Table // CloudEvents requires a source
	}
	rec.SchemaID = r.intern.string(raw[ColSchemaID])
	rec.SchemaVersion = int(int32(binary.BigEndian.Uint32(raw[ColSchemaVersion])))
	rec.WrittenAt = decodeTime(raw[ColWrittenAt])
	if rec.WrittenAt.IsZero() {
		rec.WrittenAt = uuid7.Time(rec.ID)
	}
	if rec.OccurredAt = decodeTime(raw[ColOccurredAt]); raw[ColOccurredAt] == nil {
		rec.OccurredAt = rec.WrittenAt
	}
	if rec.Attempts < 0 {
		rec.Attempts, rec.Defect = 0, "the number of attempts is negative"
	}
	decodeDestinations(rec, raw)
	if m := raw[ColMetadata]; m != nil {
		rec.RawMetadata = payload.keep(m)
	}
	if at := raw[ColPlace]; len(at) == 8 { // the number of a transaction
		rec.Place = binary.BigEndian.Uint64(at)
	} else if len(at) == 6 {
		rec.Place = uint64(binary.BigEndian.Uint32(at))<<16 | uint64(binary.BigEndian.Uint16(at[4:]))
	}
	if size := len(raw[ColPayload]); size > r.MaxPayload {
		rec.Defect = fmt.Sprintf("the payload is %d bytes as text, more than %d", size, r.MaxPayload)
		return nil
	}
	rec.Payload = payload.keep(raw[ColPayload])
	return nil
}

func decodeDestinations(rec *outbox.Record, raw [][]byte) {
	if d := raw[ColDestinations]; d != nil {
		if err := json.Unmarshal(d, &rec.Destinations); err != nil {
			rec.Defect = "destinations are not a JSON array of strings"
		}
		for _, name := range rec.Destinations {
			if name == "" || strings.ContainsRune(name, 0) { // PostgreSQL stores no text with U+0000
				rec.Defect = "destinations contain an empty name or U+0000"
			}
		}
	}
	if d := raw[ColDeliveredTo]; d != nil {
		if err := json.Unmarshal(d, &rec.DeliveredTo); err != nil || slices.ContainsFunc(rec.DeliveredTo,
			func(name string) bool { return strings.ContainsRune(name, 0) }) {
			rec.DeliveredTo = nil // a wrong note costs a second copy, which the sink refuses
		}
	}
}

// decodeTime reads a binary timestamptz: microseconds since 2000-01-01 UTC. NULL and the infinities
// give zero.
func decodeTime(b []byte) time.Time {
	if len(b) != 8 {
		return time.Time{}
	}
	us := int64(binary.BigEndian.Uint64(b))
	if us == 1<<63-1 || us == -1<<63 {
		return time.Time{}
	}
	// In seconds, because the last years have no microseconds since 1970 in 64 bits.
	return time.Unix(946684800+us/1e6, us%1e6*1e3).UTC()
}

// LaneBits is a set of lanes as a claim asks for it.
func LaneBits(lanes []outbox.Lane) (bits int64) {
	for _, l := range lanes {
		bits |= Bit(l.Number)
	}
	return bits
}

// Bit is a lane in such a set.
func Bit(lane int16) int64 { return int64(uint64(1) << uint(lane)) }

// arena keeps copies of many small byte slices in few allocations. Slices given out stay valid: a
// full chunk is left to them.
type arena struct{ chunk []byte }

func (a *arena) keep(b []byte) []byte {
	if cap(a.chunk)-len(a.chunk) < len(b) {
		a.chunk = make([]byte, 0, max(64<<10, len(b)))
	}
	at := len(a.chunk)
	a.chunk = append(a.chunk, b...)
	return a.chunk[at:len(a.chunk):len(a.chunk)]
}

// interner returns one string for equal bytes: topics, types and tenants repeat in nearly every
// row.
type interner struct {
	mu sync.Mutex
	m  map[string]string
}

func (in *interner) string(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if s, ok := in.m[string(b)]; ok {
		return s
	}
	if in.m == nil || len(in.m) > 4096 {
		in.m = map[string]string{} // bounded: with many tenants it starts again
	}
	s := string(b)
	in.m[s] = s
	return s
}

// ClaimSize lowers the number of rows asked for when payloads are large, so that what one claim may
// not keep is not sent either.
type ClaimSize struct{ average atomic.Int64 } // bytes of payload per row, as last seen

// firstGuess is the payload's size before any was seen, in bytes. It is large, because a first
// claim of thousands of large rows would be read from the network only to be dropped.
const firstGuess = 8 << 10

// Limit is how many rows to ask for.
func (c *ClaimSize) Limit(l outbox.ClaimLimit) int {
	avg := c.average.Load()
	if avg == 0 {
		avg = firstGuess
	}
	return min(l.Records, max(1, int(int64(l.Bytes)/avg)))
}

// Saw notes what a claim has read.
func (c *ClaimSize) Saw(records, bytes int) {
	if records > 0 {
		c.average.Store(int64(bytes / records))
	}
}

// ScanBacklog reads the row of backlog.sql.
func ScanBacklog(row pgx.Row, l outbox.Layout) (outbox.Backlog, error) {
	var b outbox.Backlog
	var written *time.Time
	var id *uuid.UUID
	var now time.Time
	if err := row.Scan(&b.Count, &written, &id, &now); err != nil {
		return outbox.Backlog{}, fmt.Errorf("read backlog of %s: %w", l.Table, err)
	}
	if written == nil && id != nil {
		if t := uuid7.Time(*id); !t.IsZero() {
			written = &t
		}
	}
	if written != nil {
		b.Oldest = max(now.Sub(*written), 0)
	}
	return b, nil
}

// Sieve claims from a table of which a row may be one that the database cannot hand out. Such a row
// ends the statement at every attempt: it is on a damaged page, or holds a number of 130,000 digits
// in eight bytes, repeated until the text is longer than a gigabyte. The zero value is ready for
// use, by many at a time.
type Sieve struct {
	wary atomic.Bool // the last claim met such a row, or ran out of time as it does at one
}

// Wary tells whether the next claim has to look out for such a row.
func (s *Sieve) Wary() bool { return s.wary.Load() }

// Claim claims what comes before that row or, where nothing does, the row itself with a Defect, so
// that it costs its own key a dead letter and the others nothing. claim tells whether it has found
// any, wary that a row may be unreadable; bare returns the first one without what can make it that,
// or the least of it. All see one state of the table, at one time. Otherwise what is committed late
// in front of that row, or comes due there, would be taken for it, and become a dead letter.
func (s *Sieve) Claim(
	ctx context.Context, pool pooler.Sessions, claim func(db Querier, wary bool) (found bool, err error),
	bare func(db Querier, least bool) ([]*outbox.Record, error),
) error {
	if !s.Wary() { // it may take seconds to find out about such a row, so not twice
		found, err := claim(pool, false)
		if err == nil {
			return nil
		}
		unreadable := OfTheData(err)
		s.wary.Store(unreadable || errors.Is(err, context.DeadlineExceeded))
		switch {
		case !unreadable:
			return err
		case found:
			return nil
		}
	}
	return pool.Still(ctx, func(tx pgx.Tx) error {
		found := false
		refused := pgx.BeginFunc(ctx, tx, func(part pgx.Tx) (err error) {
			found, err = claim(part, true)
			return err
		})
		s.wary.Store(refused != nil)
		switch {
		case !OfTheData(refused):
			return refused
		case found:
			return nil
		}
		var first []*outbox.Record // nothing came before it
		read := func(least bool) error {
			return pgx.BeginFunc(ctx, tx, func(part pgx.Tx) (err error) {
				first, err = bare(part, least)
				return err
			})
		}
		err := read(false)
		if OfTheData(err) {
			err = read(true)
		}
		if err != nil {
			return refused
		}
		if len(first) > 0 {
			first[0].Defect = "the row cannot be read: " + refused.Error()
		}
		return nil
	})
}
