package redispubsub

import (
	"context"
	_ "embed"
	"encoding/binary"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
)

//go:embed publish.lua
var source string

var script = redis.NewScript(source)

// round is one trip to Redis: one call on a single server, one a lane on a Cluster. Its memory is used again.
type round struct {
	buf   []byte // members, channels and messages of all calls
	calls [outbox.Lanes]call
	used  []*call
}

// call is one run of the script.
type call struct {
	deliveries []int               // their indexes in the batch
	lanes      []int               // of KEYS
	position   [outbox.Lanes]uint8 // of a lane in KEYS, from 1
	about      piece
	pieces     []piece
	args       []any
	reply      *redis.Cmd
}

// What is kept for later rounds: as many as relays in one process are likely to publish at the same moment, none that an
// unusually large message has blown up.
const (
	keptRounds = 4
	keptBytes  = 2 * maxBytes
)

func (s *Sink) take() *round {
	select {
	case r := <-s.free:
		return r
	default:
		return &round{}
	}
}

func (s *Sink) give(r *round) {
	if cap(r.buf) > keptBytes {
		return
	}
	select {
	case s.free <- r:
	default:
	}
}

// piece is a []byte that fits into an argument list without an allocation: a pointer in an interface needs none.
type piece []byte

// MarshalBinary is how go-redis asks for the bytes.
func (p *piece) MarshalBinary() ([]byte, error) { return *p, nil }

// load fills r with deliveries of batch from index from on, up to the bounds of a round, and returns the index after the
// last. Those behind a failed event of their key are answered and left out.
func (r *round) load(s *Sink, batch []outbox.Delivery, from int, failed failedKeys, results []outbox.Result) (next int) {
	for _, c := range r.used {
		c.reset()
	}
	r.buf, r.used = r.buf[:0], r.used[:0]
	count, size := 0, 0
	for i := from; i < len(batch); i++ {
		d := &batch[i]
		if failed.hold(d) {
			results[i].Err = outbox.ErrNotAttempted
			continue
		}
		if count > 0 && (count == maxDeliveries || size+len(d.Payload) > maxBytes) {
			return i
		}
		count++
		size += len(d.Payload)
		lane := int(uint16(d.Lane) % outbox.Lanes)
		c := &r.calls[0]
		if s.cluster {
			c = &r.calls[lane]
		}
		if len(c.deliveries) == 0 {
			r.used = append(r.used, c)
		}
		r.buf = c.add(r.buf, i, lane, d, s.envelope)
	}
	return len(batch)
}

func (c *call) reset() {
	for _, lane := range c.lanes {
		c.position[lane] = 0
	}
	c.deliveries, c.lanes, c.about, c.pieces, c.reply = c.deliveries[:0], c.lanes[:0], c.about[:0], c.pieces[:0], nil
}

// add appends a delivery, in the format that publish.lua describes. Pieces taken from buf stay valid when it grows, because
// nothing is written to them afterwards.
func (c *call) add(buf []byte, i, lane int, d *outbox.Delivery, envelope outbox.Envelope) []byte {
	if c.position[lane] == 0 {
		c.lanes = append(c.lanes, lane)
		c.position[lane] = uint8(len(c.lanes))
	}
	keyed, key := byte(0), uint64(0)
	if d.Keyed {
		keyed, key = 1, uint64(d.OrderKey)
	}
	c.deliveries = append(c.deliveries, i)
	c.about = append(c.about, c.position[lane], keyed)
	c.about = binary.BigEndian.AppendUint64(c.about, key)

	at := len(buf)
	buf = append(buf, d.ID[:]...)
	buf = binary.BigEndian.AppendUint64(buf, copyHash(d))
	channel := len(buf)
	buf = append(buf, d.Destination...)
	message := len(buf)
	buf = envelope(buf, d)
	c.pieces = append(c.pieces, buf[at:channel], buf[channel:message], buf[message:])
	return buf
}

// copyHash is FNV-1a over what, beside the event id, tells two deliveries apart. It must never change: the members of the
// sets are compared between versions of this program while it is being rolled out.
func copyHash(d *outbox.Delivery) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := 0; i < len(d.Destination); i++ {
		h = (h ^ uint64(d.Destination[i])) * prime
	}
	for shift := 0; shift < 64; shift += 8 { // all 8 bytes: fewer would make ("a", 256) and ("a\x00", 1) the same
		h = (h ^ uint64(d.Generation)>>shift&0xff) * prime
	}
	return h
}

// once is a command that go-redis never sends twice, whatever the client's settings.
type once struct{ *redis.Cmd }

// NoRetry overrides the command's own.
func (once) NoRetry() bool { return true }

// roundTrip runs the calls of r, each with its own outcome.
func (s *Sink) roundTrip(ctx context.Context, r *round) {
	s.run(ctx, r.used, "evalsha", script.Hash())
	// Redis forgets scripts (restart, SCRIPT FLUSH, fail-over). It has run nothing then, so sending again is safe; EVAL brings
	// the source, and loads it, in the same trip and to the right node of a Cluster, where SCRIPT LOAD would take one more.
	var again []*call
	for _, c := range r.used {
		if redis.HasErrorPrefix(c.reply.Err(), "NOSCRIPT") {
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		s.run(ctx, again, "eval", source)
	}
}

func (s *Sink) run(ctx context.Context, calls []*call, command, what string) {
	pipe := s.client.Pipeline()
	for _, c := range calls {
		c.args = append(c.args[:0], command, what, len(c.lanes))
		for _, lane := range c.lanes {
			c.args = append(c.args, s.keys[lane])
		}
		c.args = append(c.args, s.window, &c.about)
		for i := range c.pieces {
			c.args = append(c.args, &c.pieces[i])
		}
		c.reply = redis.NewCmd(ctx, c.args...)
		c.reply.SetFirstKeyPos(3)
		_ = pipe.Process(ctx, once{c.reply}) // only queues it
	}
	_, err := pipe.Exec(ctx)
	for _, c := range calls {
		if c.reply.Err() == nil && c.reply.Val() == nil {
			c.reply.SetErr(err) // a connection that was refused (WRONGPASS): go-redis tells Exec, but not the commands
		}
	}
}
