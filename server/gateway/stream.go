package gateway

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/sse"
	"github.com/outboxrelay/outbox/server/stream"
	"github.com/outboxrelay/outbox/server/token"
)

// runTopic begins a topic that is a run: its channel's name in FR-005.
const runTopic = "run:"

// maxTopic is the length of outbox_events.event_topic (ADR-004).
const maxTopic = 150

// streaming is what a stream is asked for.
type streaming struct {
	topics      []topic
	after       []int64 // the number of the last event that the client has of each; nil: a topic begins now
	list        int64   // of a stream of topics: it tells which they are, and begins each cursor
	single      bool    // the stream of one run, whose cursor is a number
	payloadOnly bool
}

// streamRun serves GET /v1/runs/{id}/stream.
func (s *streams) streamRun(w http.ResponseWriter, r *http.Request) {
	want, err := runParameters(r)
	s.open(w, r, want, err)
}

// streamTopics serves GET /v1/stream.
func (s *streams) streamTopics(w http.ResponseWriter, r *http.Request) {
	want, err := s.topicsParameters(r)
	s.open(w, r, want, err)
}

func (s *streams) open(w http.ResponseWriter, r *http.Request, want streaming, invalid error) {
	who, ctx, end := s.streamer(w, r, invalid)
	if ctx == nil {
		return
	}
	defer end()
	r = r.WithContext(ctx)
	c := &connection{cfg: &s.cfg.Streams, counts: &s.counts, payloadOnly: want.payloadOnly, tenant: who.Tenant}
	if !want.single {
		c.vector = []int64{want.list}
	}
	over := true // all are runs that have ended, and the client has all of them
	for i, topic := range want.topics {
		start := stream.Start{Source: stream.Source{Tenant: who.Tenant, Topic: topic.name}, Now: want.after == nil}
		if want.after != nil {
			start.After = want.after[i]
		}
		end := ending{}
		if topic.isRun {
			run, err := s.run(r.Context(), who.Tenant, topic.run)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			if start.After > run.LastSeq {
				s.problem(w, r, http.StatusBadRequest, beyond(start.After, run))
				return
			}
			start.Source, start.Now = stream.Source{Tenant: who.Tenant, Run: topic.run}, false
			end = ending{known: run.Status.Ended(), last: run.LastSeq}
			end.reached = end.known && start.After == run.LastSeq
		}
		over = over && end.reached
		c.starts, c.ends, c.topics = append(c.starts, start), append(c.ends, end), append(c.topics, topic.name)
	}
	if over {
		w.WriteHeader(http.StatusNoContent) // tells an EventSource not to come back
		return
	}
	s.serve(c, w, r, func(ctx context.Context) error {
		reader, err := s.cfg.Hub.Open(ctx, c.starts...)
		if err != nil {
			return nil // the client has gone
		}
		defer reader.Close()
		if c.reader.Store(reader); c.ending.Load() {
			reader.End() // end was called before there was one
		}
		return c.stream(ctx, reader)
	})
}

// eventStream is the content type of a stream.
const eventStream = "text/event-stream"

// streamer returns the principal that may open a stream and the stream's context. The context is
// nil if streamer has answered with a refusal. invalid names an invalid parameter of the stream.
// Such a request does not use up its ticket, which is good for one stream.
func (s *streams) streamer(
	w http.ResponseWriter, r *http.Request, invalid error,
) (who token.Principal, ctx context.Context, end context.CancelFunc) {
	switch {
	case r.ContentLength != 0:
		// net/http would read it before it sends anything, for as long as it takes.
		w.Header().Set("Connection", "close")
		s.problem(w, r, http.StatusBadRequest, "a stream takes no body")
		return who, nil, nil
	case invalid != nil:
		s.problem(w, r, http.StatusBadRequest, invalid.Error())
		return who, nil, nil
	case r.Method == http.MethodHead: // GET's pattern takes it too
		w.Header().Set("Content-Type", eventStream)
		return who, nil, nil
	}
	var err error
	aside(func() { who, err = s.principal(r) })
	ctx, end = s.begin(r.Context(), w, who, err)
	if err != nil {
		s.fail(w, r, err)
	}
	if err != nil || !s.may(w, r, who, token.Read) {
		end()
		return who, nil, nil
	}
	return who, ctx, end
}

// known refuses a query with a parameter that is neither one of parameters nor one of all streams:
// one that is misspelt would not fail, but stream from the beginning.
func known(query url.Values, parameters ...string) error {
	for name := range query {
		if !slices.Contains(parameters, name) &&
			!slices.Contains([]string{"lastEventId", "fromSeq", "envelope", ticketScheme}, name) {
			return fmt.Errorf("query.%.40s is no parameter of this stream", redacted(name))
		}
	}
	return nil
}

// run looks a run up, in the time that a request of the API has.
func (s *streams) run(ctx context.Context, tenant string, id uuid.UUID) (run crawl.Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	a := &answer{tenant: tenant, calls: s.calls, patience: s.cfg.Timeout}
	failed := InShare(context.WithValue(ctx, answerKey{}, a), func() {
		aside(func() { run, err = s.cfg.Runs.Get(ctx, tenant, id) })
	})
	return run, errors.Join(failed, err)
}

