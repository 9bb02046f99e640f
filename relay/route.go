package relay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
)

// Route says to which sinks the events of a table go. Of a table's routes the first that fits an
// event is taken; one without conditions is the default. Conditions are names, or patterns in which
// * stands for any text; an empty one fits everything.
type Route struct {
	Name          string // which an event's Destinations may name, whatever the conditions; "" for none
	Topic         string
	Tenant        string
	AggregateType string
	To            []Target // at least one
}

// Target is a sink and what the event is called there.
type Target struct {
	Sink        string
	Destination outbox.Template // (the table's)
}

// ParseTarget reads a sink's name, or one with a destination's template after a colon: kafka,
// kafka:orders.{tenant}.
func ParseTarget(text string) (Target, error) {
	sink, destination, named := strings.Cut(text, ":")
	if sink == "" {
		return Target{}, fmt.Errorf("parse target %q: want a sink's name, or sink:destination", text)
	}
	t := Target{Sink: sink}
	if named {
		var err error
		if t.Destination, err = outbox.ParseTemplate(destination); err != nil {
			return Target{}, fmt.Errorf("parse target %q: %w", text, err)
		}
	}
	return t, nil
}

// name is what ParseTarget reads.
func (t Target) name() string {
	if t.Destination.String() == "" {
		return t.Sink
	}
	return t.Sink + ":" + t.Destination.String()
}

// fits tells whether the route's conditions fit an event.
func (r *Route) fits(rec *outbox.Record) bool {
	conditions := outbox.Subscription{Topic: r.Topic, Tenant: r.Tenant, AggregateType: r.AggregateType}
	return conditions.Fits(rec)
}

// address is where one delivery goes.
type address struct{ sink, destination string }

// String is what an outcome and a dead letter call it.
func (a address) String() string { return a.sink + ":" + a.destination }

// routes are a table's routes, checked.
type routes []Route

// complete fills the gaps of routes and reports their problems. def is the destination of targets
// that name none, known tells the names of sinks.
func (rs routes) complete(of string, def outbox.Template, known func(sink string) bool, problems *[]error) routes {
	rs = slices.Clone(rs)
	names := map[string]bool{}
	for i := range rs {
		r, field := &rs[i], fmt.Sprintf("%sRoutes[%d]", of, i)
		add := func(format string, args ...any) {
			*problems = append(*problems, fmt.Errorf(field+format, args...))
		}
		if len(r.To) == 0 {
			add(".To is empty: where do its events go?")
		}
		if strings.Contains(r.Name, ":") {
			add(".Name is %q, must be without a colon: one stands between a sink and a destination", r.Name)
		}
		if r.Name != "" && names[r.Name] {
			add(".Name is %q, which another route has", r.Name)
		}
		names[r.Name] = true
		r.To = slices.Clone(r.To)
		seen := map[string]bool{}
		for k := range r.To {
			t := &r.To[k]
			if t.Destination.String() == "" {
				t.Destination = def
			}
			if !known(t.Sink) {
				add(".To[%d]: there is no sink %q", k, t.Sink)
			}
			if strings.ContainsAny(t.Sink, ":/") {
				add(".To[%d]: a sink's name has neither colon nor slash, %q does", k, t.Sink)
			}
			if seen[t.name()] {
				add(".To[%d]: %s is there twice", k, t.name())
			}
			seen[t.name()] = true
		}
	}
	return rs
}

// sinks returns the names of the sinks that the routes lead to, in the order of the alphabet.
func (rs routes) sinks() []string {
	names := map[string]bool{}
	for _, r := range rs {
		for _, t := range r.To {
			names[t.Sink] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// leadTo tells whether one of them leads to the sink.
func (rs routes) leadTo(sink string) bool {
	return slices.ContainsFunc(rs, func(r Route) bool {
		return slices.ContainsFunc(r.To, func(t Target) bool { return t.Sink == sink })
	})
}

// errNoRoute is the reason of a dead letter.
var errNoRoute = errors.New("no route fits the event: add one for its topic, or one without conditions as the default")

// resolve returns where an event goes: by its own destinations, each of which is sink:name or the
// name of a route, or by the first route that fits.
func (rs routes) resolve(rec *outbox.Record) ([]address, error) {
	if len(rec.Destinations) == 0 {
		for i := range rs {
			if rs[i].fits(rec) {
				return rs[i].expand(rec, nil)
			}
		}
		return nil, errNoRoute
	}
	var all []address
	for _, name := range rec.Destinations {
		if sink, destination, ok := strings.Cut(name, ":"); ok && destination != "" && rs.leadTo(sink) {
			all = addOnce(all, address{sink, destination})
			continue
		}
		i := slices.IndexFunc(rs, func(r Route) bool { return r.Name == name && name != "" })
		if i < 0 {
			return nil, fmt.Errorf("destination %q of the event is neither sink:name (sinks: %s) nor the name of a route",
				name, strings.Join(rs.sinks(), ", "))
		}
		var err error
		if all, err = rs[i].expand(rec, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// outstanding returns the names of the addresses that the record was not delivered to.
func (rs routes) outstanding(rec *outbox.Record) ([]string, error) {
	all, err := rs.resolve(rec)
	if err != nil {
		return nil, err
	}
	wanted := make([]string, len(all))
	for i, a := range all {
		wanted[i] = a.String()
	}
	return rec.Undelivered(wanted), nil
}

// expand adds the route's addresses for an event.
func (r *Route) expand(rec *outbox.Record, all []address) ([]address, error) {
	for _, t := range r.To {
		destination, err := t.Destination.Expand(rec)
		if err != nil {
			return nil, err
		}
		all = addOnce(all, address{t.Sink, destination})
	}
	return all, nil
}

func addOnce(all []address, a address) []address {
	if slices.Contains(all, a) {
		return all
	}
	return append(all, a)
}

// Addresses returns where the routes of a table send an event, as sink:destination. A target that
// names no destination has the event's topic. The error is the reason of the dead letter that the
// event would become.
func Addresses(table []Route, event outbox.Event) ([]string, error) {
	var problems []error
	complete := routes(table).complete("", builtin("{topic}"), func(string) bool { return true }, &problems)
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return complete.outstanding(&outbox.Record{Event: event})
}

// nameOf is what an outcome calls the delivery's destination.
func nameOf(d *outbox.Delivery) string {
	if d.Sink == "" {
		return d.Destination
	}
	return address{d.Sink, d.Destination}.String()
}
