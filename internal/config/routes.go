package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
)

// Route is one entry of the list routes.
type Route struct {
	Table  string   `yaml:"table"` // "": all
	Name   string   `yaml:"name"`
	Topic  string   `yaml:"topic"`
	Tenant string   `yaml:"tenant"`
	Type   string   `yaml:"type"`
	To     []string `yaml:"to"`

	Sink    string `yaml:"-"` // of an entry TABLE=SINK: all of the table goes there
	targets []relay.Target
	at      string
}

// readRoute reads an entry of the list.
func (c *Config) readRoute(i int, n *yaml.Node) {
	r := Route{at: fmt.Sprintf("routes, entry %d", i+1)}
	if n.Kind == yaml.ScalarNode {
		if r.Table, r.Sink, _ = strings.Cut(n.Value, "="); r.Table == "" || r.Sink == "" {
			c.found.problems.add("%s: want TABLE=SINK, and not %s: %s", r.at, shape(n.Value), give("routes"))
			return
		}
	} else if !c.found.problems.fill(&r, n, &r.at, "name") {
		return
	}
	for _, text := range r.To {
		target, err := relay.ParseTarget(text)
		if err != nil {
			c.found.problems.add("%s: %v", r.at, err)
		}
		r.targets = append(r.targets, target)
	}
	c.Routes = append(c.Routes, r)
}

// checkRoutes checks the entries of several keys against the tables, the sinks and each other.
func (c *Config) checkRoutes(problems *Error) {
	names := map[string]bool{}
	for _, r := range c.Routes {
		if r.Sink != "" {
			continue
		}
		if r.Table != "" {
			c.checkTablesOf(problems, r.at+": table", map[string]string{r.Table: ""})
			if sink, too := c.route(r.Table); too {
				problems.add("%s: %s=%s sends all of the table to one sink: take one of the two "+
					"away", r.at, r.Table, sink)
			}
		}
		if strings.Contains(r.Name, ":") {
			problems.add("%s: the name %q has a colon, which stands between a sink and a "+
				"destination", r.at, r.Name)
		}
		if r.Name != "" && names[r.Name] {
			problems.add("%s: another entry is called %q", r.at, r.Name)
		}
		names[r.Name] = true
		if len(r.To) == 0 {
			problems.add("%s: says no sinks to go to: want to: [NAME, NAME:DESTINATION]", r.at)
		}
		for i, t := range r.targets {
			if t.Sink != "" && c.Sink[t.Sink] == "" { // "": it could not be read
				problems.add("%s: there is no sink %q: it is one of %s: %s", r.at, t.Sink, c.Sink.names(), give("sink"))
			}
			if slices.Contains(r.To[:i], r.To[i]) {
				problems.add("%s: %s is there twice", r.at, r.To[i])
			}
		}
	}
}

// route returns the sink of an entry TABLE=SINK, to which all events of the table go.
func (c *Config) route(table string) (sink string, ok bool) {
	for _, r := range c.Routes {
		if r.Sink != "" && r.Table == table {
			sink, ok = r.Sink, true
		}
	}
	return sink, ok
}

// routesOf returns the entries of a table, none if all its events go to SinkOf.
func (c Config) routesOf(table string) (routes []Route) {
	if _, one := c.route(table); one {
		return nil
	}
	for _, r := range c.Routes {
		if r.Sink == "" && (r.Table == "" || r.Table == table) {
			routes = append(routes, r)
		}
	}
	return routes
}

// RoutesOf returns the routes of a table, nil if all its events go to SinkOf. Check has found them
// right.
func (c Config) RoutesOf(table string) (routes []relay.Route) {
	for _, r := range c.routesOf(table) {
		routes = append(routes, relay.Route{
			Name: r.Name, Topic: r.Topic, Tenant: r.Tenant, AggregateType: r.Type, To: slices.Clone(r.targets),
		})
	}
	return routes
}

