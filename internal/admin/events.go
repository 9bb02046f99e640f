package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/server/gateway"
)

// payloadShown is what an event's page has of its payload; a larger one is asked for by itself.
const payloadShown = 64 << 10

type operations func(id, path, summary, details string) huma.Operation

func (d *Desk) routeEvents(api huma.API, read, write operations) {
	gateway.Register(api, read("adminEvents", "/events", "List events", "The newest first, by keyset "+
		"pages."), sharing(d, "events", d.listEvents))
	gateway.Register(api, read("adminEvent", "/events/{id}", "Show an event, and why it is where it is",
		"By its id or its position. A payload of more than 64 KiB is left out."), sharing(d, "event", d.showEvent))
	gateway.Register(api, read("adminPayload", "/events/{id}/payload", "Get the payload of an event", ""), d.payload)
	preview := read("adminEventsPreview", "/events/preview", "Count undelivered events",
		"The answer's upTo keeps what comes later out of what is done with them.")
	preview.Method = http.MethodPost
	gateway.Register(api, preview, d.previewEvents)
	gateway.Register(api, write("adminRetry", "/events/retry", "Try events now that wait for their next "+
		"attempt", ""), d.retry)
	gateway.Register(api, write("adminSkip", "/events/skip", "Make undelivered events dead letters instead of "+
		"delivering them",
		"Of those that the preview has counted. More than that at these places: 409."), d.skip)
}

// EventPlace says where events are looked for.
type EventPlace struct {
	Table string `query:"table" json:"table,omitempty" maxLength:"200" doc:"outbox_events without it."`
	To    string `query:"to" json:"to,omitempty" maxLength:"200" doc:"What this sink did not take at once."`
}

// EventFilter chooses events by all of it that is set.
type EventFilter struct {
	Status []string  `query:"status" json:"status,omitempty" maxItems:"10" doc:"In the table's own words, in any case."`
	Key    string    `query:"key" json:"key,omitempty" maxLength:"1000"`
	Topic  string    `query:"topic" json:"topic,omitempty" maxLength:"500" doc:"A name, or a pattern with *."`
	Type   string    `query:"type" json:"type,omitempty" maxLength:"500" doc:"Of the aggregate, likewise."`
	Tenant string    `query:"tenant" json:"tenant,omitempty" maxLength:"200"`
	Trace  string    `query:"trace" json:"trace,omitempty" maxLength:"100" doc:"Id of the trace in the metadata."`
	Since  time.Time `query:"since" json:"since,omitzero" doc:"Of being written."`
	Until  time.Time `query:"until" json:"until,omitzero"`
}

// filter is what f says.
func (f EventFilter) filter() operate.Filter {
	return operate.Filter{Statuses: f.Status, Tenant: f.Tenant, Key: f.Key, Topic: f.Topic, Type: f.Type,
		Trace: f.Trace, Since: f.Since, Until: f.Until}
}

// EventRows is a page of events, and the states that events of the table can be in.
type EventRows struct {
	Page[operate.EventRow]
	Statuses []string `json:"statuses" nullable:"false"`
}

func (d *Desk) listEvents(ctx context.Context, in *struct {
	Aged
	EventPlace
	EventFilter
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" maxLength:"100"`
}) (*out[EventRows], error) {
	f := in.filter()
	if err := within(ctx, &f.Tenant); err != nil {
		return nil, err
	}
	f.Limit, f.After = in.Limit, in.Cursor
	v, err := d.open(ctx, in.Table, in.To)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	rows, next, err := v.List(ctx, f)
	if err == nil {
		err = v.MarkPaused(ctx, rows)
	}
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	return &out[EventRows]{EventRows{page(rows, next).Body, v.Statuses()}}, nil
}

// ShownEvent is an event and why it is where it is.
type ShownEvent struct {
	Table        string              `json:"table"`
	Event        operate.EventDetail `json:"event"`
	Says         []string            `json:"says" nullable:"false"`
	PayloadBytes int                 `json:"payloadBytes"`
	PayloadCut   bool                `json:"payloadCut"`
}

type eventPath struct {
	Aged
	ID     string `path:"id" maxLength:"100"`
	Table  string `query:"table" maxLength:"200" doc:"Without it, any that the settings know."`
	Tenant string `query:"tenant" maxLength:"200"`
}

