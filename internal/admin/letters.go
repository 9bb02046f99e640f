package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/server/gateway"
)

func (d *Desk) routeLetters(api huma.API, read, write operations) {
	gateway.Register(api, read("adminLetters", "/letters", "List dead letters", "The newest first, by keyset pages."),
		d.listLetters)
	gateway.Register(api, read("adminLetterGroups", "/letters/groups", "Count dead letters by the fingerprint of their "+
		"error", ""), sharing(d, "groups", d.groupLetters))
	gateway.Register(api, read("adminLetter", "/letters/{id}", "Show a dead letter, or those of an event or a job", ""),
		d.showLetter)
	preview := read("adminLettersPreview", "/letters/preview", "Say what a replay of dead letters would do",
		"The answer's set names exactly the letters that were seen. What comes later is not among them.")
	preview.Method = http.MethodPost
	gateway.Register(api, preview, d.previewLetters)
	replay := write("adminReplay", "/letters/replay", "Replay the dead letters of a set",
		"Answers with Server-Sent Events: progress, and at last end. In steps it stops by itself when too large a "+
			"share of "+
			"a step's events fails again. It ends with the connection; what was replayed stays replayed. A set that "+
			"is no "+
			"longer the same: 409.")
	replay.Metadata = map[string]any{gateway.Waiting: streamed}
	replay.Responses = streams[Progress](api, "Progress, and at last the end.")
	gateway.Register(api, replay, d.replay)
	discard := write("adminDiscard", "/letters/discard", "Discard the dead letters of a set", "")
	discard.Metadata = map[string]any{gateway.Waiting: time.Minute}
	gateway.Register(api, discard, d.discard)
}

// LetterFilter chooses letters by all of it that is set.
type LetterFilter struct {
	Source      string    `query:"source" json:"source,omitempty" enum:"event,job,"`
	Reason      string    `query:"reason" json:"errorReason,omitempty" maxLength:"100" doc:"Such as DeliveryFailed."`
	Type        string    `query:"type" json:"type,omitempty" maxLength:"500" doc:"A topic, or a pattern with *."`
	Tenant      string    `query:"tenant" json:"tenant,omitempty" maxLength:"200"`
	Key         string    `query:"key" json:"key,omitempty" maxLength:"1000"`
	RequestID   string    `query:"requestId" json:"requestId,omitempty" maxLength:"36"`
	Table       string    `query:"table" json:"table,omitempty" maxLength:"200"`
	Destination string    `query:"destination" json:"destination,omitempty" maxLength:"500"`
	Since       time.Time `query:"since" json:"since,omitzero"`
	Until       time.Time `query:"until" json:"until,omitzero"`
	Error       string    `query:"error" json:"error,omitempty" maxLength:"500" doc:"Part of any of their errors."`
	Fingerprint string    `query:"fingerprint" json:"fingerprint,omitempty" maxLength:"12"`
}

// filter is what f says, of the tenant that the request is bound to.
func (f LetterFilter) filter(ctx context.Context) (deadletter.Filter, error) {
	if err := within(ctx, &f.Tenant); err != nil {
		return deadletter.Filter{}, err
	}
	d := deadletter.Filter{Source: deadletter.Source(f.Source), Reason: f.Reason, Type: f.Type, Tenant: f.Tenant,
		Key: f.Key, Table: f.Table, Destination: f.Destination, Since: f.Since, Until: f.Until, Error: f.Error,
		Fingerprint: f.Fingerprint}
	if f.RequestID != "" {
		id, err := uuid.Parse(f.RequestID)
		if err != nil {
			return d, refusef("requestId %q is no UUID", f.RequestID)
		}
		d.RequestID = id
	}
	return d, nil
}

func (d *Desk) listLetters(ctx context.Context, in *struct {
	LetterFilter
	State  string `query:"state" enum:"pending,replayed,discarded,all" default:"pending"`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string `query:"cursor" maxLength:"100"`
}) (*out[Page[deadletter.Letter]], error) {
	f, err := in.filter(ctx)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	f.State, f.Limit, f.After = deadletter.State(in.State), in.Limit, in.Cursor
	store, err := d.letters(ctx)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	found, next, err := store.List(ctx, f)
	return page(found, next), d.answer(ctx, err)
}

