package gateway

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
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

// StreamConfig holds the settings of streams. Zero values are the defaults.
type StreamConfig struct {
	// Heartbeat is how often a comment is sent when there is nothing else, so that proxies keep the connection and a
	// dead one is noticed (15 s).
	Heartbeat time.Duration
	// WriteTimeout is how long a client may take to receive one write, of at most 16 KiB (10 s). One that takes longer
	// is cut off; it comes back with its cursor.
	WriteTimeout time.Duration
	// Retry is how long a browser waits before it connects again (1 s, up to half as much longer by chance).
	Retry time.Duration
	// MaxAge is how long a connection lives before the client has to connect again, give or take a fifth. So connections
	// spread over gateways again after one was restarted (30 min).
	MaxAge time.Duration
	// DrainWindow is over how long DrainStreams spreads the ends of the connections, so that the clients do not all
	// connect again at once (5 s). Fewer than 500 take less: 10 ms each.
	DrainWindow time.Duration
	// TokenCheck is how often the store is asked which tokens of open streams are valid still (5 s). The streams of one
	// that is not end then.
	TokenCheck time.Duration
	// Connections at a time, of a run, a tenant and the process. More are answered with status 429 (1,000 or a fifth of
	// the tenant's, if that is more; 5,000 and 20,000).
	MaxPerRun, MaxPerTenant, MaxConnections int
	// Topics that the streams of a tenant, and of the process, follow at a time, each counted once. More are answered with
	// status 429 (1,000 and 4,000, or a fifth of the connections, if that is more). Each is a subscription at the broker,
	// and has a memory of its last messages.
	MaxTopicsPerTenant, MaxTopicsFollowed int
	// MaxTopics is how many topics one stream may have (50).
	MaxTopics int
}

func (c StreamConfig) withDefaults() StreamConfig {
	for _, d := range []struct {
		value *time.Duration
		zero  time.Duration
	}{
		{&c.Heartbeat, 15 * time.Second}, {&c.WriteTimeout, 10 * time.Second}, {&c.Retry, time.Second},
		{&c.MaxAge, 30 * time.Minute}, {&c.DrainWindow, 5 * time.Second},
		{&c.TokenCheck, 5 * time.Second},
	} {
		if *d.value <= 0 {
			*d.value = d.zero
		}
	}
	for _, n := range []struct {
		value *int
		zero  int
	}{{&c.MaxPerTenant, 5000}, {&c.MaxConnections, 20_000}, {&c.MaxTopics, 50},
		{&c.MaxPerRun, max(1000, c.MaxPerTenant/5)}, {&c.MaxTopicsPerTenant, max(1000, c.MaxPerTenant/5)},
		{&c.MaxTopicsFollowed, max(4000, c.MaxConnections/5)}} {
		if *n.value <= 0 {
			*n.value = n.zero
		}
	}
	return c
}

// drainWindow returns over how long that many connections end.
func (c StreamConfig) drainWindow(open int) time.Duration {
	return min(c.DrainWindow, time.Duration(open)*10*time.Millisecond)
}

// jitter returns d, give or take up to a part of it.
func jitter(d time.Duration, part float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*part*float64(d))
}

// describeStreams adds the streams to the description. huma does not serve them: they answer over minutes.
func (g *Gateway) describeStreams() {
	run := g.stream("streamRun", "/v1/runs/{id}/stream", "Stream a run's events",
		`Its history after the cursor, then its events as they commit, until the run ends. *id* is the event's number in the run, *event* its type, *data* the CloudEvent. The first given of
Last-Event-ID, lastEventId and fromSeq says what the client has. A comment is sent every 15 s.`)
	run.Parameters = append([]*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string", Format: "uuid"}},
		{Name: "fromSeq", In: "query", Description: "Begin with this event, counted from 1.",
			Schema: &huma.Schema{Type: "integer", Format: "int64"}},
	}, run.Parameters...)
	g.api.OpenAPI().AddOperation(run)

	topics := g.stream("streamTopics", "/v1/stream", "Stream several runs and topics over one connection",
		`Runs (run:ID) as by themselves. Of other topics what is delivered from now on; *outbox.reset* says that some of it may have been missed. *id* has a place for each topic: send
it back with the same list of topics.`)
	topics.Parameters = append([]*huma.Param{
		{Name: "topics", In: "query", Required: true, Description: "Comma-separated: run:ID, or topics such as order.placed.",
			Schema: &huma.Schema{Type: "string"}},
	}, topics.Parameters...)
	g.api.OpenAPI().AddOperation(topics)
}

func (g *Gateway) stream(id, path, summary, details string) *huma.Operation {
	text := func(name, in, description string) *huma.Param {
		return &huma.Param{Name: name, In: in, Description: description, Schema: &huma.Schema{Type: "string"}}
	}
	op := &huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary, Description: details,
		Tags:     []string{"Streams"},
		Security: []map[string][]string{{bearerScheme: {string(token.Read)}}, {ticketScheme: {}}},
		Parameters: []*huma.Param{
			text("Last-Event-ID", "header", "The id of the last event that the client has."),
			text("lastEventId", "query", "The same, for who cannot send a header."),
			{Name: "envelope", In: "query",
				Schema: &huma.Schema{Type: "string", Enum: []any{"cloudevents", "payload"}, Default: "cloudevents"}},
		},
		Responses: map[string]*huma.Response{
			"200": {Description: "Server-Sent Events.",
				Content: map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: "string"}}}},
			"204": {Description: "All runs of the stream have ended, and the client has all of them: do not come back."},
		},
	}
	problem := map[string]*huma.MediaType{
		"application/problem+json": {Schema: &huma.Schema{Ref: "#/components/schemas/ErrorModel"}},
	}
	for status, description := range map[string]string{
		"400": "A malformed parameter, a cursor beyond the last event, or a body", "401": "No valid token or ticket",
		"403": "The token lacks the scope read",
		"404": "There is no such run", "429": "Too many streams are open", "503": "The database does not answer",
	} {
		op.Responses[status] = &huma.Response{Description: description, Content: problem}
	}
	return op
}
