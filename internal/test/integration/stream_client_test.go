package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	gosse "github.com/tmaxmax/go-sse"
)

// client follows a run as a browser does: it is cut off, comes back with the number of the last
// event it has, and keeps a joined record. The parser is somebody else's.
type client struct {
	nodes       []string // gateways' addresses, taken in turn
	run         uuid.UUID
	payloadOnly bool
	byQuery     bool // the cursor is sent as lastEventId, not as a header
	http        *http.Client

	got         []received
	connections int
}

// received is one event as the client got it.
type received struct {
	seq       int64
	event     gosse.Event
	at        time.Time
	connected time.Time // when its connection was
}

func (c *client) last() int64 {
	if len(c.got) == 0 {
		return 0
	}
	return c.got[len(c.got)-1].seq
}

// cut is when a client hangs up: after so many bytes or events, whichever comes first. Negative:
// never.
type cut struct{ bytes, events int }

var never = cut{-1, -1}

// somewhere is right after connecting, in the middle of an event's bytes, or between two events.
func somewhere(rng *rand.Rand) cut {
	switch rng.IntN(5) {
	case 0:
		return cut{0, -1}
	case 1, 2:
		return cut{1 + rng.IntN(40_000), -1}
	}
	return cut{-1, 1 + rng.IntN(80)}
}

var errHungUp = errors.New("the client hangs up")

// connect opens the stream after the last event and reads until it ends or is cut. A nil error says
// that the server has ended it properly.
func (c *client) connect(ctx context.Context, cut cut) (status int, err error) {
	return c.connectThrough(ctx, cut, func(body io.Reader) io.Reader { return body })
}

// connectThrough is connect with something between the connection and the parser.
func (c *client) connectThrough(ctx context.Context, cut cut, pass func(io.Reader) io.Reader) (status int, err error) {
	resp, err := c.open(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, nil
	}
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		return resp.StatusCode, fmt.Errorf("the content is %q: a browser would give up", kind)
	}
	connected, n := time.Now(), 0
	body := &cutter{pass(resp.Body), cut.bytes}
	for event, err := range gosse.Read(body, &gosse.ReadConfig{MaxEventSize: 4 << 20}) {
		if err != nil && body.left == 0 {
			return resp.StatusCode, errHungUp // which the parser calls an unexpected end
		}
		if err != nil {
			return resp.StatusCode, err
		}
		seq, err := strconv.ParseInt(event.LastEventID, 10, 64)
		if err != nil {
			return resp.StatusCode, fmt.Errorf("the id of %+v is no number", event)
		}
		c.got = append(c.got, received{seq, event, time.Now(), connected})
		if n++; n == cut.events {
			return resp.StatusCode, errHungUp
		}
	}
	return resp.StatusCode, nil
}

// open makes the request.
func (c *client) open(ctx context.Context) (*http.Response, error) {
	query, header := url.Values{}, http.Header{}
	if last := c.last(); last > 0 && c.byQuery {
		query.Set("lastEventId", strconv.FormatInt(last, 10))
	} else if last > 0 {
		header.Set("Last-Event-ID", strconv.FormatInt(last, 10))
	}
	if c.payloadOnly {
		query.Set("envelope", "payload")
	}
	node := c.nodes[c.connections%len(c.nodes)]
	c.connections++
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, node+"/v1/runs/"+c.run.String()+"/stream?"+query.Encode(),
		nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	if c.http == nil {
		return http.DefaultClient.Do(req)
	}
	return c.http.Do(req)
}

// cutter breaks after some bytes.
type cutter struct {
	io.Reader
	left int // negative: never
}

func (c *cutter) Read(b []byte) (int, error) {
	if c.left == 0 {
		return 0, errHungUp
	}
	if c.left > 0 {
		b = b[:min(len(b), c.left)]
	}
	n, err := c.Reader.Read(b)
	if c.left > 0 {
		c.left -= n
	}
	return n, err
}

