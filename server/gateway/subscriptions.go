package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/subscription"
	"github.com/outboxrelay/outbox/server/token"
)

// SubscriptionPath is the path of what is done with one subscription.
type SubscriptionPath struct {
	Name string `path:"name" pattern:"^[a-z0-9][a-z0-9_.-]{0,62}$" doc:"The subscription's name."`
}

// maxWait is how long a request may wait for its first event.
const maxWait = time.Minute

type nextRequest struct {
	SubscriptionPath
	Wait string `query:"wait" default:"0s" doc:"How long to wait for the first event, such as 30s; at most 60s."`
	Most int    `query:"most" minimum:"1" maximum:"1000" default:"100" doc:"Events, at most. There are fewer where they are large."`
}

type nextReply struct {
	Body struct {
		Events []subscription.Given `json:"events" nullable:"false"`
		Paused bool                 `json:"paused,omitempty" doc:"true: an operator has paused the subscription, and it gives no events until it is resumed."`
	} `nameHint:"SubscriptionEvents"`
}

// subscriptions are the operations on subscriptions.
type subscriptions struct {
	*api
	waiter *subscription.Waiter
}

func (a *subscriptions) next(ctx context.Context, in *nextRequest) (*nextReply, error) {
	wait, err := time.ParseDuration(in.Wait)
	if err != nil || wait < 0 || wait > maxWait {
		return nil, a.refusal(ctx, "query",
			&crawl.FieldError{Field: "wait", Problem: "must be a time of 0s to 60s, such as 30s"})
	}
	out := &nextReply{}
	tenant := principalOf(ctx).Tenant
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		room, err := a.reserve(ctx, in.Most, eventSize)
		if err != nil {
			return nil, a.refusal(ctx, "query", err)
		}
		out.Body.Events, err = a.cfg.Subscriptions.Next(ctx, tenant, in.Name, in.Most)
		if out.Body.Paused = errors.Is(err, subscription.ErrPaused); err != nil && !out.Body.Paused {
			return nil, a.refusal(ctx, "query", err)
		}
		var bytes int64
		for _, e := range out.Body.Events {
			bytes += int64(len(e.Payload)+len(e.Metadata)) + envelopeSize
		}
		room.shrink(bytes)
		if len(out.Body.Events) > 0 || wait == 0 {
			break
		}
		room.release() // nobody has it while there is nothing
		ctx.Value(answerKey{}).(*answer).room = nil
		ready := false
		err = outsideShare(ctx, func() {
			ready = a.waiter.Wait(waiting, subscription.Name{Tenant: tenant, Name: in.Name})
		})
		if err != nil {
			return nil, err
		}
		if !ready {
			if ctx.Err() != nil {
				return nil, a.refusal(ctx, "query", ctx.Err())
			}
			break
		}
	}
	if out.Body.Events == nil {
		out.Body.Events = []subscription.Given{} // [] and not null
	}
	return out, nil
}

// Acknowledge is the body of POST /v1/subscriptions/{name}/ack.
type Acknowledge struct {
	Events []subscription.Receipt `json:"events" nullable:"false" minItems:"1" maxItems:"10000"`
}

type ackRequest struct {
	SubscriptionPath
	Body body[Acknowledge]
}

type ackReply struct {
	Body struct {
		Acknowledged int                    `json:"acknowledged"`
		Refused      []subscription.Refused `json:"refused" nullable:"false"`
	} `nameHint:"Acknowledged"`
}

func (a *subscriptions) ack(ctx context.Context, in *ackRequest) (*ackReply, error) {
	if n := len(in.Body.Value.Events); n == 0 || n > 10_000 {
		return nil, a.refusal(ctx, "body",
			&crawl.FieldError{Field: "events", Problem: "must be 1 to 10000 events"})
	}
	out := &ackReply{}
	var err error
	out.Body.Acknowledged, out.Body.Refused, err = a.cfg.Subscriptions.Ack(ctx, principalOf(ctx).Tenant, in.Name,
		in.Body.Value.Events)
	if err != nil {
		return nil, a.refusal(ctx, "body", err)
	}
	if out.Body.Refused == nil {
		out.Body.Refused = []subscription.Refused{}
	}
	return out, nil
}