func (d *Desk) showEvent(ctx context.Context, in *eventPath) (*out[ShownEvent], error) {
	if err := within(ctx, &in.Tenant); err != nil {
		return nil, err
	}
	x := d.Examination
	why, err := x.Why(ctx, in.Table, in.Tenant, in.ID)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	s := ShownEvent{Table: why.Table, Event: why.Event, Says: why.Says, PayloadBytes: len(why.Event.Payload)}
	if s.PayloadCut = s.PayloadBytes > payloadShown; s.PayloadCut {
		s.Event.Payload = nil
	}
	return &out[ShownEvent]{s}, nil
}

func (d *Desk) payload(ctx context.Context, in *eventPath) (*out[json.RawMessage], error) {
	if err := within(ctx, &in.Tenant); err != nil {
		return nil, err
	}
	v, err := d.open(ctx, in.Table, "")
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	event, err := v.Show(ctx, in.ID, in.Tenant)
	return &out[json.RawMessage]{event.Payload}, d.answer(ctx, err)
}

// EventSelection chooses undelivered events: those that match all of it.
type EventSelection struct {
	EventPlace
	EventFilter
	IDs    []uuid.UUID `json:"ids,omitempty" maxItems:"1000"`
	All    bool        `json:"all,omitempty" doc:"Where nothing else is said."`
	UpTo   int64       `json:"upTo,omitempty" doc:"Of a preview."`
	Events int         `json:"events,omitempty" doc:"How many a preview has counted."`
	Reason string      `json:"reason,omitempty" maxLength:"1000"`
}

// chosen opens the table of a selection.
func (d *Desk) chosen(ctx context.Context, s *EventSelection) (v View, chosen operate.Selection, err error) {
	chosen = operate.Selection{IDs: s.IDs, All: s.All, Filter: s.filter(), UpTo: s.UpTo}
	if chosen.None() { // asked before the tenant of the token is added, which nobody has said
		return v, chosen, refusef("say which events: ids, a filter, or all")
	}
	if err := within(ctx, &chosen.Tenant); err != nil {
		return v, chosen, err
	}
	v, err = d.open(ctx, s.Table, s.To)
	return v, chosen, err
}

// EventCount is how many events there are, or something was done with.
type EventCount struct {
	Events int   `json:"events"`
	UpTo   int64 `json:"upTo,omitempty"`
}

func (d *Desk) previewEvents(ctx context.Context, in *struct{ Body EventSelection }) (*out[EventCount], error) {
	v, chosen, err := d.chosen(ctx, &in.Body)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	n, last, err := v.Undelivered(ctx, chosen)
	return &out[EventCount]{EventCount{n, last}}, d.answer(ctx, err)
}

func (d *Desk) retry(ctx context.Context, in *struct{ Body EventSelection }) (*out[EventCount], error) {
	v, chosen, err := d.chosen(ctx, &in.Body)
	if err == nil {
		err = d.changing(ctx)
	}
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	n, err := v.RetryNow(ctx, chosen, actor(ctx), strings.TrimSpace(in.Body.Reason))
	if n > 0 {
		d.Wake(v.Of.Table)
	}
	return &out[EventCount]{EventCount{Events: n}}, d.answer(ctx, err)
}

func (d *Desk) skip(ctx context.Context, in *struct{ Body EventSelection }) (*out[EventCount], error) {
	v, chosen, err := d.chosen(ctx, &in.Body)
	reason := strings.TrimSpace(in.Body.Reason)
	switch {
	case err == nil && reason == "":
		err = refusef("say why these need not arrive: a reason is required")
	case err == nil && chosen.UpTo == 0:
		err = refusef("count them first: upTo of POST %s/events/preview says which events are meant", base)
	case err == nil:
		err = d.changing(ctx)
	}
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	n, _, err := v.Undelivered(ctx, chosen)
	if err == nil && in.Body.Events > 0 && n > in.Body.Events {
		err = huma.NewError(http.StatusConflict,
			fmt.Sprintf("there are %d events now where the preview has counted %d: count them "+
				"again", n, in.Body.Events))
	}
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	run, err := uuid.NewV7()
	if err == nil {
		n, err = v.Skip(ctx, chosen, operate.Skip{Actor: actor(ctx), Reason: reason, Run: run}, n)
	}
	return &out[EventCount]{EventCount{Events: n}}, d.answer(ctx, err)
}
