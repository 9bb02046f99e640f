package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/sse"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
)

const (
	unacknowledged = 100  // events of a stream, if it does not say how many
	givenAtOnce    = 100  // bounds what a stream has in memory
	mostOfStream   = 1000 // bounds what it can ask for
	// lookAgain is how often a stream that may give no more events asks whether some are
	// acknowledged.
	lookAgain = 100 * time.Millisecond
)

// streamSubscription serves GET /v1/subscriptions/{name}/stream.
func (s *streams) streamSubscription(waiter *subscription.Waiter) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if waiter == nil {
			s.problem(w, r, http.StatusNotImplemented, noSubscriptions)
			return
		}
		most, err := mostParameter(r.URL.Query())
		who, ok := s.streamer(w, r, token.Consume, err)
		if !ok {
			return
		}
		ctx, stop := context.WithCancel(r.Context())
		defer stop()
		g := &giving{streams: s, waiter: waiter, of: subscription.Name{Tenant: who.Tenant, Name: r.PathValue("name")},
			most: most, connection: &connection{cfg: &s.cfg.Streams, counts: &s.counts, tenant: who.Tenant,
				token: who.Token, stop: stop}}
		if err := g.look(ctx); err != nil {
			s.fail(w, r, err)
			return
		}
		s.serve(g.connection, w, r, func(context.Context) error { return g.give(ctx) })
	}
}

// mostParameter reads ?most=.
func mostParameter(query url.Values) (most int, err error) {
	if err := known(query, "most"); err != nil || !query.Has("most") {
		return unacknowledged, err
	}
	most, err = strconv.Atoi(query.Get("most"))
	if err != nil || most < 1 || most > mostOfStream {
		return 0, fmt.Errorf("most: must be 1 to %d", mostOfStream)
	}
	return most, nil
}

// giving is a stream of a subscription.
type giving struct {
	*streams
	*connection
	waiter *subscription.Waiter
	of     subscription.Name
	most   int // unacknowledged events

	open   []uuid.UUID // tokens of answers that are not acknowledged as a whole
	left   int         // events of those
	lapsed bool        // the lease of one is over
	beat   time.Time   // when something was last sent
}

// look asks what the client has acknowledged.
func (g *giving) look(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, g.streams.cfg.Timeout)
	defer cancel()
	g.open, g.left, g.lapsed, err = g.streams.cfg.Subscriptions.Unacknowledged(ctx, g.of.Tenant, g.of.Name, g.open)
	return err
}

// give sends events until the connection is to end. It also ends where a lease does: the client
// hangs, or is gone.
func (g *giving) give(ctx context.Context) error {
	g.beat = time.Now()
	if err := g.greet(nil); err != nil {
		return err
	}
	for !g.due() && !g.lapsed {
		sent, err := g.next(ctx)
		if err == nil && !sent {
			err = g.wait(ctx)
		}
		if err == nil {
			err = g.look(ctx)
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, subscription.ErrUnknown), errors.Is(err, errDrained):
			return nil
		case err != nil:
			return err
		}
	}
	return nil
}

// next sends what there is, as far as there is room.
func (g *giving) next(ctx context.Context) (sent bool, err error) {
	room := min(g.most-g.left, givenAtOnce)
	if room <= 0 {
		return false, nil
	}
	limited, cancel := context.WithTimeout(ctx, g.streams.cfg.Timeout)
	defer cancel()
	events, err := g.streams.cfg.Subscriptions.Next(limited, g.of.Tenant, g.of.Name, room)
	if err != nil || len(events) == 0 {
		return false, err
	}
	g.open = append(g.open, events[0].Token)
	for _, e := range events {
		data, err := json.Marshal(e)
		if err != nil {
			return false, err
		}
		dst, err := sse.Append(nil, sse.Event{Name: e.Type, Data: data})
		if err != nil { // a type by plain SQL may hold anything; the data have it too
			dst, err = sse.Append(nil, sse.Event{Data: data})
		}
		if err = errors.Join(err, g.write(dst)); err != nil {
			return false, err
		}
	}
	g.connection.counts.sent.Add(int64(len(events)))
	g.beat = time.Now()
	return true, g.flush()
}

var errDrained = errors.New("the server stops")

// wait waits for events, or for acknowledgements where there is no room, and sends a sign of life
// when it is time.
func (g *giving) wait(ctx context.Context) error {
	waiting, cancel := context.WithTimeout(ctx, lookAgain)
	if g.left < g.most {
		cancel()
		waiting, cancel = context.WithDeadline(ctx, g.beat.Add(g.cfg.Heartbeat))
	}
	defer cancel()
	if g.left >= g.most {
		<-waiting.Done()
	} else if !g.waiter.Wait(waiting, g.of) && waiting.Err() == nil {
		return errDrained
	}
	if time.Since(g.beat) < g.cfg.Heartbeat {
		return nil
	}
	g.beat = time.Now()
	return errors.Join(g.write(sse.AppendComment(nil, "")), g.flush())
}

// describeSubscriptionStream adds the stream to the description.
func describeSubscriptionStream(doc *huma.OpenAPI) {
	op := streamOperation("streamEvents", "/v1/subscriptions/{name}/stream", "Stream a subscription's events",
		`Its events as they come: *event* is the type, *data* what nextEvents has of it. Acknowledge them by ackEvents, or
give them back. No more than most are unacknowledged. It ends when the lease of one does.
Events have no id, and Last-Event-ID means nothing: the place is the database's. A comment is sent every 15 s.`)
	op.Tags = []string{"Subscriptions"}
	op.Security = []map[string][]string{{bearerScheme: {string(token.Consume)}}, {ticketScheme: {}}}
	one, most := 1.0, float64(mostOfStream)
	op.Parameters = []*huma.Param{
		{Name: "name", In: "path", Required: true, Schema: &huma.Schema{Type: "string"}},
		{Name: "most", In: "query", Description: "Unacknowledged events, at most.",
			Schema: &huma.Schema{Type: "integer", Minimum: &one, Maximum: &most, Default: unacknowledged}},
	}
	delete(op.Responses, "204")
	op.Responses["403"].Description = "The token lacks the scope consume"
	op.Responses["404"].Description = "There is no such subscription"
	doc.AddOperation(op)
}