// GiveBack is the body of POST /v1/subscriptions/{name}/nack.
type GiveBack struct {
	subscription.Receipt
	Error  string `json:"error,omitempty" maxLength:"10000" doc:"Why, for whoever reads the dead letter."`
	Reason string `json:"reason,omitempty" enum:"DeliveryFailed,DeserializationFailed,DuplicateEvent,HandlerMissing,HandlerTimeout" doc:"Error reason of the dead letter. DeserializationFailed and DuplicateEvent make one at once. Missing: DeliveryFailed."`
	Delay  string `json:"delay,omitempty" doc:"When it is given again at the earliest, such as 10s. Missing: by the subscription's backoff."`
}

type nackRequest struct {
	SubscriptionPath
	Body body[GiveBack]
}

type nackReply struct{ Body *subscription.Failure }

func (a *subscriptions) nack(ctx context.Context, in *nackRequest) (*nackReply, error) {
	b := in.Body.Value
	var delay *time.Duration
	if b.Delay != "" {
		d, err := time.ParseDuration(b.Delay)
		if err != nil || d < 0 {
			return nil, a.refusal(ctx, "body",
				&crawl.FieldError{Field: "delay", Problem: "must be a time such as 10s"})
		}
		delay = &d
	}
	failure, err := a.cfg.Subscriptions.Nack(ctx, principalOf(ctx).Tenant, in.Name, b.Receipt, b.Error, b.Reason, delay)
	switch {
	case err != nil:
		return nil, a.refusal(ctx, "body", err)
	case failure == nil:
		return nil, newProblem(http.StatusConflict, "the token is not that of the event: its lease is over and it was "+
			"given again or given up, or it is acknowledged")
	}
	return &nackReply{failure}, nil
}

// Subscribe is the body of PUT /v1/subscriptions/{name}.
type Subscribe struct {
	Types       []string `json:"types,omitempty" maxItems:"100" doc:"Of the events that it gets. Missing: all."`
	From        string   `json:"from,omitempty" default:"latest" doc:"Where it begins: earliest, latest, or a time (RFC 3339)."`
	Lease       string   `json:"lease,omitempty" default:"30s" doc:"How long an event is its consumer's, up to a day."`
	MaxAttempts int      `json:"max_attempts,omitempty" minimum:"1" maximum:"1000" default:"5" doc:"After so many an event is a dead letter."`
}

type subscribeRequest struct {
	SubscriptionPath
	Body body[Subscribe]
}

type subscribeReply struct {
	Status int
	Body   struct {
		Created bool `json:"created" doc:"false: it was there, with these settings."`
	} `nameHint:"Subscribed"`
}

func (a *subscriptions) subscribe(ctx context.Context, in *subscribeRequest) (*subscribeReply, error) {
	b := in.Body.Value
	n, err := subscription.Parse(b.From, b.Lease)
	if err != nil {
		return nil, a.refusal(ctx, "body", err)
	}
	n.Name, n.Tenant, n.Types = in.Name, principalOf(ctx).Tenant, b.Types
	if n.MaxAttempts = cmp.Or(b.MaxAttempts, subscription.DefaultAttempts); n.MaxAttempts < 1 || n.MaxAttempts > 1000 {
		return nil, a.refusal(ctx, "body",
			&crawl.FieldError{Field: "max_attempts", Problem: fmt.Sprintf("is %d, must be 1 to 1000", n.MaxAttempts)})
	}
	n.Limit = a.cfg.MaxSubscriptions
	out := &subscribeReply{Status: http.StatusOK}
	if out.Body.Created, err = a.cfg.Subscriptions.Subscribe(ctx, n); err != nil {
		return nil, a.refusal(ctx, "body", err)
	}
	if out.Body.Created {
		out.Status = http.StatusCreated
	}
	return out, nil
}

