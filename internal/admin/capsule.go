package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

const (
	capsuleFormat = 1
	capsuleLimit  = 64 << 20 // bytes of a file
	neighbours    = 10       // of the same key, before the event and behind it
	keyLooked     = 500      // events of the key among which it is looked for
	lettersKept   = 20
	auditLooked   = 500
)

// traces are the members of metadata that name a trace.
var traces = []string{"traceparent", "tracestate", "trace_id", "traceId", "correlation_id", "correlationId",
	"request_id", "requestId"}

// Capsule is an incident in one file: an event, and all that is known of why it is where it is. It
// has no password, token or secret of the settings. What applications wrote into events is as they
// wrote it.
type Capsule struct {
	Format     int                        `json:"outboxCapsule"`
	At         time.Time                  `json:"at"`
	Program    any                        `json:"program"` // as outbox version -o json has it
	Schemas    []migration.SetStatus      `json:"schemas"`
	Table      string                     `json:"table"`
	Event      operate.EventDetail        `json:"event"`
	Withheld   bool                       `json:"payloadsWithheld,omitempty"`
	Says       []string                   `json:"says"`  // as outbox why
	Route      []string                   `json:"route"` // SINK:DESTINATION, by the settings
	TraceIDs   map[string]json.RawMessage `json:"traceIds"`
	Key        []operate.EventDetail      `json:"key"`     // others of its key, in their order
	Letters    []deadletter.Letter        `json:"letters"` // the newest first; the payload is the event's
	Audit      []deadletter.Action        `json:"audit"`   // that name it, a letter of it, or its key
	Conditions condition.Report           `json:"conditions"`
	Settings   []config.Setting           `json:"settings"`
	Unseen     []string                   `json:"unseen"` // what could not be captured, and why
}

// Capture puts into a capsule what the database knows of an event: operate.ErrNoEvent where no
// table has it. Program, Schemas and Conditions are the caller's.
func (d *Desk) Capture(ctx context.Context, table, tenant, id string, withPayload bool) (c Capsule, err error) {
	x := d.Examination
	why, err := x.Why(ctx, table, tenant, id)
	if err != nil {
		return c, err
	}
	c = Capsule{Format: capsuleFormat, At: time.Now().UTC(), Table: why.Table, Event: why.Event, Says: why.Says,
		Withheld: !withPayload, Route: []string{}, TraceIDs: map[string]json.RawMessage{}, Key: []operate.EventDetail{},
		Letters: []deadletter.Letter{}, Audit: []deadletter.Action{}, Settings: d.Config.Effective(),
		Unseen: []string{}}
	if e, err := written(&c.Event, c.Table); err == nil && len(d.Config.AllSinks()) > 0 {
		to, err := d.Config.Addresses(c.Table, e)
		c.unseen("route", err)
		c.Route = append(c.Route, to...)
	}
	c.trace()
	c.unseen("others of its key", d.captureKey(ctx, &c, tenant))
	c.unseen("letters and audit", d.captureLetters(ctx, &c, tenant))
	c.bound(&c.Event)
	for i := range c.Key {
		c.bound(&c.Key[i])
	}
	return c, nil
}

func (c *Capsule) unseen(what string, err error) {
	if err != nil {
		c.Unseen = append(c.Unseen, what+": "+err.Error())
	}
}

// bound leaves out a payload that is withheld, or larger than outbox lets one be.
func (c *Capsule) bound(e *operate.EventDetail) {
	if n := len(e.Payload); n > outbox.DefaultMaxPayload && !c.Withheld {
		c.unseen("payload of "+e.ID.String(), fmt.Errorf("it has %d bytes, %d are captured at most", n,
			outbox.DefaultMaxPayload))
		e.Payload = nil
	}
	if c.Withheld {
		e.Payload = nil
	}
}

func (c *Capsule) trace() {
	var metadata map[string]json.RawMessage
	if json.Unmarshal(c.Event.Metadata, &metadata) != nil {
		return
	}
	for _, name := range traces {
		if id, ok := metadata[name]; ok {
			c.TraceIDs[name] = id
		}
	}
}

// captureKey adds the events of the same key around the event.
func (d *Desk) captureKey(ctx context.Context, c *Capsule, tenant string) error {
	if c.Event.Key == nil {
		return nil
	}
	v, err := d.open(ctx, c.Table, "")
	if err != nil {
		return err
	}
	rows, _, err := v.List(ctx, operate.Filter{Key: *c.Event.Key, Tenant: tenant, Limit: keyLooked})
	if err != nil {
		return err
	}
	rows = slices.DeleteFunc(rows, func(r operate.EventRow) bool { // another's that is called the same
		return operate.Text(r.Tenant) != operate.Text(c.Event.Tenant) ||
			operate.Text(r.AggregateType) != operate.Text(c.Event.AggregateType)
	})
	slices.Reverse(rows) // the oldest first
	at := slices.IndexFunc(rows, func(r operate.EventRow) bool { return r.ID == c.Event.ID })
	if at < 0 {
		return fmt.Errorf("%d newer events have it", len(rows))
	}
	for i := max(at-neighbours, 0); i < min(at+neighbours+1, len(rows)); i++ {
		if i == at {
			continue
		}
		e, err := v.Show(ctx, rows[i].ID.String(), tenant)
		if errors.Is(err, operate.ErrNoEvent) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		c.Key = append(c.Key, e)
	}
	return nil
}

