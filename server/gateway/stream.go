package gateway

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/sse"
	"github.com/outboxrelay/outbox/server/stream"
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
func (g *Gateway) streamRun(w http.ResponseWriter, r *http.Request) {
	want, err := runParameters(r)
	g.open(w, r, want, err)
}

// streamTopics serves GET /v1/stream.
func (g *Gateway) streamTopics(w http.ResponseWriter, r *http.Request) {
	want, err := g.topicsParameters(r)
	g.open(w, r, want, err)
}

func (g *Gateway) open(w http.ResponseWriter, r *http.Request, want streaming, invalid error) {
	who, ok := g.streamer(w, r, invalid)
	if !ok {
		return
	}
	c := &connection{g: g, payloadOnly: want.payloadOnly, tenant: who.Tenant, token: who.Token}
	if !want.single {
		c.vector = []int64{want.list}
	}
	over := true // all are runs that have ended, and the client has all of them
	for i, topic := range want.topics {
		s := stream.Start{Source: stream.Source{Tenant: who.Tenant, Topic: topic.name}, Now: want.after == nil}
		if want.after != nil {
			s.After = want.after[i]
		}
		end := ending{}
		if topic.isRun {
			run, err := g.run(r.Context(), who.Tenant, topic.run)
			if err != nil {
				g.fail(w, r, err)
				return
			}
			if s.After > run.LastSeq {
				g.problem(w, r, http.StatusBadRequest, beyond(s.After, run))
				return
			}
			s.Source, s.Now = stream.Source{Tenant: who.Tenant, Run: topic.run}, false
			end = ending{known: run.Status.Ended(), last: run.LastSeq}
			end.reached = end.known && s.After == run.LastSeq
		}
		over = over && end.reached
		c.starts, c.ends, c.topics = append(c.starts, s), append(c.ends, end), append(c.topics, topic.name)
	}
	if over {
		w.WriteHeader(http.StatusNoContent) // tells an EventSource not to come back
		return
	}
	c.serve(w, r)
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

func (g *Gateway) topicsParameters(r *http.Request) (want streaming, err error) {
	query := r.URL.Query()
	if err = known(query, "topics"); err == nil {
		want.payloadOnly, err = envelope(query)
	}
	if err == nil {
		want.topics, err = g.parseTopics(query)
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
func (g *Gateway) parseTopics(query url.Values) ([]topic, error) {
	names := strings.Split(strings.Join(query["topics"], ","), ",")
	if limit := g.streams.cfg.MaxTopics; len(names) > limit {
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
				errors.New("topics: a stream takes no patterns: name each topic, such as topics=order.placed,order.shipped")
		case t.isRun:
			var err error
			if t.run, err = uuid.Parse(text); err != nil {
				return nil, errors.New("topics: run: is followed by the id of a run, a UUID")
			}
			t.name = runTopic + t.run.String()
		case g.cfg.RunsOnly:
			return nil,
				errors.New("topics: only runs (run:ID) can be streamed here: the relay publishes bare payloads (--envelope " +
					"payload), which do not say whose they are")
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
