package redisscript

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/rounds"
)

// round is one trip to Redis: one call on a single server, one a group on a Cluster. Its memory is
// used again.
type round struct {
	buf   []byte // members, destinations and values of all calls
	used  []*call
	calls map[string]*call // those of used by their groups
	idle  []*call          // calls of earlier rounds
	large bool             // one delivery that is larger than a call may be

	keys rounds.Keys[string] // with Command.Scattered: which group each is in
}

// call is one run of the script.
type call struct {
	group      string
	deliveries []int                   // their indexes in the batch
	lanes      []int                   // of KEYS
	position   [outbox.LaneCount]uint8 // of a lane in KEYS, from 1
	about      piece
	members    []piece // of deliveries
	values     []piece // two of a delivery: its destination and its value
	padding    piece   // of a call without deliveries
	size       int     // of all these
	counts     piece
	args       []any
	reply      *redis.Cmd
}

// What is kept for later rounds: as many as relays in one process are likely to publish at the same
// moment, none that an unusually large message has blown up.
const (
	keptRounds = 4
	keptBytes  = 2 * MaxBytes
)

func (s *Publisher) take() *round {
	select {
	case r := <-s.free:
		return r
	default:
		return &round{calls: map[string]*call{}, keys: rounds.Keys[string]{}}
	}
}

func (s *Publisher) give(r *round) {
	if cap(r.buf) > keptBytes {
		return
	}
	select {
	case s.free <- r:
	default:
	}
}

// piece is a []byte that fits into an argument list without an allocation: a pointer in an
// interface needs none.
type piece []byte

// MarshalBinary is how go-redis asks for the bytes.
func (p *piece) MarshalBinary() ([]byte, error) { return *p, nil }

// load fills r with deliveries of todo, up to the bounds of a round, and returns those that are
// left for later rounds. The others are in r, answered because nothing can be published of their
// group or key, or put off until it is the turn of the large ones.
func (r *round) load(p *publication, todo []int) (rest []int) {
	r.reset()
	count, limit := 0, p.Bytes.Get()
	for n, i := range todo {
		d := &p.batch[i]
		group, lane, err := "", 0, p.reserved(d.Destination)
		if err == nil {
			group, lane, err = p.command.Place(d)
		}
		if down := p.down[group]; err == nil && down != nil {
			err = down
		} else if p.failed.Behind(d.Record) {
			err = outbox.ErrNotAttempted
		}
		if err != nil {
			p.results[i].Err = err
			p.failed.Hold(d.Record)
			continue
		}
		if !p.last && (len(d.Payload) > limit || p.behind.Behind(d.Record)) {
			p.large = append(p.large, i)
			p.behind.Hold(d.Record)
			continue
		}
		if count > 0 && (count == maxDeliveries || len(r.buf)+len(d.Payload) > limit) {
			return append(rest, todo[n:]...)
		}
		if p.command.Scattered && !r.keys.Join(d.Record, group) {
			rest = append(rest, i)
			continue
		}
		count++
		r.large = len(d.Payload) > limit
		r.buf = r.use(group).add(r.buf, i, lane, d, p.command.Append)
	}
	return rest
}

// use returns the call of a group.
func (r *round) use(group string) *call {
	if last := len(r.used) - 1; last >= 0 && r.used[last].group == group { // on a single server there is but one
		return r.used[last]
	}
	c := r.calls[group]
	if c == nil {
		if last := len(r.idle) - 1; last >= 0 {
			c, r.idle = r.idle[last], r.idle[:last]
		} else {
			c = &call{}
		}
		c.group = group
		r.calls[group] = c
		r.used = append(r.used, c)
	}
	return c
}

func (r *round) reset() {
	for _, c := range r.used {
		c.reset()
	}
	r.idle = append(r.idle, r.used...)
	clear(r.calls)
	clear(r.keys)
	r.buf, r.used, r.large = r.buf[:0], r.used[:0], false
}

func (c *call) reset() {
	for _, lane := range c.lanes {
		c.position[lane] = 0
	}
	c.deliveries, c.lanes, c.about, c.counts = c.deliveries[:0], c.lanes[:0], c.about[:0], c.counts[:0]
	c.members, c.values, c.padding, c.size, c.reply = c.members[:0], c.values[:0], nil, 0, nil
}

// place makes lane one of KEYS.
func (c *call) place(lane int) {
	if c.position[lane] == 0 {
		c.lanes = append(c.lanes, lane)
		c.position[lane] = uint8(len(c.lanes))
	}
}

// add appends a delivery, in the format that script.lua describes. Pieces taken from buf stay valid
// when it grows, because nothing is written to them afterwards.
func (c *call) add(
	buf []byte, i, lane int, d *outbox.Delivery, value func([]byte, *outbox.Delivery) []byte,
) []byte {
	c.place(lane)
	keyed, key := byte(0), uint64(0)
	if d.Keyed {
		keyed, key = 1, uint64(d.OrderKey)
	}
	c.deliveries = append(c.deliveries, i)
	c.about = append(c.about, c.position[lane], 0, 0, keyed) // the two are for arguments
	c.about = binary.BigEndian.AppendUint64(c.about, key)

	at := len(buf)
	buf = append(buf, d.ID[:]...)
	buf = binary.BigEndian.AppendUint64(buf, copyHash(d))
	destination := len(buf)
	buf = append(buf, d.Destination...)
	end := len(buf)
	buf = value(buf, d)
	c.members = append(c.members, buf[at:destination])
	c.values = append(c.values, buf[destination:end], buf[end:])
	c.size += len(buf) - at
	return buf
}

