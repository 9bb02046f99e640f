package condition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pause"
)

// Explanation is why an event is where it is.
type Explanation struct {
	Table string              `json:"table"`
	Event operate.EventDetail `json:"event"`
	// Says is the answer, a sentence each: what became of it, what it waits for, where it goes and
	// why, what failed.
	Says []string `json:"says"`
	// Readers are those of an event of a log.
	Readers []operate.LogReader `json:"readers,omitempty"`
}

func (e *Explanation) say(format string, args ...any) {
	e.Says = append(e.Says, fmt.Sprintf(format, args...))
}

// Lettered is a Database that opens its dead letters.
type Lettered interface {
	Letters(ctx context.Context, layouts []outbox.Layout) (deadletter.Store, error)
}

// Why explains an event, which it looks for in the named table, or in all that the settings know.
// No table has it: operate.ErrNoEvent.
func (x *Examination) Why(ctx context.Context, table, tenant, id string) (e Explanation, err error) {
	if x.Now == nil {
		x.Now = time.Now
	}
	x.remember(ctx)
	tables, err := x.tables(true)
	if err != nil {
		return e, err
	}
	var looked []string
	for _, of := range tables {
		if table != "" && of.Name() != table || !of.Layout.KeepsState() {
			continue
		}
		t, err := x.serve(ctx, of)
		if err != nil {
			return e, err
		}
		if e.Event, err = t.browser.Show(ctx, id, tenant); errors.Is(err, operate.ErrNoEvent) {
			looked = append(looked, t.Name())
			continue
		} else if err != nil {
			return e, err
		}
		e.Table = t.Name()
		x.written(&e)
		return e, errors.Join(x.waits(ctx, &e, t), x.goes(&e, t), x.died(ctx, &e, t))
	}
	return e, fmt.Errorf("%w in %s", operate.ErrNoEvent, cmp.Or(strings.Join(looked, ", "),
		"any table of the settings"))
}

// served is a table, and the processes that serve it.
type served struct {
	config.Table
	browser *operate.Browser
	lanes   operate.LaneReport
}

func (x *Examination) serve(ctx context.Context, t config.Table) (*served, error) {
	b, err := x.DB.Browser(ctx, t.Layout)
	if err != nil {
		return nil, err
	}
	lanes, err := b.Lanes(ctx, counted)
	return &served{t, b, lanes}, err
}

func (x *Examination) written(e *Explanation) {
	text := "it was written into " + e.Table
	if e.Event.WrittenAt != nil {
		text += fmt.Sprintf(" at %s, %s ago", stamp(*e.Event.WrittenAt), lasting(x.Now().Sub(*e.Event.WrittenAt)))
	}
	if e.Event.Source != nil && *e.Event.Source != "" {
		text += ", by " + *e.Event.Source
	}
	if e.Event.Key != nil {
		text += ", and is in order with the others of key " + *e.Event.Key
	} else {
		text += ", and is in order with no other"
	}
	e.say("%s", text)
	if e.Event.Generation > 0 {
		e.say("operators have put it back %s: outbox audit says who and why", times(e.Event.Generation))
	}
}

func stamp(at time.Time) string { return at.UTC().Format(time.DateTime) + " UTC" }

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// waits says what became of it, or all that it waits for: what is of the event first, then of its
// lane and its sink.
func (x *Examination) waits(ctx context.Context, e *Explanation, t *served) error {
	if !e.Event.Undelivered(t.Layout) {
		switch at := e.Event.DeliveredAt; {
		case e.Event.Status == operate.StatusGone:
			e.say("its row has left the table; some sinks have not taken it")
		case at != nil:
			e.say("it was delivered at %s", stamp(*at))
		default:
			e.say("its status is %s: no relay looks at it", e.Event.Status)
		}
		return nil
	}
	began := len(e.Says)
	if e.Event.Attempts > 0 {
		e.say("it has failed %s, last with: %s", times(e.Event.Attempts), text(e.Event.LastError))
	}
	if by := e.Event.WaitsBehind; by != nil {
		e.say("it waits behind event %s of its key, which is tried %s: outbox why %s",
			by, x.soon(e.Event.NextRetryAt), by)
	} else if e.Event.NextRetryAt != nil && e.Event.NextRetryAt.After(x.Now()) {
		e.say("it is tried %s; outbox events retry %s tries it now", x.soon(e.Event.NextRetryAt), e.Event.ID)
	}
	if err := x.pausesOf(e, t); err != nil {
		return err
	}
	free := x.laneOf(e, t) && len(e.Says) == began+1
	all, err := x.DB.Troubles(ctx)
	if err != nil {
		return err
	}
	for _, trouble := range all {
		if trouble.Concerns(t.lanes.Table) {
			for _, reason := range trouble.Reasons() {
				free = false
				e.say("in its way, %s: %s", since(trouble), reason)
			}
		}
	}
	if free {
		e.say("nothing is in its way: it goes out with one of the next batches")
	}
	return nil
}

func since(t operate.Trouble) string {
	if t.Relay == "" || t.Since == nil {
		return "as the database says"
	}
	return fmt.Sprintf("as relay %s says since %s", t.Relay, stamp(*t.Since))
}

// soon is when something is tried.
func (x *Examination) soon(at *time.Time) string {
	switch {
	case at == nil:
		return "at any moment"
	case at.Year() >= 9999:
		return "never"
	case !at.After(x.Now()):
		return "now"
	}
	return fmt.Sprintf("in %s, at %s", lasting(at.Sub(x.Now())), stamp(*at))
}

