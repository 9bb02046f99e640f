package gateway

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outboxrelay/outbox/server/token"
)

// StreamStats are counted since the process began, but for Connections, which is now.
type StreamStats struct {
	Connections int
	Sent        int64 // events, over all connections
	Slow        int64 // connections that were cut off because the client did not receive in time, or was gone
	Refused     int64 // connections over a limit
}

// streams is what the stream handlers share.
type streams struct {
	gate
	connections *connections
	counts      counts
}

func newStreams(g gate) *streams {
	return &streams{gate: g, connections: newConnections(g.cfg.Streams)}
}

func (s *streams) stats() StreamStats {
	return StreamStats{Connections: s.connections.count(), Sent: s.counts.sent.Load(), Slow: s.counts.slow.Load(),
		Refused: s.counts.refused.Load()}
}

// describeStreams adds the streams to the description. huma does not serve them: they answer over
// minutes.
func describeStreams(doc *huma.OpenAPI) {
	run := streamOperation("streamRun", "/v1/runs/{id}/stream", "Stream a run's events",
		`Its history after the cursor, then its events as they commit, until the run ends. *id* is the event's number
in the run, *event* its type, *data* the CloudEvent. The first given of
Last-Event-ID, lastEventId and fromSeq says what the client has. A comment is sent every 15 s.`)
	run.Parameters = append([]*huma.Param{
		{Name: "id", In: "path", Required: true, Schema: &huma.Schema{Type: "string", Format: "uuid"}},
		{Name: "fromSeq", In: "query", Description: "Begin with this event, counted from 1.",
			Schema: &huma.Schema{Type: "integer", Format: "int64"}},
	}, run.Parameters...)
	doc.AddOperation(run)

	topics := streamOperation("streamTopics", "/v1/stream", "Stream several runs and topics over one connection",
		`Runs (run:ID) as by themselves. Of other topics what is delivered from now on; *outbox.reset* says that
some of it may have been missed. *id* has a place for each topic: send
it back with the same list of topics.`)
	topics.Parameters = append([]*huma.Param{
		{Name: "topics", In: "query", Required: true,
			Description: "Comma-separated: run:ID, or topics such as order.placed.",
			Schema:      &huma.Schema{Type: "string"}},
	}, topics.Parameters...)
	doc.AddOperation(topics)
}

func streamOperation(id, path, summary, details string) *huma.Operation {
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
			"204": {Description: "All runs of the stream have ended, and the client has all of them: " +
				"do not come back."},
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
