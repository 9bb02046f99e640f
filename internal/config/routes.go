package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
)

// routeEntry is one entry of the list routes in the file of --config.
type routeEntry struct {
	Table  string   `yaml:"table"` // "": all
	Name   string   `yaml:"name"`
	Topic  string   `yaml:"topic"`
	Tenant string   `yaml:"tenant"`
	Type   string   `yaml:"type"`
	To     []string `yaml:"to"`

	targets []relay.Target
}

// routeEntries decodes and checks the list.
func (c *Config) routeEntries(problems *Error) (entries []routeEntry) {
	names := map[string]bool{}
	for i, raw := range c.Routes {
		at := fmt.Sprintf("routes, entry %d", i+1)
		if text, short := raw.(string); short {
			if table, _, ok := strings.Cut(text, "="); !ok || table == "" {
				problems.add("%s: want TABLE=SINK, and not %s", at, shape(text))
			}
			continue
		}
		var e routeEntry
		unused, wrong := decode(raw, &e)
		if problems.entry(at, unused, wrong) && len(wrong) > 0 {
			continue
		}
		if e.Table != "" {
			if _, ok := find(c.Known(), e.Table); !ok {
				problems.add("%s: %s", at, unknownTable("table", e.Table, c.Known()))
			}
			if sink, too := c.route(e.Table); too {
				problems.add("%s: %s=%s sends all of the table to one sink: take one of the two away", at, e.Table, sink)
			}
		}
		if strings.Contains(e.Name, ":") {
			problems.add("%s: the name %q has a colon, which stands between a sink and a destination", at, e.Name)
		}
		if e.Name != "" && names[e.Name] {
			problems.add("%s: another entry is called %q", at, e.Name)
		}
		names[e.Name] = true
		if len(e.To) == 0 {
			problems.add("%s: says no sinks to go to: want to: [NAME, NAME:DESTINATION]", at)
		}
		c.checkTargets(problems, at, &e)
		entries = append(entries, e)
	}
	return entries
}

// checkTargets reads where a route goes.
func (c *Config) checkTargets(problems *Error, at string, e *routeEntry) {
	seen := map[string]bool{}
	for _, text := range e.To {
		target, err := relay.ParseTarget(text)
		switch {
		case err != nil:
			problems.add("%s: %v", at, err)
		case c.Sink[target.Sink] == "":
			problems.add("%s: there is no sink %q: it is one of %s: %s", at, target.Sink,
				strings.Join(slices.Sorted(maps.Keys(c.Sink)), ", "), set("sink"))
		case seen[text]:
			problems.add("%s: %s is there twice", at, text)
		}
		seen[text] = true
		e.targets = append(e.targets, target)
	}
}

// route returns the sink of an entry TABLE=SINK, to which all events of the table go.
func (c *Config) route(table string) (sink string, ok bool) {
	for _, raw := range c.Routes {
		if text, short := raw.(string); short {
			if of, to, _ := strings.Cut(text, "="); of == table {
				sink, ok = to, true
			}
		}
	}
	return sink, ok
}

// RoutesOf returns the routes of a table, nil if all its events go to SinkOf. Check has found them right.
func (c Config) RoutesOf(table string) (routes []relay.Route) {
	if _, one := c.route(table); one {
		return nil
	}
	for _, e := range c.routeEntries(&Error{}) {
		if e.Table == "" || e.Table == table {
			routes = append(routes, relay.Route{
				Name: e.Name, Topic: e.Topic, Tenant: e.Tenant, AggregateType: e.Type, To: e.targets,
			})
		}
	}
	return routes
}

// Addresses returns where an event of a table would go, as sink:destination. The error is why it would become a dead
// letter.
func (c Config) Addresses(table string, event outbox.Event) ([]string, error) {
	var problems Error
	c.checkSinks(&problems, 0)
	c.routeEntries(&problems)
	t, ok := find(c.Known(), table)
	if !ok {
		problems.add("%s", unknownTable("table", table, c.Known()))
	}
	if len(problems.Problems) > 0 {
		return nil, &problems
	}
	destination, err := outbox.ParseTemplate(c.served(t).Destination)
	if err != nil {
		return nil, err
	}
	routes := c.RoutesOf(table)
	if len(routes) == 0 {
		name, err := c.sinkOf(table)
		if err != nil {
			return nil, err
		}
		if len(event.Destinations) > 0 {
			return prefixed(name, event.Destinations), nil
		}
		routes = []relay.Route{{To: []relay.Target{{Sink: name}}}}
	}
	for _, r := range routes {
		for i := range r.To {
			if r.To[i].Destination.String() == "" {
				r.To[i].Destination = destination
			}
		}
	}
	return relay.Addresses(routes, event)
}

// prefixed returns the addresses of destinations at one sink.
func prefixed(sink string, destinations []string) (all []string) {
	for _, d := range destinations {
		all = append(all, sink+":"+d)
	}
	return all
}

