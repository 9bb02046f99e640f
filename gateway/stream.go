package gateway

import (
	"errors"
	"hash/crc32"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/crawl"
	"github.com/outboxrelay/outbox/gateway/sse"
	"github.com/outboxrelay/outbox/stream"
)

// runTopic begins a topic that is a run: its channel's name in FR-005.
const runTopic = "run:"

// maxTopic is the length of outbox_events.event_topic (ADR-004).
const maxTopic = 150

// streamRun serves GET /v1/runs/{id}/stream.
func (g *Gateway) streamRun(w http.ResponseWriter, r *http.Request) {
	who, ok := g.streamer(w, r)
	if !ok {
		return
	}
	query := r.URL.Query()
	payloadOnly, err := envelope(query)
	if err != nil {
		g.problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	after, err := sse.Cursor(r.Header, query)
	if err != nil {
		g.problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	id, err := uuid.Parse(r.PathValue("id"))
	if err != nil {
		g.problem(w, r, http.StatusBadRequest, "the id of a run is a UUID")
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
		g: g, payloadOnly: payloadOnly, tenant: who.Tenant,
		starts: []stream.Start{{Source: stream.Source{Tenant: who.Tenant, Run: id}, After: after}},
		ends:   []ending{endOf(run)},
	}
	c.serve(w, r)
}

// streamTopics serves GET /v1/stream.
func (g *Gateway) streamTopics(w http.ResponseWriter, r *http.Request) {
	who, ok := g.streamer(w, r, "topics")
	if !ok {
		return
	}
	query := r.URL.Query()
	payloadOnly, err := envelope(query)
	if err != nil {
		g.problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	topics, err := parseTopics(query, g.streams.cfg.MaxTopics)
	if err != nil {
		g.problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	// The cursor has a place for each topic, after one that tells which topics they are: with others it would be about something else.
	list := int64(crc32.ChecksumIEEE([]byte(strings.Join(topics, ","))))
	cursor, err := sse.VectorCursor(r.Header, query, len(topics)+1)
	if err == nil && cursor != nil && cursor[0] != list {
		err = errors.New("the last event id is of a stream with other topics, or with these in another order")
	}
	if err == nil && query.Has("fromSeq") {
		err = errors.New("fromSeq: is for the stream of one run; here the last event id says where to go on")
	}
	if err != nil {
		g.problem(w, r, http.StatusBadRequest, err.Error())
		return
	}
	c := &connection{g: g, payloadOnly: payloadOnly, tenant: who.Tenant, vector: []int64{list}, topics: topics}
	over := true // all are runs that have ended, and the client has all of them
	for i, topic := range topics {
		s := stream.Start{Source: stream.Source{Tenant: who.Tenant, Topic: topic}, Now: cursor == nil}
		if cursor != nil {
			s.After = cursor[i+1]
		}
		end := ending{}
		if text, isRun := strings.CutPrefix(topic, runTopic); isRun {
			id, err := uuid.Parse(text)
			if err != nil {
				g.problem(w, r, http.StatusBadRequest, "topics: run: is followed by the id of a run, a UUID")
				return
			}
			run, err := g.run(r.Context(), who.Tenant, id)
			if err != nil {
				g.fail(w, r, err)
				return
			}
			if s.After > run.LastSeq {
				g.problem(w, r, http.StatusBadRequest, beyond(s.After, run))
				return
			}
			s.Source, s.Now = stream.Source{Tenant: who.Tenant, Run: id}, false
			end = endOf(run)
			end.reached = end.known && s.After == run.LastSeq
		}
		over = over && end.reached
		c.starts, c.ends = append(c.starts, s), append(c.ends, end)
	}
	if over {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c.serve(w, r)
}

// parseTopics reads ?topics=a,b, which may be given several times.
func parseTopics(query url.Values, limit int) ([]string, error) {
	topics := strings.Split(strings.Join(query["topics"], ","), ",")
	seen := map[string]bool{}
	for _, topic := range topics {
		switch {
		case topic == "":
			return nil, errors.New("topics: want a list of topics, such as topics=run:ID,order.placed")
		case len(topic) > maxTopic:
			return nil, errors.New("topics: a topic has at most 150 characters")
		case strings.ContainsFunc(topic, func(c rune) bool { return c < ' ' || c == 0x7f }):
			return nil, errors.New("topics: a topic has no control characters")
		case seen[topic]:
			return nil, errors.New("topics: one is given twice")
		}
		seen[topic] = true
	}
	if len(topics) > limit {
		return nil, errTooManyTopics(limit)
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

// ending is what is known of the end of a source.
type ending struct {
	known   bool  // it has ended, and last is its last event
	last    int64 // of a run that ended before the connection began
	reached bool  // the client has everything
}

func endOf(run crawl.Run) ending { return ending{known: run.Status.Ended(), last: run.LastSeq} }