// Addresses returns where an event of a table would go, as sink:destination. The error is why it
// would become a dead letter.
func (c Config) Addresses(table string, event outbox.Event) ([]string, error) {
	var problems Error
	c.checkSinks(&problems, 0)
	c.checkRoutes(&problems)
	t, err := c.Find(table)
	if err != nil {
		problems.add("%v", err)
	}
	if err := problems.orNil(); err != nil {
		return nil, err
	}
	destination, err := outbox.ParseTemplate(t.Destination)
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
			var all []string
			for _, d := range event.Destinations {
				all = append(all, name+":"+d)
			}
			return all, nil
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

// sinksOf returns the names of the sinks that a table's events go to.
func (c Config) sinksOf(table string) (names []string, err error) {
	if names = c.SinksOwing(table); len(names) > 0 {
		return names, nil
	}
	name, err := c.sinkOf(table)
	return []string{name}, err
}

// SinksOwing returns the names of the sinks that may owe something of a table: none, if it has no
// routes.
func (c Config) SinksOwing(table string) []string {
	var names []string
	for _, r := range c.routesOf(table) {
		for _, t := range r.targets {
			names = append(names, t.Sink)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// heardAt tells whether events of a table that its template sends to a sink arrive there under that
// name.
func (c Config) heardAt(table, sink string) bool {
	routes := c.routesOf(table)
	return len(routes) == 0 || slices.ContainsFunc(routes, func(r Route) bool {
		return slices.ContainsFunc(r.targets, func(t relay.Target) bool {
			own := t.Destination.String()
			return t.Sink == sink && (own == "" || own == c.templateOf(table))
		})
	})
}

// heardOf returns the first sink of a table's routes that can be listened to, "" if there is none.
func (c Config) heardOf(table string) string {
	for _, r := range c.routesOf(table) {
		for _, t := range r.targets {
			if s, err := c.sink(t.Sink); err == nil && s.Driver.Subscribe != nil && c.heardAt(table, t.Sink) {
				return t.Sink
			}
		}
	}
	return ""
}

// broker is what stands for any word in patterns of NATS and AMQP, and is a letter like any other
// in a route.
var broker = regexp.MustCompile(`(^|[.])(>|#)($|[.])`)

// RouteWarnings say what routes can hardly be meant to do: those that no event reaches, wildcards
// of a broker, and tables of which some events have no route and become dead letters. Settings that
// Check refuses have none.
func (c Config) RouteWarnings(needs Need) (warnings []string) {
	tables, err := c.Tables()
	if c.withParts(needs)&Serving == 0 || err != nil {
		return nil
	}
	add := func(format string, args ...any) { warnings = append(warnings, "routes: "+fmt.Sprintf(format, args...)) }
	for _, t := range tables {
		of := c.routesOf(t.Name())
		for i, r := range of {
			before := slices.IndexFunc(of[:i], func(b Route) bool { return b.covers(r) })
			if before >= 0 && r.Name == "" {
				add("no event of %s reaches the route %s: %s is before it and takes all that it "+
					"would: put the narrower one first", t.Name(), r, of[before])
			}
		}
		if len(of) > 0 && !slices.ContainsFunc(of, func(r Route) bool { return r.covers(Route{}) }) {
			add("events of %s that none of its routes fits become dead letters: end them with a "+
				"route without conditions, such as {table: %s, to: [%s]}", t.Name(), t.Name(), of[len(of)-1].To[0])
		}
	}
	for _, r := range c.Routes {
		for _, pattern := range []string{r.Topic, r.Tenant, r.Type} {
			if broker.MatchString(pattern) {
				add("%q is no wildcard of a broker here, > and # stand for themselves: write %q, "+
					"in which * stands for any text, with its dots", pattern, broker.ReplaceAllString(pattern, "$1*$3"))
			}
		}
	}
	return warnings
}

// covers tells whether the conditions of a route fit all that another one's fit. A pattern with
// text around several * may do so and not be found out.
func (r Route) covers(other Route) bool {
	return covers(r.Topic, other.Topic) && covers(r.Tenant, other.Tenant) && covers(r.Type, other.Type)
}

func covers(pattern, other string) bool {
	if strings.Trim(pattern, "*") == "" || pattern == other { // "" and * fit everything
		return true
	}
	first, rest, wild := strings.Cut(pattern, "*")
	return wild && rest == "" && other != "" && strings.HasPrefix(other, first)
}

// String names the conditions of a route as the settings have them.
func (r Route) String() string {
	var parts []string
	for _, p := range [][2]string{{"table", r.Table}, {"topic", r.Topic}, {"tenant", r.Tenant}, {"type", r.Type}} {
		if p[1] != "" {
			parts = append(parts, fmt.Sprintf("%s: %q", p[0], p[1]))
		}
	}
	return "{" + strings.Join(append(parts, "to: ["+strings.Join(r.To, ", ")+"]"), ", ") + "}"
}