// beyond tells a client that it has seen what the run does not have.
func beyond(after int64, run crawl.Run) string {
	return fmt.Sprintf("the last event id is %d, but run %s has only %d events: begin again without one", after, run.ID,
		run.LastSeq)
}

// serve streams by send, which returns nil when all sources have ended, the client has gone, or the
// connection is to end.
func (s *streams) serve(
	c *connection, w http.ResponseWriter, r *http.Request, send func(ctx context.Context) error,
) {
	c.w, c.rc = w, http.NewResponseController(w)
	if refused := s.connections.admit(c, c.tenant, c.starts); refused != "" {
		s.counts.refused.Add(1)
		w.Header().Set("Retry-After", "5")
		s.problem(w, r, http.StatusTooManyRequests, refused)
		return
	}
	defer s.connections.gone(c, c.tenant, c.starts)
	defer context.AfterFunc(r.Context(), c.end)()
	h := w.Header()
	h.Set("Content-Type", eventStream)
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	c.until = time.Now().Add(jitter(s.cfg.Streams.MaxAge, 0.2))
	err := send(r.Context())
	if err == nil {
		err = c.limit() // net/http writes the end of the response, and the time of the last write may be over
	}
	if err != nil {
		// The status has been sent: what is left is to end the response in the middle, which a
		// client takes for a lost connection.
		if errors.Is(err, errSlow) {
			s.counts.slow.Add(1)
		}
		panic(http.ErrAbortHandler)
	}
}

// jitter returns d, give or take up to a part of it.
func jitter(d time.Duration, part float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*part*float64(d))
}

func runParameters(r *http.Request) (want streaming, err error) {
	query := r.URL.Query()
	var after int64
	if err = known(query); err == nil {
		want.payloadOnly, err = envelope(query)
	}
	if err == nil {
		after, err = sse.Cursor(r.Header, query)
	}
	if err != nil {
		return want, err
	}
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		return want, errors.New("the id of a run is a UUID")
	}
	want.topics, want.after, want.single = []topic{{run: id, isRun: true}}, []int64{after}, true
	return want, nil
}

func (s *streams) topicsParameters(r *http.Request) (want streaming, err error) {
	query := r.URL.Query()
	if err = known(query, "topics"); err == nil {
		want.payloadOnly, err = envelope(query)
	}
	if err == nil {
		want.topics, err = s.parseTopics(query)
	}
	if err != nil {
		return want, err
	}
	names := make([]string, len(want.topics))
	for i, t := range want.topics {
		names[i] = t.name
	}
	want.list = int64(crc32.ChecksumIEEE([]byte(strings.Join(names, ","))))
	// A cursor would be about something else with other topics.
	switch cursor, err := sse.VectorCursor(r.Header, query, len(names)+1); {
	case err != nil:
		return want, err
	case cursor != nil && cursor[0] != want.list:
		return want, errors.New("the last event id is of a stream with other topics, or with these in another order")
	case cursor != nil:
		want.after = cursor[1:]
	}
	if query.Has("fromSeq") {
		return want, errors.New("fromSeq: is for the stream of one run; here the last event id says where to go on")
	}
	return want, nil
}

// topic is one of a stream's list: a run, or a topic of an outbox table.
type topic struct {
	name  string // of a run in the one spelling that we use ourselves
	run   uuid.UUID
	isRun bool
}

// parseTopics reads ?topics=a,b, which may be given several times.
func (s *streams) parseTopics(query url.Values) ([]topic, error) {
	names := strings.Split(strings.Join(query["topics"], ","), ",")
	if limit := s.cfg.Streams.MaxTopics; len(names) > limit {
		return nil, fmt.Errorf("topics: at most %d", limit)
	}
	topics, seen := make([]topic, 0, len(names)), map[string]bool{}
	for _, name := range names {
		t := topic{name: name}
		var text string
		switch text, t.isRun = strings.CutPrefix(name, runTopic); {
		case name == "":
			return nil, errors.New("topics: want a list of topics, such as topics=run:ID,order.placed")
		case len(name) > maxTopic:
			return nil, errors.New("topics: a topic has at most 150 characters")
		case strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return nil, errors.New("topics: a topic has no control characters")
		case strings.Contains(name, "*"):
			return nil,
				errors.New("topics: a stream takes no patterns: name each topic, " +
					"such as topics=order.placed,order.shipped")
		case t.isRun:
			var err error
			if t.run, err = uuid.Parse(text); err != nil {
				return nil, errors.New("topics: run: is followed by the id of a run, a UUID")
			}
			t.name = runTopic + t.run.String()
		case s.cfg.RunsOnly:
			return nil,
				errors.New("topics: only runs (run:ID) can be streamed here: the relay publishes bare payloads " +
					"(--envelope payload), which do not say whose they are")
		}
		if seen[t.name] {
			return nil, errors.New("topics: one is given twice")
		}
		seen[t.name] = true
		topics = append(topics, t)
	}
	return topics, nil
}

// envelope reads ?envelope=.
func envelope(query url.Values) (payloadOnly bool, err error) {
	switch query.Get("envelope") {
	case "", "cloudevents":
		return false, nil
	case "payload":
		return true, nil
	}
	return false, errors.New("envelope: want cloudevents or payload")
}
