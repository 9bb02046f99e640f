package gateway

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

// StreamStats are counted since the process began, but for Connections, which is now.
type StreamStats struct {
	Connections int
	Sent        int64 // events, over all connections
	Slow        int64 // connections that were cut off because the client did not receive in time, or was gone
	Refused     int64 // connections over a limit
}

// StreamStats returns what happened so far.
func (g *Gateway) StreamStats() StreamStats {
	s := g.streams
	return StreamStats{Connections: s.connections.count(), Sent: s.sent.Load(), Slow: s.slow.Load(),
		Refused: s.refused.Load()}
}

// DrainStreams ends all streams, spread over StreamConfig.DrainWindow, each after the event it is sending, and waits
// for them or for ctx. Those opened meanwhile end at once. The server's listener should be closed before, so that
// clients come back to another gateway.
func (g *Gateway) DrainStreams(ctx context.Context) { g.streams.connections.drain(ctx) }

// eventStream is the content type of a stream.
const eventStream = "text/event-stream"

func (g *Gateway) routeStreams(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/runs/{id}/stream", g.streamRun)
	mux.HandleFunc("GET /v1/stream", g.streamTopics)
	g.describeStreams()
}

// streamer returns who may open a stream, or answers why not. invalid is what is wrong with the stream's own
// parameters: a ticket, which is good for one stream, is not used up by a request that opens none.
func (g *Gateway) streamer(w http.ResponseWriter, r *http.Request, invalid error) (who token.Principal, ok bool) {
	switch {
	case r.ContentLength != 0:
		w.Header().Set("Connection", "close") // net/http would read it before it sends anything, for as long as it takes
		g.problem(w, r, http.StatusBadRequest, "a stream takes no body")
		return token.Principal{}, false
	case invalid != nil:
		g.problem(w, r, http.StatusBadRequest, invalid.Error())
		return token.Principal{}, false
	case r.Method == http.MethodHead: // GET's pattern takes it too
		w.Header().Set("Content-Type", eventStream)
		return token.Principal{}, false
	}
	var err error
	aside(func() { who, err = g.principal(r) })
	note(w, who, err)
	if err != nil {
		g.fail(w, r, err)
		return token.Principal{}, false
	}
	return who, g.may(w, r, who, token.Read)
}

// known refuses a query with a parameter that is neither one of parameters nor one of all streams: one that is misspelt
// would not fail, but stream from the beginning.
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
func (g *Gateway) run(ctx context.Context, tenant string, id uuid.UUID) (run crawl.Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Timeout)
	defer cancel()
	aside(func() { run, err = g.cfg.Runs.Get(ctx, tenant, id) })
	return run, err
}

// beyond tells a client that it has seen what the run does not have.
func beyond(after int64, run crawl.Run) string {
	return fmt.Sprintf("the last event id is %d, but run %s has only %d events: begin again without one", after, run.ID,
		run.LastSeq)
}