func (x *Examination) pausesOf(e *Explanation, t *served) error {
	template, err := outbox.ParseTemplate(t.Destination)
	if err != nil {
		return err
	}
	for _, p := range t.lanes.Pauses {
		var one outbox.Paused
		pause.Add(&one, p.Topic, p.Destination)
		if one.Holds(e.Event.Topic, e.Event.GoesTo(t.Layout, template)) {
			e.Event.Paused = true
			e.say("%s has paused it since %s: %s; see outbox pauses", p.Actor, stamp(p.At), p.Reason)
		}
	}
	return nil
}

// laneOf says which relay it is that would deliver it, and whether there is one.
func (x *Examination) laneOf(e *Explanation, t *served) (served bool) {
	lane := t.lanes.Lanes[e.Event.Lane]
	group, ofGroup := strings.CutPrefix(t.lanes.Reader, "group:")
	alive := slices.ContainsFunc(t.lanes.Relays, func(r operate.RelayView) bool { return r.ExpiresIn > 0 })
	switch {
	case !alive && ofGroup && t.Layout.KeepsState():
		e.say("no process of group %s is alive that serves %s: start a process of the group, and not a relay", group,
			t.Name())
	case !alive:
		e.say("no relay is alive that serves %s", t.Name())
	case lane.State == "held" && lane.Name != nil:
		e.say("its lane, %d, is held by relay %s for %.0f s from now", lane.Lane, *lane.Name, *lane.ExpiresIn)
	case lane.State == "held":
		e.say("its lane, %d, is held by a relay that has gone", lane.Lane)
	default:
		e.say("its lane, %d, is held by no relay (%s): one of those that are alive takes it", lane.Lane, lane.State)
	}
	if lane.Suspect {
		e.say("relays died at that lane, so its events are tried in small batches")
	}
	return lane.State == "held" && lane.Name != nil
}

// goes says where it goes by the settings given, and which route says so.
func (x *Examination) goes(e *Explanation, t *served) error {
	of := e.Event.Event()
	if e.Event.Destinations != nil {
		template, err := outbox.ParseTemplate(t.Destination)
		if err != nil {
			return err
		}
		of.Destinations = e.Event.GoesTo(t.Layout, template)
	}
	if len(x.Config.AllSinks()) == 0 {
		e.say("where it goes is not known: give --config or --sink with the relay's settings")
		return nil
	}
	to, err := x.Config.Addresses(t.Name(), of)
	switch {
	case err != nil:
		e.say("by these settings it can go nowhere: %v", err)
	case len(of.Destinations) > 0:
		e.say("it names its own destinations, and goes to %s", strings.Join(to, " and "))
	default:
		e.say("by these settings it goes to %s", strings.Join(to, " and "))
	}
	x.routed(e, t, of)
	for _, d := range e.Event.Deliveries {
		switch d.Status {
		case "delivered":
			e.say("%s took %s at a later attempt", d.Sink, d.Destination)
		case "dead":
			e.say("%s never took %s, after %s: %s",
				d.Sink, d.Destination, many(d.Attempts, "failure"), text(d.LastError))
		default:
			e.say("%s has not taken %s yet, after %s: %s",
				d.Sink, d.Destination, many(d.Attempts, "failure"), text(d.LastError))
		}
	}
	return nil
}

// routed says which route took it, and why none before that one.
func (x *Examination) routed(e *Explanation, t *served, of outbox.Event) {
	if len(of.Destinations) > 0 {
		return
	}
	for i, r := range x.Config.RoutesOf(t.Name()) {
		asks := outbox.Subscription{Topic: r.Topic, Tenant: r.Tenant, AggregateType: r.AggregateType}
		var conditions []string
		for _, c := range [][2]string{{"topic", r.Topic}, {"tenant", r.Tenant}, {"type", r.AggregateType}} {
			if c[1] != "" {
				conditions = append(conditions, c[0]+" "+c[1])
			}
		}
		name := strings.Join(conditions, ", ")
		if name == "" {
			name = "without conditions"
		}
		if asks.Fits(&outbox.Record{Event: of}) {
			e.say("route %d (%s) is the first that it fits", i+1, name)
			return
		}
		e.say("it does not fit route %d (%s)", i+1, name)
	}
}

// died says what its dead letters are.
func (x *Examination) died(ctx context.Context, e *Explanation, t *served) error {
	db, ok := x.DB.(Lettered)
	if !ok || e.Event.Undelivered(t.Layout) && e.Event.Generation == 0 {
		return nil
	}
	letters, err := db.Letters(ctx, []outbox.Layout{t.Layout})
	if err != nil {
		return nil //nolint:nilerr // who may see the event need not see letters
	}
	f := deadletter.Filter{Table: t.Name(), State: deadletter.StateAll, Limit: 1000}
	if e.Event.Key != nil {
		f.Key = *e.Event.Key
	}
	all, _, err := letters.List(ctx, f)
	if err != nil {
		return nil //nolint:nilerr // likewise
	}
	for _, l := range all {
		if l.OriginalID != e.Event.ID {
			continue
		}
		e.say("it became dead letter %s at %s (%s, %s): %s",
			l.ID, stamp(l.At), l.Reason, many(l.Attempts, "failure"), l.LastError)
		switch {
		case l.ReplayedAt != nil:
			e.say("that letter was replayed at %s", stamp(*l.ReplayedAt))
		case l.DiscardedAt != nil:
			e.say("that letter was discarded at %s: %s", stamp(*l.DiscardedAt), text(&l.DiscardReason))
		default:
			e.say("that letter is pending: outbox dlq replay %s, or outbox dlq discard %s", l.ID, l.ID)
		}
	}
	return nil
}
