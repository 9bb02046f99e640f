package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/sse"
	"github.com/outboxrelay/outbox/server/stream"
)

// writeSize is how much is written at once: what a client must be able to receive within
// WriteTimeout.
const writeSize = 16 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, writeSize+writeSize/4); return &b }}

// counts are of all connections since the process began.
type counts struct{ sent, slow, refused atomic.Int64 }

// connection is one client's stream. It holds no buffer while there is nothing to send: most
// connections of a process wait.
type connection struct {
	cfg         *StreamConfig
	counts      *counts
	tenant      string
	starts      []stream.Start
	ends        []ending
	payloadOnly bool
	vector      []int64  // of a stream with topics: its cursor is vector[0], then the place in each
	topics      []string // of such a stream

	w      http.ResponseWriter
	rc     *http.ResponseController
	until  time.Time
	reader atomic.Pointer[stream.Reader] // nil until it is open
	ending atomic.Bool
}

// end makes the connection end after what it is sending.
func (c *connection) end() {
	c.ending.Store(true)
	if reader := c.reader.Load(); reader != nil {
		reader.End()
	}
}

// ending is what is known of the end of a source.
type ending struct {
	known   bool  // it has ended, and last is its last event
	last    int64 // of a run that ended before the connection began
	reached bool  // the client has everything
}

var errSlow = errors.New("the client does not receive")

// stream sends what the reader gives. A nil error ends the response properly.
func (c *connection) stream(ctx context.Context, reader *stream.Reader) error {
	var err error
	aside(func() { err = c.greet(reader) }) // net/http's first write is a deep one
	if err != nil {
		return err
	}
	for {
		var b stream.Batch
		b, err = reader.Next(ctx, c.cfg.Heartbeat)
		switch {
		case ctx.Err() != nil, errors.Is(err, stream.ErrEnded):
			return nil // the client has gone, or the connection is to end
		case err != nil:
			return err // its next connection is told what is wrong
		}
		if err = c.send(reader, b); err != nil {
			return err
		}
		if c.over(reader, b) || c.due() {
			return nil
		}
	}
}

// due tells whether the connection is to end after the event it is sending.
func (c *connection) due() bool { return c.ending.Load() || time.Now().After(c.until) }

// greet sends the time to wait before connecting again. That lets the client's EventSource open,
// too.
func (c *connection) greet(reader *stream.Reader) error {
	e := sse.Event{Retry: c.cfg.Retry}
	e.Retry += time.Duration(rand.Int64N(int64(e.Retry)/2 + 1))
	if c.vector != nil {
		// A client that is cut off before the first event knows where it was.
		e.ID = string(c.cursor(nil, reader.Cursors()))
	}
	dst, err := sse.Append(nil, e)
	if err != nil {
		return err
	}
	return errors.Join(c.write(dst), c.flush())
}

// cursor appends the id of an event of a stream with topics.
func (c *connection) cursor(dst []byte, places []int64) []byte {
	c.vector = append(c.vector[:1], places...)
	return sse.AppendVector(dst, c.vector)
}

// send sends a batch, or, when the connection is due, the part of it that a slow client has
// received by then.
func (c *connection) send(reader *stream.Reader, b stream.Batch) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	dst := (*buffer)[:0]
	var err error
	switch {
	case b.Reset:
		dst, err = c.reset(dst, reader, b.Source)
	case len(b.Messages) == 0:
		dst = sse.AppendComment(dst, "")
	}
	if err != nil {
		return err
	}
	var id []byte
	places := reader.Cursors()
	for i := range b.Messages {
		m := &b.Messages[i]
		if c.vector == nil {
			id = strconv.AppendInt(id[:0], m.Seq, 10)
		} else {
			places[b.Source] = m.Seq
			id = c.cursor(id[:0], places)
		}
		if dst, err = c.append(dst, string(id), m); err != nil {
			return err
		}
		if len(dst) >= writeSize {
			if err := c.write(dst); err != nil {
				return err
			}
			dst = dst[:0]
			if c.due() {
				b.Messages = b.Messages[:i+1]
				break
			}
		}
	}
	c.counts.sent.Add(int64(len(b.Messages)))
	if cap(dst) <= 4*writeSize {
		*buffer = dst // one that has grown for a large event is not kept
	}
	return errors.Join(c.write(dst), c.flush())
}

func (c *connection) append(dst []byte, id string, m *stream.Message) ([]byte, error) {
	e := sse.Event{ID: id, Name: m.Type, Data: m.Event}
	if c.payloadOnly {
		e.Data = m.Payload
	}
	out, err := sse.Append(dst, e)
	if err != nil {
		e.Name = "" // the type of an event written by plain SQL may hold anything; the CloudEvent has it too
		out, err = sse.Append(dst, e)
	}
	return out, err
}

// resetEvent is the name of the event that tells that events of a topic may have been missed.
const resetEvent = "outbox.reset"

func (c *connection) reset(dst []byte, reader *stream.Reader, source int) ([]byte, error) {
	data, err := json.Marshal(map[string]string{"topic": c.topics[source]})
	if err != nil {
		return dst, err
	}
	return sse.Append(dst, sse.Event{ID: string(c.cursor(nil, reader.Cursors())), Name: resetEvent, Data: data})
}

// write sends bytes, in parts that a client must receive in time.
func (c *connection) write(b []byte) error {
	for len(b) > 0 {
		part := b[:min(len(b), writeSize)]
		b = b[len(part):]
		if err := c.limit(); err != nil {
			return err
		}
		if _, err := c.w.Write(part); err != nil {
			return fmt.Errorf("%w: %w", errSlow, err)
		}
	}
	return nil
}

// limit gives the next write its time.
func (c *connection) limit() error {
	if err := c.rc.SetWriteDeadline(time.Now().Add(c.cfg.WriteTimeout)); err != nil {
		return fmt.Errorf("limit the time of a write: %w", err)
	}
	return nil
}

func (c *connection) flush() error {
	if err := c.rc.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errSlow, err)
	}
	return nil
}

// over tells whether the client has everything there will ever be.
func (c *connection) over(reader *stream.Reader, b stream.Batch) bool {
	if n := len(b.Messages); n > 0 {
		last, end := b.Messages[n-1], &c.ends[b.Source]
		end.reached = crawl.Terminal(last.Type) && c.starts[b.Source].Topic == "" || end.known && last.Seq >= end.last
	}
	for i, end := range c.ends {
		if !end.reached && !reader.Ended(i) {
			return false
		}
	}
	return true
}