const aboutSize = 12 // bytes of about, a delivery

// arguments returns the script's KEYS and ARGV, see script.lua.
func (c *call) arguments(s *Publisher, command, what string) []any {
	c.args = append(c.args[:0], command, what, len(c.lanes))
	for _, lane := range c.lanes {
		c.args = append(c.args, s.command.Key(c.group, lane))
	}
	c.args = append(c.args, s.Window, s.Period, &c.about, &c.counts)
	if len(c.deliveries) == 0 {
		return append(append(c.args, &c.padding), s.command.Arguments...)
	}
	var next [outbox.LaneCount + 1]int // member of a lane's position, from 1
	for n := range c.members {
		next[c.about[n*aboutSize]]++
	}
	c.counts = c.counts[:0]
	before := 0
	for k := 1; k <= len(c.lanes); k++ {
		c.counts = binary.BigEndian.AppendUint16(c.counts, uint16(next[k]))
		next[k], before = before, before+next[k]
	}
	first := len(c.args)
	c.args = slices.Grow(c.args, len(c.members))[:first+len(c.members)]
	for n := range c.members {
		k := c.about[n*aboutSize]
		c.args[first+next[k]] = &c.members[n]
		next[k]++
		binary.BigEndian.PutUint16(c.about[n*aboutSize+1:], uint16(next[k]))
	}
	for i := range c.values {
		c.args = append(c.args, &c.values[i])
	}
	return append(c.args, s.command.Arguments...)
}

// copyHash is FNV-1a over what, beside the event id, tells two deliveries apart. It must not
// change: the members of the sets are compared between versions of this program while it is being
// rolled out. (It did once, for Origin.)
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
func (s *Publisher) roundTrip(ctx context.Context, r *round) {
	client := s.client
	if r.large {
		apart, err := s.apart(ctx, s.command.Key(r.used[0].group, r.used[0].lanes[0]).(string))
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
	s.run(ctx, client, r.used, "evalsha", s.script.Hash())
	// Redis forgets scripts (restart, SCRIPT FLUSH, fail-over). It has run nothing then, so sending
	// again is safe; EVAL brings the source, and loads it, in the same trip and to the right node
	// of a Cluster, where SCRIPT LOAD would take one more.
	var again []*call
	for _, c := range r.used {
		if redis.HasErrorPrefix(c.reply.Err(), "NOSCRIPT") {
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		s.run(ctx, client, again, "eval", s.source)
	}
}

// apart returns a client for one large call to where the key is. Redis keeps a buffer of the call's
// size for the connection's next one, for two seconds (measured: with 25 MB at maxmemory 24mb it
// takes no writes meanwhile), unless the connection is closed. It is nil where the client is of
// somebody else's making.
func (s *Publisher) apart(ctx context.Context, key string) (*redis.Client, error) {
	var options redis.Options
	switch client := s.client.(type) {
	case *redis.ClusterClient:
		node, err := client.MasterForKey(ctx, key)
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

func (s *Publisher) run(ctx context.Context, client redis.UniversalClient, calls []*call, command, what string) {
	pipe := client.Pipeline()
	for _, c := range calls {
		c.args = c.arguments(s, command, what)
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

// answer answers the deliveries of c as the script has. An error is that of the whole call.
func (c *call) answer(batch []outbox.Delivery, results []outbox.Result, refusal Refusal) error {
	reply, err := c.reply.Result()
	if err != nil {
		return err
	}
	return answer(reply, c.deliveries, batch, results, refusal)
}

// What the script says of a delivery that it did not publish, unless it is an error's text.
const (
	copyRefused = 0
	heldBack    = 1
)

// answer reads the script's reply, see script.lua, about the given deliveries of batch. An error
// means that the reply makes no sense, and that results are not to be relied on.
func answer(
	reply any, deliveries []int, batch []outbox.Delivery, results []outbox.Result, refusal Refusal,
) error {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 1 || list[0] != int64(len(deliveries)) {
		return errUnknownReply
	}
	last := int64(0)
	for e := 1; e < len(list); e += 2 {
		n, ok := list[e].(int64)
		if !ok || n <= last || n > int64(len(deliveries)) {
			return errUnknownReply
		}
		last = n
		i := deliveries[n-1]
		switch what := list[e+1].(type) {
		case string:
			results[i].Err = refusal(batch[i].Destination, what)
		case int64:
			switch what {
			case copyRefused:
				results[i].Duplicate = true
			case heldBack:
				results[i].Err = outbox.ErrNotAttempted
			default:
				return errUnknownReply
			}
		default:
			return errUnknownReply
		}
	}
	return nil
}

var errUnknownReply = errors.New("the reply is not what the script answers")

// reserved refuses a destination that may name what is kept for the sinks of this Redis: a stream
// in the place of a set would have the next event fail that needs the set, whoever wrote it.
func (s *Publisher) reserved(destination string) error {
	for _, kept := range []string{own, s.prefix} {
		if strings.HasPrefix(destination, kept) {
			return outbox.Permanent(fmt.Errorf("publish to %s %q: names that begin with %q are kept for what the sinks "+
				"remember", s.command.Target, destination, kept))
		}
	}
	return nil
}