func (d *Desk) groupLetters(ctx context.Context, in *struct {
	Aged
	LetterFilter
	State string `query:"state" enum:"pending,replayed,discarded,all" default:"pending"`
	Limit int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
}) (*out[deadletter.Stats], error) {
	f, err := in.filter(ctx)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	f.State, f.Limit = deadletter.State(in.State), in.Limit
	store, err := d.letters(ctx)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	stats, err := store.Stats(ctx, f)
	if stats.Groups == nil {
		stats.Groups = []deadletter.Group{}
	}
	return &out[deadletter.Stats]{stats}, d.answer(ctx, err)
}

func (d *Desk) showLetter(ctx context.Context, in *struct {
	ID uuid.UUID `path:"id"`
}) (*out[Page[deadletter.Letter]], error) {
	store, err := d.letters(ctx)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	found, err := store.Show(ctx, in.ID, tenantOf(ctx))
	return page(found, ""), d.answer(ctx, err)
}

// LetterSelection chooses pending letters: those that match all of it.
type LetterSelection struct {
	LetterFilter
	IDs       []uuid.UUID `json:"ids,omitempty" maxItems:"1000"`
	All       bool        `json:"all,omitempty" doc:"Every pending one, where nothing else is said."`
	Discarded bool        `json:"discarded,omitempty" doc:"ids may name discarded letters too."`
}

// frozen opens the letters and freezes a selection. want, where it is not "", is the set that it
// must still be.
func (d *Desk) frozen(ctx context.Context, s LetterSelection, want string) (deadletter.Store, deadletter.Set, error) {
	f, err := s.filter(ctx)
	if err != nil {
		return nil, deadletter.Set{}, err
	}
	if bound := (deadletter.Filter{Tenant: tenantOf(ctx)}); f == bound && len(s.IDs) == 0 && !s.All {
		return nil, deadletter.Set{}, refusef("say which letters: ids, a filter, or all")
	}
	store, err := d.letters(ctx)
	if err != nil {
		return nil, deadletter.Set{}, err
	}
	set, err := deadletter.Freeze(ctx, store,
		deadletter.Selection{IDs: s.IDs, All: s.All, Discarded: s.Discarded, Filter: f}, want)
	if errors.Is(err, deadletter.ErrSetChanged) {
		err = huma.Error409Conflict(err.Error())
	}
	return store, set, err
}

// LettersPreview is what a replay would do, and the name of the set that it would do it with.
type LettersPreview struct {
	deadletter.Preview
	Set string `json:"set"`
}

func (d *Desk) previewLetters(ctx context.Context, in *struct{ Body LetterSelection }) (*out[LettersPreview], error) {
	store, set, err := d.frozen(ctx, in.Body, "")
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	p, err := store.Preview(ctx, set.Selection, d.Config.DedupWindow)
	if p.Tables == nil {
		p.Tables = []deadletter.PreviewTable{}
	}
	p.Letters = len(set.Letters)
	return &out[LettersPreview]{LettersPreview{p, set.Name()}}, d.answer(ctx, err)
}

// ReplayRequest says which letters to replay, and how.
type ReplayRequest struct {
	LetterSelection
	Set     string          `json:"set" minLength:"1" maxLength:"120" doc:"Of a preview."`
	Because string          `json:"reason,omitempty" maxLength:"1000" doc:"Why, for the record."`
	Rate    int             `json:"rate,omitempty" minimum:"0" doc:"Letters a second; 0: as fast as it goes."`
	Steps   []int           `json:"steps,omitempty" maxItems:"20" doc:"Letters of the first steps."`
	StopAt  float64         `json:"stopAt,omitempty" minimum:"0" maximum:"1" doc:"Share that may fail."`
	Payload json.RawMessage `json:"payload,omitempty" doc:"Instead of its own, of a single letter named by its id."`
}

// Progress is how far a replay has come.
type Progress struct {
	Total    int `json:"total"`
	Replayed int `json:"replayed"`
	Skipped  int `json:"skipped"`
	Step     int `json:"step"`
	deadletter.Became
	Delivered   int                     `json:"delivered" doc:"Of all steps, as far as they have been looked at."`
	SkipReasons []deadletter.SkipReason `json:"skipReasons,omitempty"`
	// Outcome and Says are of the last one: done, stopped, cancelled or failed.
	Outcome string `json:"outcome,omitempty"`
	Says    string `json:"says,omitempty"`

	before int // Delivered, of the steps before
}