// follow connects until the run has ended and the gateway says so (204), cutting as cuts say. It
// returns how often it was cut.
func (c *client) follow(ctx context.Context, rng *rand.Rand, cuts func(*rand.Rand) cut) (struck int, err error) {
	for {
		status, err := c.connect(ctx, cuts(rng))
		switch {
		case ctx.Err() != nil:
			return struck, fmt.Errorf("the run did not end: %w", ctx.Err())
		case status == http.StatusNoContent:
			return struck, nil
		case status != http.StatusOK && status != 0:
			return struck, fmt.Errorf("after event %d: status %d", c.last(), status)
		case errors.Is(err, errHungUp):
			struck++
		}
		time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
	}
}

// entry is a row of the table.
type entry struct {
	seq     int64
	id, of  string // of: event_type
	payload string
}

// logOf reads a run's log from the table, not through the product.
func (s *streams) logOf(t *testing.T, run uuid.UUID) (rows []entry) {
	t.Helper()
	result, err := s.pool.Query(t.Context(),
		"SELECT seq, event_id::text, event_type, payload::text FROM crawl_events WHERE crawl_id = $1 ORDER BY id", run)
	if err != nil {
		t.Fatal(err)
	}
	defer result.Close()
	for result.Next() {
		var e entry
		if err := result.Scan(&e.seq, &e.id, &e.of, &e.payload); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, e)
	}
	if result.Err() != nil {
		t.Fatal(result.Err())
	}
	return rows
}

// record is what the table says a client must have, each event in both envelopes. An event that
// several clients have is decoded for the first and compared byte for byte for the others: its
// bytes must be the same for all.
type record struct {
	rows  []entry
	known [2]map[int64]string // by seq, that are equal to the table's
}

func newRecord(rows []entry) *record {
	return &record{rows: rows, known: [2]map[int64]string{{}, {}}}
}

// check compares what a client has put together with the table, row by row.
func (r *record) check(c *client) error {
	for i, got := range c.got {
		if i >= len(r.rows) {
			return fmt.Errorf("event %d of type %s is not in the table, which has %d", got.seq, got.event.Type, len(r.rows))
		}
		if err := r.same(r.rows[i], got, c.payloadOnly); err != nil {
			return fmt.Errorf("place %d: %w", i, err)
		}
	}
	if len(c.got) != len(r.rows) {
		return fmt.Errorf("has %d events, the table has %d", len(c.got), len(r.rows))
	}
	return nil
}

func (r *record) same(want entry, got received, payloadOnly bool) error {
	if got.seq != want.seq || got.event.Type != want.of {
		return fmt.Errorf("is event %d of type %s, the table has %d of type %s", got.seq, got.event.Type, want.seq, want.of)
	}
	known := r.known[0]
	if payloadOnly {
		known = r.known[1]
	}
	if bytes, ok := known[got.seq]; ok {
		if bytes != got.event.Data {
			return fmt.Errorf("event %d is %s for one client and %s for another", got.seq, bytes, got.event.Data)
		}
		return nil
	}
	data := got.event.Data
	if !payloadOnly {
		var m struct {
			message
			Source string `json:"source"`
		}
		if err := json.Unmarshal([]byte(data), &m); err != nil {
			return fmt.Errorf("event %d: %w", got.seq, err)
		}
		if m.ID != want.id || m.Type != want.of || m.Sequence != fmt.Sprintf("%019d", want.seq) ||
			m.Source != "crawl_outbox" {
			return fmt.Errorf("event %d is %s, the table has %+v", got.seq, data, want)
		}
		data = string(m.Data)
	}
	if !sameJSON(data, want.payload) {
		return fmt.Errorf("the payload of event %d is %s, the table has %s", got.seq, data, want.payload)
	}
	known[got.seq] = got.event.Data
	return nil
}

func sameJSON(a, b string) bool {
	decode := func(text string) (v any, err error) {
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		err = d.Decode(&v)
		return v, err
	}
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}