type subscriptionsReply struct {
	Body struct {
		Items []subscription.State `json:"items" nullable:"false"`
	} `nameHint:"Subscriptions"`
}

func (a *subscriptions) list(ctx context.Context, _ *struct{}) (*subscriptionsReply, error) {
	out := &subscriptionsReply{}
	var err error
	if out.Body.Items, err = a.cfg.Subscriptions.List(ctx, principalOf(ctx).Tenant); err != nil {
		return nil, a.refusal(ctx, "query", err)
	}
	if out.Body.Items == nil {
		out.Body.Items = []subscription.State{}
	}
	return out, nil
}

func (a *subscriptions) remove(ctx context.Context, in *SubscriptionPath) (*struct{}, error) {
	if err := a.cfg.Subscriptions.Remove(ctx, principalOf(ctx).Tenant, in.Name); err != nil {
		return nil, a.refusal(ctx, "query", err)
	}
	return nil, nil
}

const noSubscriptions = "there are no subscriptions here: they need PostgreSQL, and the migration set log " +
	"(outbox migrate up --set log)"

// served registers an operation, which is answered with 501 where there are no subscriptions.
func served[I, O any](a *subscriptions, op huma.Operation, do func(context.Context, *I) (*O, error)) {
	op.Errors = append(op.Errors, http.StatusNotImplemented)
	Register(a.API, op, func(ctx context.Context, in *I) (*O, error) {
		if a.cfg.Subscriptions == nil {
			return nil, newProblem(http.StatusNotImplemented, noSubscriptions)
		}
		return do(ctx, in)
	})
}

func (a *api) routeSubscriptions(waiter *subscription.Waiter) {
	s := &subscriptions{a, waiter}
	const of = "/v1/subscriptions/{name}"
	next := a.operation("nextEvents", http.MethodGet, of+"/events", token.Consume, http.StatusOK,
		"Get events of a subscription", `Gives what there is, in the order of each key; waits for the first where there is
nothing. An event is given again once its lease is over, unless it was acknowledged. While an event of a key is another
answer's, or waits for its next attempt, nothing behind it of its key is given. A paused subscription gives none: the
answer says so, after wait.`,
		http.StatusNotFound)
	next.Metadata = map[string]any{Waiting: maxWait}
	served(s, next, s.next)
	ack := a.operation("ackEvents", http.MethodPost, of+"/ack", token.Consume, http.StatusOK, "Acknowledge events",
		"They are not given again. What changes nothing is named, with the reason.",
		http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	ack.MaxBodyBytes = a.cfg.MaxBody + 1
	served(s, ack, s.ack)
	served(s, a.operation("nackEvent", http.MethodPost, of+"/nack", token.Consume, http.StatusOK, "Give an event back",
		`It is given again after a time, and is a dead letter after its last attempt. Later events of its key
that came in the same answer are given back with it: leave them alone. 409: the token is not the event's.`,
		http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType),
		s.nack)
	served(s, a.operation("subscribe", http.MethodPut, of, token.Operate, http.StatusCreated, "Make a subscription",
		`Of the token's tenant. One that is there with the same settings stays where it is (200), whatever from says; with
others: 409. One more than the tenant may have: 429.`, http.StatusConflict,
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType), s.subscribe)
	served(s, a.operation("unsubscribe", http.MethodDelete, of, token.Operate, http.StatusNoContent,
		"Remove a subscription", "With its place, and what it has fetched. Its dead letters stay and can no longer be "+
			"replayed.", http.StatusNotFound),
		s.remove)
	served(s, a.operation("listSubscriptions", http.MethodGet, "/v1/subscriptions", token.Read, http.StatusOK,
		"List subscriptions", "Of the tenant: where they are, and what is outstanding."), s.list)
}
