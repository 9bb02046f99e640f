package deadletter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/backoff"
)

const (
	// pageLetters bounds a page: its rows stay locked until it commits, and Ctrl-C waits for it.
	pageLetters = 500
	// pageLimit bounds the transaction of a page. A stop does not interrupt one: its outcome would
	// be unknown.
	pageLimit = 30 * time.Second
	// firstIDs is how many letters a report names of each kind.
	firstIDs = 10
)

// ReplayRequest asks for a page.
type ReplayRequest struct {
	Selection Selection
	Operator  Operator
	Run       uuid.UUID       // the same for all pages of one replay, for the record
	Payload   json.RawMessage // instead of the letter's; nil: the letter's own
	Limit     int             // letters; those of one event are never parted, so a page may have a few more
	After     string          // Next of the page before
}

// ReplayPage says what became of a page.
type ReplayPage struct {
	Replayed map[string]int // letters by table; "" for jobs
	Skipped  []Skipped
	Next     string // "" after the last page
}

// Skipped is a letter that was left as it is, and why.
type Skipped struct {
	ID  uuid.UUID
	Why string
}

// ReplayOptions say what to replay and how.
type ReplayOptions struct {
	Selection Selection
	Operator  Operator
	Payload   json.RawMessage // instead of its own, for a single letter
	Rate      int             // letters a second; 0: as fast as it goes
	// Progress, if set, is called after each page.
	Progress func(sum Replayed, page ReplayPage)
}

// Replayed sums up a replay.
type Replayed struct {
	Letters int            `json:"replayed"`
	Tables  map[string]int `json:"tables"` // the same by table; "" for jobs
	Skipped int            `json:"skipped"`
	Reasons []SkipReason   `json:"skipReasons,omitempty"`
}

// SkipReason is letters that were left as they are for one reason.
type SkipReason struct {
	Why   string      `json:"why"`
	Count int         `json:"count"`
	First []uuid.UUID `json:"first"` // at most 10
}

// Replay puts letters back to work, page by page, the letters of a key in the order of its events.
// When ctx ends it finishes the page it is at and returns the sum so far with the error of ctx. The
// same call goes on from there later, because what was replayed is no longer pending. Letters that
// are written behind the place it has reached are met as well.
func Replay(ctx context.Context, store Store, o ReplayOptions) (Replayed, error) {
	sum := Replayed{Tables: map[string]int{}}
	if err := o.Selection.check(); err != nil {
		return sum, fmt.Errorf("replay: %w", err)
	}
	if err := o.checkPayload(); err != nil {
		return sum, err
	}
	p, err := newPace(o)
	if err != nil {
		return sum, err
	}
	p.request.Selection = o.Selection
	for {
		if err := p.wait(ctx, sum.Letters); err != nil {
			return sum, err
		}
		page, err := sum.page(ctx, store, p.request)
		if err != nil {
			return sum, err
		}
		p.told(sum, page)
		if page.Next == "" {
			return sum, nil
		}
		p.request.After = page.Next
	}
}

// pace asks for one page after the other, at a rate.
type pace struct {
	ReplayOptions
	request ReplayRequest // the next one
	began   time.Time
}

func newPace(o ReplayOptions) (*pace, error) {
	run, err := outbox.NewID()
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	p := &pace{o, ReplayRequest{Operator: o.Operator, Run: run, Payload: o.Payload, Limit: pageLetters}, time.Now()}
	if o.Rate > 0 {
		p.request.Limit = min(p.request.Limit, max(o.Rate/4, 1)) // four pages a second, so that it flows
	}
	return p, nil
}

// wait waits until the next page is due, after so many letters. It ends with ctx.
func (p *pace) wait(ctx context.Context, letters int) error {
	if p.Rate > 0 {
		due := p.began.Add(time.Duration(float64(letters) / float64(p.Rate) * float64(time.Second)))
		backoff.Wait(ctx, time.Until(due))
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	return nil
}

func (p *pace) told(sum Replayed, page ReplayPage) {
	if p.Progress != nil {
		p.Progress(sum, page)
	}
}

func (o ReplayOptions) checkPayload() error {
	if o.Payload != nil && len(o.Selection.IDs) != 1 {
		return fmt.Errorf("%w: a payload replaces that of one letter, which must be named by its id", ErrFilter)
	}
	if o.Payload != nil {
		probe := outbox.Event{Topic: "replay", Source: "replay", Payload: o.Payload}
		if err := probe.Validate(outbox.DefaultMaxPayload); err != nil {
			var field *outbox.FieldError // its text would name an event by number, and there is one letter
			if errors.As(err, &field) {
				err = fmt.Errorf("%w: the new payload %s", outbox.ErrInvalidEvent, field.Problem)
			}
			return fmt.Errorf("replay: %w", err)
		}
	}
	return nil
}

// page replays one page to its end, also if ctx ends meanwhile.
func (r *Replayed) page(ctx context.Context, store Store, request ReplayRequest) (ReplayPage, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pageLimit)
	defer cancel()
	page, err := store.ReplayPage(ctx, request)
	if err != nil {
		return page, fmt.Errorf("replay: %w", err)
	}
	for table, n := range page.Replayed {
		r.Tables[table] += n
		r.Letters += n
	}
	for _, s := range page.Skipped {
		r.skip(s)
	}
	return page, nil
}

func (r *Replayed) skip(s Skipped) {
	r.Skipped++
	for i := range r.Reasons {
		if known := &r.Reasons[i]; known.Why == s.Why {
			if known.Count++; len(known.First) < firstIDs {
				known.First = append(known.First, s.ID)
			}
			return
		}
	}
	r.Reasons = append(r.Reasons, SkipReason{Why: s.Why, Count: 1, First: []uuid.UUID{s.ID}})
}
