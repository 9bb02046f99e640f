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
	"time"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/sse"
	"github.com/outboxrelay/outbox/server/stream"
)

// writeSize is how much is written at once: what a client must be able to receive within WriteTimeout.
const writeSize = 16 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, writeSize+writeSize/4); return &b }}

// serve streams until all sources have ended, the client goes away or is too slow, or the connection is to end.
func (c *connection) serve(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	c.w, c.rc = w, http.NewResponseController(w)
	streams := c.g.streams
	if refused := streams.connections.admit(c, c.tenant, c.starts); refused != "" {
		streams.refused.Add(1)
		w.Header().Set("Retry-After", "5")
		c.g.problem(w, r, http.StatusTooManyRequests, refused)
		return
	}
	defer streams.connections.gone(c, c.tenant, c.starts)
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	reader, err := c.g.cfg.Hub.Open(ctx, c.starts...)
	if err != nil {
		return // the client has gone
	}
	defer reader.Close()
	if c.reader.Store(reader); c.ending.Load() {
		reader.End() // end was called before there was one
	}
	w.WriteHeader(http.StatusOK)
	c.until = time.Now().Add(jitter(streams.cfg.MaxAge, 0.2))
	err = c.stream(ctx, reader)
	if err == nil {
		err = c.limit() // net/http writes the end of the response, and the time of the last write may be over
	}
	if err != nil {
		// The status has been sent: what is left is to end the response in the middle, which a client takes for a lost
		// connection.
		if errors.Is(err, errSlow) {
			streams.slow.Add(1)
		}
		panic(http.ErrAbortHandler)
	}
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
		b, err = reader.Next(ctx, c.g.streams.cfg.Heartbeat)
		switch {
		case ctx.Err() != nil, errors.Is(err, stream.ErrEnded):
			return nil // the client has gone, or the connection is to end
		case err != nil:
			return err // its next connection is told what is wrong
		}
		if err = c.send(reader, b); err != nil {
			return err
		}
		if c.over(b) || c.due() {
			return nil
		}
	}
}

// due tells whether the connection is to end after the event it is sending.
func (c *connection) due() bool { return c.ending.Load() || time.Now().After(c.until) }

// greet sends the time to wait before connecting again. That lets the client's EventSource open, too.
func (c *connection) greet(reader *stream.Reader) error {
	e := sse.Event{Retry: c.g.streams.cfg.Retry}
	e.Retry += time.Duration(rand.Int64N(int64(e.Retry)/2 + 1))
	if c.vector != nil {
		e.ID = string(c.cursor(nil, reader.Cursors())) // a client that is cut off before the first event knows where it was
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

// send sends a batch, or, when the connection is due, the part of it that a slow client has received by then.
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
	c.g.streams.sent.Add(int64(len(b.Messages)))
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
	if err := c.rc.SetWriteDeadline(time.Now().Add(c.g.streams.cfg.WriteTimeout)); err != nil {
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
func (c *connection) over(b stream.Batch) bool {
	if n := len(b.Messages); n > 0 {
		last, end := b.Messages[n-1], &c.ends[b.Source]
		end.reached = crawl.Terminal(last.Type) && c.starts[b.Source].Topic == "" || end.known && last.Seq >= end.last
	}
	for _, end := range c.ends {
		if !end.reached {
			return false
		}
	}
	return true
}
