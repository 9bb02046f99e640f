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
	large bool // one delivery that is larger than a call may be
}

// call is one run of the script.
type call struct {
	deliveries []int               // their indexes in the batch
	lanes      []int               // of KEYS
	position   [outbox.Lanes]uint8 // of a lane in KEYS, from 1
	about      piece
	pieces     []piece
	size       int // of the pieces
	args       []any
	reply      *redis.Cmd
}

// What is kept for later rounds: as many as relays in one process are likely to publish at the same moment, none that
// an unusually large message has blown up.
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

// load fills r with deliveries of todo, up to the bounds of a round, and returns how many of todo are done with:
// answered because nothing can be published of their slot or key, put off until it is the turn of the large ones, or in
// r.
func (r *round) load(p *publication, todo []int) int {
	r.reset()
	count, limit := 0, p.limits.callBytes()
	for n, i := range todo {
		d := &p.batch[i]
		lane := int(uint16(d.Lane) % outbox.Lanes)
		slot := p.slot(lane)
		if err := p.down[slot]; err != nil {
			p.results[i].Err = err
			continue
		}
		if p.failed.hold(d) {
			p.results[i].Err = outbox.ErrNotAttempted
			continue
		}
		if !p.last && (len(d.Payload) > limit || p.behind.hold(d)) {
			p.large = append(p.large, i)
			p.behind.add(d)
			continue
		}
		if count > 0 && (count == maxDeliveries || len(r.buf)+len(d.Payload) > limit) {
			return n
		}
		count++
		r.large = len(d.Payload) > limit
		r.buf = r.use(slot).add(r.buf, i, lane, d, p.envelope)
	}
	return len(todo)
}

// slot is which call of a round a lane's deliveries go into.
func (s *Sink) slot(lane int) int {
	if s.cluster {
		return lane
	}
	return 0
}

// use returns the call of a slot.
func (r *round) use(slot int) *call {
	c := &r.calls[slot]
	if len(c.lanes) == 0 {
		r.used = append(r.used, c)
	}
	return c
}

func (r *round) reset() {
	for _, c := range r.used {
		c.reset()
	}
	r.buf, r.used, r.large = r.buf[:0], r.used[:0], false
}

func (c *call) reset() {
	for _, lane := range c.lanes {
		c.position[lane] = 0
	}
	c.deliveries, c.lanes, c.about, c.pieces, c.size, c.reply = c.deliveries[:0], c.lanes[:0], c.about[:0], c.pieces[:0],
		0, nil
}

// place makes lane one of KEYS.
func (c *call) place(lane int) {
	if c.position[lane] == 0 {
		c.lanes = append(c.lanes, lane)
		c.position[lane] = uint8(len(c.lanes))
	}
}

// add appends a delivery, in the format that publish.lua describes. Pieces taken from buf stay valid when it grows,
// because nothing is written to them afterwards.
func (c *call) add(buf []byte, i, lane int, d *outbox.Delivery, envelope outbox.Envelope) []byte {
	c.place(lane)
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
	buf = d.AppendMessage(buf, envelope)
	c.pieces = append(c.pieces, buf[at:channel], buf[channel:message], buf[message:])
	c.size += len(buf) - at
	return buf
}

// copyHash is FNV-1a over what, beside the event id, tells two deliveries apart. It must not change: the members of the
// sets are compared between versions of this program while it is being rolled out. (It did once, for Origin.)
func copyHash(d *outbox.Delivery) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := 0; i < len(d.Destination); i++ {
		h = (h ^ uint64(d.Destination[i])) * prime
	}
	for _, number := range [...]uint64{uint64(d.Generation), d.Origin} {
		for shift := 0; shift < 64; shift += 8 { // all 8 bytes: fewer would make ("a", 256) and ("a\x00", 1) the same
			h = (h ^ number>>shift&0xff) * prime
		}
	}
	return h
}

// once is a command that go-redis never sends twice, whatever the client's settings.
type once struct{ *redis.Cmd }

// NoRetry overrides the command's own.
func (once) NoRetry() bool { return true }

// roundTrip runs the calls of r, each with its own outcome.
func (s *Sink) roundTrip(ctx context.Context, r *round) {
	client := s.client
	if r.large {
		apart, err := s.apart(ctx, r.used[0].lanes[0])
		if err != nil {
			r.used[0].reply = redis.NewCmd(ctx)
			r.used[0].reply.SetErr(err)
			return
		}
		if apart != nil {
			defer func() { _ = apart.Close() }() // closing a connection that has done its work
			client = apart
		}
	}
	s.run(ctx, client, r.used, "evalsha", script.Hash())
	// Redis forgets scripts (restart, SCRIPT FLUSH, fail-over). It has run nothing then, so sending again is safe; EVAL
	// brings the source, and loads it, in the same trip and to the right node of a Cluster, where SCRIPT LOAD would
	// take one more.
	var again []*call
	for _, c := range r.used {
		if redis.HasErrorPrefix(c.reply.Err(), "NOSCRIPT") {
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		s.run(ctx, client, again, "eval", source)
	}
}

// apart returns a client for one large call to where the lane is. Redis keeps a buffer of the call's size for the
// connection's next one, for two seconds (measured: with 25 MB at maxmemory 24mb it takes no writes meanwhile), unless
// the connection is closed. It is nil where the client is of somebody else's making.
func (s *Sink) apart(ctx context.Context, lane int) (*redis.Client, error) {
	var options redis.Options
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, s.keys[lane].(string))
		if err != nil {
			return nil, err
		}
		options = *node.Options()
	case *redis.Client:
		options = *client.Options()
	default:
		return nil, nil
	}
	options.MaxRetries, options.PoolSize, options.MinIdleConns = -1, 1, 0
	return redis.NewClient(&options), nil
}

func (s *Sink) run(ctx context.Context, client redis.UniversalClient, calls []*call, command, what string) {
	pipe := client.Pipeline()
	for _, c := range calls {
		c.args = append(c.args[:0], command, what, len(c.lanes))
		for _, lane := range c.lanes {
			c.args = append(c.args, s.keys[lane])
		}
		c.args = append(c.args, s.window, s.period, &c.about)
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