func (p *Progress) take(sum deadletter.Replayed, at deadletter.Stepped) {
	p.Replayed, p.Skipped, p.SkipReasons = sum.Letters, sum.Skipped, sum.Reasons
	if at.Step == 0 {
		return
	}
	if at.Step != p.Step {
		p.before = p.Delivered
	}
	p.Step, p.Became = at.Step, at.Became
	p.Delivered = p.before + at.Letters - at.Waiting - at.Failing - at.Dead
}

func (d *Desk) replay(ctx context.Context, in *struct{ Body ReplayRequest }) (*huma.StreamResponse, error) {
	r := in.Body
	if err := d.changing(ctx); err != nil {
		return nil, err
	}
	store, set, err := d.frozen(ctx, r.LetterSelection, r.Set)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	o := deadletter.ReplayOptions{Selection: set.Selection, Rate: r.Rate, Payload: r.Payload,
		Operator: deadletter.Operator{Actor: actor(ctx), Reason: strings.TrimSpace(r.Because)}}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		ctx, cancel := d.live(hc.Context())
		defer cancel()
		events, p := startEvents(hc), Progress{Total: len(set.Letters)}
		tell := func(name string) {
			if events.send(name, p) != nil {
				cancel() // the operator has gone
			}
		}
		o.Progress = func(sum deadletter.Replayed, page deadletter.ReplayPage) {
			for table := range page.Replayed {
				d.Wake(table)
			}
			p.take(sum, deadletter.Stepped{})
			tell("progress")
		}
		report := func(sum deadletter.Replayed, at deadletter.Stepped) { p.take(sum, at); tell("progress") }
		steps := deadletter.Steps{Sizes: append([]int{}, r.Steps...), StopAt: r.StopAt} // without any there are no steps
		sum, err := deadletter.ReplaySteps(ctx, inShare{store}, set, o, steps, report)
		p.take(sum, deadletter.Stepped{})
		p.Outcome, p.Says = "done", fmt.Sprintf("%d of %d letters were replayed", sum.Letters, p.Total)
		switch {
		case errors.Is(err, deadletter.ErrStopped):
			p.Outcome, p.Says = "stopped", err.Error()
		case errors.Is(err, context.Canceled):
			p.Outcome = "cancelled"
		case err != nil:
			p.Outcome, p.Says = "failed", err.Error()
		}
		tell("end")
	}}, nil
}

// inShare is a store whose calls by a replay count as requests of its tenant, page by page.
type inShare struct{ deadletter.Store }

func (s inShare) ReplayPage(ctx context.Context, r deadletter.ReplayRequest) (page deadletter.ReplayPage, err error) {
	failed := gateway.InShare(ctx, func() { page, err = s.Store.ReplayPage(ctx, r) })
	return page, errors.Join(failed, err)
}

func (s inShare) Became(ctx context.Context, ids []uuid.UUID, tenant string) (became deadletter.Became, err error) {
	failed := gateway.InShare(ctx, func() { became, err = s.Store.Became(ctx, ids, tenant) })
	return became, errors.Join(failed, err)
}

// DiscardRequest says which letters to discard, and why.
type DiscardRequest struct {
	LetterSelection
	Set     string `json:"set" minLength:"1" maxLength:"120" doc:"Of a preview."`
	Because string `json:"reason" minLength:"1" maxLength:"1000"`
}

// LetterCountDone is how many letters something was done with.
type LetterCountDone struct {
	Letters int `json:"letters"`
}

func (d *Desk) discard(ctx context.Context, in *struct{ Body DiscardRequest }) (*out[LetterCountDone], error) {
	if err := d.changing(ctx); err != nil {
		return nil, err
	}
	store, set, err := d.frozen(ctx, in.Body.LetterSelection, in.Body.Set)
	if err != nil {
		return nil, d.answer(ctx, err)
	}
	n, err := deadletter.DiscardSet(ctx, store, set,
		deadletter.Operator{Actor: actor(ctx), Reason: strings.TrimSpace(in.Body.Because)})
	return &out[LetterCountDone]{LetterCountDone{n}}, d.answer(ctx, err)
}