// captureLetters adds the event's letters, and the actions that name it, them or its key.
func (d *Desk) captureLetters(ctx context.Context, c *Capsule, tenant string) error {
	store, err := d.letters(ctx)
	if err != nil {
		return err
	}
	found, err := store.Show(ctx, c.Event.ID, tenant)
	if err != nil && !errors.Is(err, deadletter.ErrNoLetter) {
		return err
	}
	names := []string{c.Event.ID.String(), operate.Text(c.Event.Key)}
	for _, l := range found[:min(len(found), lettersKept)] {
		l.Payload = nil
		c.Letters = append(c.Letters, l)
		names = append(names, l.ID.String())
	}
	asked := deadletter.ActionFilter{Limit: auditLooked}
	if c.Event.WrittenAt != nil {
		asked.Since = *c.Event.WrittenAt
	}
	actions, _, err := deadletter.Actions(ctx, store, asked)
	for _, a := range actions {
		said := string(a.Filter) + string(a.Detail)
		if slices.ContainsFunc(names, func(n string) bool { return n != "" && strings.Contains(said, strconv.Quote(n)) }) {
			c.Audit = append(c.Audit, a)
		}
	}
	return err
}

// ReadCapsule reads what outbox capture has written. Its error says what it is instead.
func ReadCapsule(r io.Reader) (c Capsule, err error) {
	raw, err := io.ReadAll(io.LimitReader(r, capsuleLimit+1))
	if err != nil {
		return c, fmt.Errorf("read the capsule: %w", err)
	}
	if len(raw) > capsuleLimit {
		return c, refusef("it has more than %d MiB, which no capsule has", capsuleLimit>>20)
	}
	var format struct {
		Format *int `json:"outboxCapsule"`
	}
	switch err := json.Unmarshal(raw, &format); {
	case err != nil:
		return c, refusef("it is no capsule, but should be the JSON that outbox capture writes: %w", err)
	case format.Format == nil || *format.Format < 1:
		return c, refusef("it is JSON and no capsule: it has no outboxCapsule, the version of its format; outbox " +
			"capture writes one")
	case *format.Format > capsuleFormat:
		return c, refusef("it is a capsule of format %d, and this program knows %d: use the outbox that wrote it, or a "+
			"newer one", *format.Format, capsuleFormat)
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return c, refusef("it is a damaged capsule: %w", err)
	}
	_, err = c.Events()
	return c, err
}

// Events are the captured events of the key, in their order, as their application wrote them. One
// whose payload was withheld has null.
func (c *Capsule) Events() (events []outbox.Event, err error) {
	all := append(slices.Clone(c.Key), c.Event)
	slices.SortStableFunc(all, func(a, b operate.EventDetail) int { return cmp.Compare(a.Position, b.Position) })
	for i := range all {
		e, err := written(&all[i], c.Table)
		if err == nil {
			err = e.Validate(outbox.DefaultMaxPayload)
		}
		if err != nil {
			return nil, refusef("it is a damaged capsule: event %s: %w", all[i].ID, err)
		}
		events = append(events, e)
	}
	return events, nil
}

// written is the event that a row was made of.
func written(d *operate.EventDetail, table string) (e outbox.Event, err error) {
	e = d.Event()
	e.ID, e.SchemaID, e.Payload = d.ID, operate.Text(d.SchemaID), d.Payload
	if e.ID == uuid.Nil {
		return e, errors.New("it has no id")
	}
	if e.Source == "" {
		e.Source = table
	}
	if d.OccurredAt != nil {
		e.OccurredAt = *d.OccurredAt
	}
	if d.SchemaVersion != nil {
		e.SchemaVersion = *d.SchemaVersion
	}
	if payload := bytes.TrimSpace(e.Payload); len(payload) == 0 {
		e.Payload = json.RawMessage("null")
	}
	if len(d.Destinations) > 0 {
		err = json.Unmarshal(d.Destinations, &e.Destinations)
	}
	var metadata map[string]json.RawMessage // values as they are written: numbers would lose digits as float64
	if err == nil && len(d.Metadata) > 0 {
		err = json.Unmarshal(d.Metadata, &metadata)
	}
	if len(metadata) > 0 {
		e.Metadata = map[string]any{}
	}
	for k, v := range metadata {
		e.Metadata[k] = v
	}
	return e, err
}
