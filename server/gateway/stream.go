package gateway

import (
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/sse"
	"github.com/outboxrelay/outbox/server/stream"
)

// runTopic begins a topic that is a run: its channel's name in FR-005.
const runTopic = "run:"

// maxTopic is the length of outbox_events.event_topic (ADR-004).
const maxTopic = 150

// streamRun serves GET /v1/runs/{id}/stream.
func (g *Gateway) streamRun(w http.ResponseWriter, r *http.Request) {
	id, after, payloadOnly, err := runParameters(r)
	who, ok := g.streamer(w, r, err)
	if !ok {
		return
	}
	run, err := g.run(r.Context(), who.Tenant, id)
	if err != nil {
		g.fail(w, r, err)
		return
	}
	if after > run.LastSeq {
		g.problem(w, r, http.StatusBadRequest, beyond(after, run))
		return
	}
	if run.Status.Ended() && after == run.LastSeq {
		w.WriteHeader(http.StatusNoContent) // tells an EventSource not to come back
		return
	}
	c := &connection{
		g: g, payloadOnly: payloadOnly, tenant: who.Tenant, token: who.Token,
		starts: []stream.Start{{Source: stream.Source{Tenant: who.Tenant, Run: id}, After: after}},
		ends:   []ending{endOf(run)},
	}
	c.serve(w, r)
}

func runParameters(r *http.Request) (id uuid.UUID, after int64, payloadOnly bool, err error) {
	query := r.URL.Query()
	if err = known(query); err == nil {
		payloadOnly, err = envelope(query)
	}
	if err == nil {
		after, err = sse.Cursor(r.Header, query)
	}
	if err == nil {
		if id, err = uuid.Parse(r.PathValue("id")); err != nil {
			err = errors.New("the id of a run is a UUID")
		}
	}
	return id, after, payloadOnly, err
}

// streamTopics serves GET /v1/stream.
func (g *Gateway) streamTopics(w http.ResponseWriter, r *http.Request) {
	p, err := g.topicsParameters(r)
	who, ok := g.streamer(w, r, err)
	if !ok {
		return
	}
	c := &connection{g: g, payloadOnly: p.payloadOnly, tenant: who.Tenant, token: who.Token, vector: []int64{p.list}}
	over := true // all are runs that have ended, and the client has all of them
	for i, topic := range p.topics {
		s := stream.Start{Source: stream.Source{Tenant: who.Tenant, Topic: topic.name}, Now: p.cursor == nil}
		if p.cursor != nil {
			s.After = p.cursor[i+1]
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
			end = endOf(run)
			end.reached = end.known && s.After == run.LastSeq
		}
		over = over && end.reached
		c.starts, c.ends, c.topics = append(c.starts, s), append(c.ends, end), append(c.topics, topic.name)
	}
	if over {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c.serve(w, r)
}

type topicsParameters struct {
	topics      []topic
	list        int64   // tells which topics they are
	cursor      []int64 // nil: none; list, then a place for each topic, as it would be about something else with others
	payloadOnly bool
}

func (g *Gateway) topicsParameters(r *http.Request) (p topicsParameters, err error) {
	query := r.URL.Query()
	if err = known(query, "topics"); err == nil {
		p.payloadOnly, err = envelope(query)
	}
	if err == nil {
		p.topics, err = g.parseTopics(query)
	}
	if err != nil {
		return p, err
	}
	names := make([]string, len(p.topics))
	for i, t := range p.topics {
		names[i] = t.name
	}
	p.list = int64(crc32.ChecksumIEEE([]byte(strings.Join(names, ","))))
	switch p.cursor, err = sse.VectorCursor(r.Header, query, len(names)+1); {
	case err != nil:
		return p, err
	case p.cursor != nil && p.cursor[0] != p.list:
		return p, errors.New("the last event id is of a stream with other topics, or with these in another order")
	case query.Has("fromSeq"):
		return p, errors.New("fromSeq: is for the stream of one run; here the last event id says where to go on")
	}
	return p, nil
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

func endOf(run crawl.Run) ending { return ending{known: run.Status.Ended(), last: run.LastSeq} }