// sinksOf returns the names of the sinks that a table's events go to.
func (c Config) sinksOf(table string) (names []string, err error) {
	routes := c.RoutesOf(table)
	if len(routes) == 0 {
		name, err := c.sinkOf(table)
		return []string{name}, err
	}
	for _, r := range routes {
		for _, t := range r.To {
			names = append(names, t.Sink)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// SinksOwing returns the names of the sinks that may owe something of a table: none, if it has no routes.
func (c Config) SinksOwing(table string) []string {
	if len(c.RoutesOf(table)) == 0 {
		return nil
	}
	names, _ := c.sinksOf(table) // there are routes, which cannot fail
	return names
}

// heardAt tells whether events of a table that its template sends to a sink arrive there under that name.
func (c Config) heardAt(table, sink string) bool {
	routes := c.RoutesOf(table)
	return len(routes) == 0 || slices.ContainsFunc(routes, func(r relay.Route) bool {
		return slices.ContainsFunc(r.To, func(t relay.Target) bool {
			own := t.Destination.String()
			return t.Sink == sink && (own == "" || own == c.templateOf(table))
		})
	})
}

// heardOf returns the first sink of a table's routes that can be listened to, "" if there is none.
func (c Config) heardOf(table string) string {
	for _, r := range c.RoutesOf(table) {
		for _, t := range r.To {
			if s, err := c.sink(t.Sink); err == nil && s.Driver.Subscribe != nil && c.heardAt(table, t.Sink) {
				return t.Sink
			}
		}
	}
	return ""
}

// broker is what stands for any word in patterns of NATS and AMQP, and is a letter like any other in a route.
var broker = regexp.MustCompile(`(^|[.])(>|#)($|[.])`)

// RouteWarnings say what routes can hardly be meant to do: those that no event reaches, wildcards of a broker, and
// tables of which some events have no route and become dead letters. Settings that Check refuses have none.
func (c Config) RouteWarnings(needs Need) (warnings []string) {
	if c.withParts(needs)&Serving == 0 {
		return nil
	}
	tables, err := c.Tables()
	entries := c.routeEntries(&Error{})
	if err != nil || len(entries) == 0 {
		return nil
	}
	for _, t := range tables {
		if len(c.RoutesOf(t.Name())) == 0 {
			continue
		}
		of := slices.DeleteFunc(slices.Clone(entries), func(e routeEntry) bool {
			return e.Table != "" && e.Table != t.Name()
		})
		for i, e := range of {
			before := slices.IndexFunc(of[:i], func(b routeEntry) bool { return b.covers(e) })
			if before >= 0 && e.Name == "" {
				warnings = append(warnings, fmt.Sprintf("routes: no event of %s reaches the route %s: %s is before it and "+
					"takes all that it would: put the narrower one first", t.Name(), e, of[before]))
			}
		}
		if !slices.ContainsFunc(of, func(e routeEntry) bool { return e.covers(routeEntry{}) }) {
			warnings = append(warnings, fmt.Sprintf("routes: events of %s that none of its routes fits become dead letters: "+
				"end them with a route without conditions, such as {table: %s, to: [%s]}", t.Name(), t.Name(),
				of[len(of)-1].To[0]))
		}
	}
	for _, e := range entries {
		for _, pattern := range []string{e.Topic, e.Tenant, e.Type} {
			if broker.MatchString(pattern) {
				warnings = append(warnings, fmt.Sprintf("routes: %q is no wildcard of a broker here, > and # stand for "+
					"themselves: write %q, in which * stands for any text, with its dots", pattern,
					broker.ReplaceAllString(pattern, "$1*$3")))
			}
		}
	}
	return warnings
}

// covers tells whether the conditions of a route fit all that another one's fit. A pattern with text around several *
// may do so and not be found out.
func (e routeEntry) covers(other routeEntry) bool {
	return covers(e.Topic, other.Topic) && covers(e.Tenant, other.Tenant) && covers(e.Type, other.Type)
}

func covers(pattern, other string) bool {
	if strings.Trim(pattern, "*") == "" || pattern == other { // "" and * fit everything
		return true
	}
	first, rest, wild := strings.Cut(pattern, "*")
	return wild && rest == "" && other != "" && strings.HasPrefix(other, first)
}

// String names the conditions of a route as the settings have them.
func (e routeEntry) String() string {
	var parts []string
	for _, p := range [][2]string{{"table", e.Table}, {"topic", e.Topic}, {"tenant", e.Tenant}, {"type", e.Type}} {
		if p[1] != "" {
			parts = append(parts, fmt.Sprintf("%s: %q", p[0], p[1]))
		}
	}
	return "{" + strings.Join(append(parts, "to: ["+strings.Join(e.To, ", ")+"]"), ", ") + "}"
}
