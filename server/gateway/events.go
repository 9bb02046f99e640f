package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
	"github.com/outboxrelay/outbox/server/token"
)

// AppendEvents is the body of POST /v1/runs/{id}/events.
type AppendEvents struct {
	Events []AppendEvent `json:"events" nullable:"false" minItems:"1" maxItems:"500" doc:"In this order; all of them are appended, or none."`
}

// AppendEvent is an event to append.
type AppendEvent struct {
	ID      *uuid.UUID      `json:"id,omitempty" format:"uuid" doc:"Makes appending it again harmless. Made by the server if missing."`
	Type    string          `json:"type" maxLength:"50" pattern:"^[A-Z0-9_]+$" example:"ACTION_EXECUTED" doc:"RUN_STARTED, RUN_COMPLETED, RUN_FAILED and RUN_CANCELLED are appended by start, complete, fail and cancel."`
	Payload json.RawMessage `json:"payload,omitempty" doc:"Any JSON that jsonb takes; {} if missing."`
}

type appendRequest struct {
	RunPath
	Body body[AppendEvents]
}

type appendReply struct {
	Replayed string `header:"Idempotency-Replayed" doc:"true: all of them were there already."`
	Body     struct {
		FirstSeq int64 `json:"firstSeq" doc:"Number of the first of these events."`
		LastSeq  int64 `json:"lastSeq"`
	} `nameHint:"Appended"`
}

func (a *api) appendEvents(ctx context.Context, in *appendRequest) (*appendReply, error) {
	events := make([]crawl.NewEvent, len(in.Body.Value.Events))
	var problems []error
	for i, e := range in.Body.Value.Events {
		events[i] = crawl.NewEvent{Type: e.Type, Payload: e.Payload}
		if e.ID == nil {
			continue
		}
		if events[i].ID = *e.ID; *e.ID == uuid.Nil { // to the service it is "not given", which it was not
			problems = append(problems,
				&crawl.FieldError{Field: fmt.Sprintf("events[%d].id", i), Problem: "is the nil UUID"})
		}
	}
	if len(problems) > 0 {
		return nil, a.refusal(ctx, "body", errors.Join(problems...))
	}
	changed, err := a.cfg.Runs.Append(ctx, principalOf(ctx).Tenant, in.ID, events...)
	if err != nil {
		return nil, a.refusal(ctx, "body", workers(err))
	}
	out := &appendReply{}
	if changed.Appended == 0 {
		out.Replayed = "true"
	}
	out.Body.FirstSeq, out.Body.LastSeq = changed.First, changed.Last
	return out, nil
}

type eventsRequest struct {
	RunPath
	After int64 `query:"after" minimum:"0" doc:"Only events with a greater number."`
	Limit int   `query:"limit" minimum:"1" maximum:"1000" default:"500" doc:"Events a page."`
}

type eventsReply struct {
	Body struct {
		Items      []crawl.Event `json:"items" nullable:"false"`
		NextCursor string        `json:"nextCursor,omitempty" doc:"after for the next page; missing if there was none."`
	} `nameHint:"EventPage"`
}

func (a *api) listEvents(ctx context.Context, in *eventsRequest) (*eventsReply, error) {
	room, err := a.reserve(ctx, in.Limit, eventSize)
	if err != nil {
		return nil, a.refusal(ctx, "query", err)
	}
	events, err := a.cfg.Runs.Events(ctx, principalOf(ctx).Tenant, in.ID, in.After, in.Limit)
	if err != nil {
		return nil, a.refusal(ctx, "query", err)
	}
	out := &eventsReply{}
	if out.Body.Items = events; events == nil {
		out.Body.Items = []crawl.Event{} // [] and not null
	}
	bytes := 0
	for i := range events {
		bytes += len(events[i].Payload) + envelopeSize
	}
	room.shrink(int64(bytes))
	n := len(events)
	more := n == in.Limit
	if n > 0 && !more { // the end, or a page of large events
		run, err := a.cfg.Runs.Get(ctx, principalOf(ctx).Tenant, in.ID)
		if err != nil {
			return nil, a.refusal(ctx, "query", err)
		}
		more = events[n-1].Seq < run.LastSeq
	}
	if more {
		out.Body.NextCursor = strconv.FormatInt(events[n-1].Seq, 10)
	}
	return out, nil
}

func (a *api) routeEvents() {
	add := a.operation("appendEvents", http.MethodPost, "/v1/runs/{id}/events", token.Write, http.StatusCreated,
		"Append events to a run",
		`Appends events to a RUNNING run whose crawler is external. Events whose ids the run has already,
with the same type and payload, are not appended again, even when it has
ended meanwhile; with another type or payload: 409. A run that is not RUNNING, or that a worker crawls: 409.`,
		http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	add.MaxBodyBytes = a.cfg.MaxBody + 1
	Register(a.API, add, a.appendEvents)
	Register(a.API, a.operation("listEvents", http.MethodGet, "/v1/runs/{id}/events", token.Read, http.StatusOK,
		"List a run's events",
		"In their order. An event is in the list from when it is committed, and every event before it is too.",
		http.StatusNotFound), a.listEvents)
}
