package config

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink"
)

// Sinks are URLs by the names of their sinks. In a file they are one URL, or keys with URLs; a flag and a variable have
// each as URL or NAME=URL.
type Sinks map[string]string

// DefaultSink is the name of a sink that is given none, and of the one for tables that no route names.
const DefaultSink = relay.DefaultSink

var sinkName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// sinksOf reads a value of one of the forms. Errors show no URL: a password may be in it.
func sinksOf(value any) (Sinks, error) {
	all := Sinks{}
	add := func(name, url string) error {
		if !sinkName.MatchString(name) {
			return fmt.Errorf("%s is no name of a sink: want small letters, digits, _ and -", shape(name))
		}
		if _, twice := all[name]; twice {
			return fmt.Errorf("two sinks are called %s: give each a name of its own, as in audit=URL", name)
		}
		all[name] = url
		return nil
	}
	if named, ok := value.(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(named)) {
			url, isText := named[name].(string)
			if !isText {
				return nil, fmt.Errorf("want a URL for %s, and not %s", shape(name), shape(named[name]))
			}
			if err := add(name, url); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	list, err := listOf(value)
	if err != nil {
		return nil, err
	}
	for _, one := range list {
		text, isText := one.(string)
		if !isText {
			return nil, fmt.Errorf("want a URL, or names with URLs (name: URL), and not %s", shape(one))
		}
		name, url := DefaultSink, text
		// What stands before the first = is a name unless it has a colon: then it is in the URL.
		if before, after, named := strings.Cut(text, "="); named && !strings.Contains(before, ":") {
			name, url = before, after
		}
		if err := add(name, url); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// listOf is a list of what should be URLs.
func listOf(value any) (list []any, err error) {
	switch v := value.(type) {
	case []string:
		for _, text := range v {
			list = append(list, text)
		}
	case []any:
		list = v
	case string:
		if v != "" {
			list = []any{v}
		}
	default:
		err = fmt.Errorf("want a URL, or names with URLs (name: URL), and not %s", shape(value))
	}
	return list, err
}

// Sink is one of the sinks of the settings.
type Sink struct {
	Name, URL string
	Driver    sink.Driver
	masked    string
}

// String names the sink and its server for people.
func (s Sink) String() string { return fmt.Sprintf("sink %s (%s)", s.Name, s.masked) }

// Masked names the server behind the URL, without user and password.
func (s Sink) Masked() string { return s.masked }

// AllSinks returns the sinks of the settings by their names' order. Check has found them right.
func (c Config) AllSinks() (all []Sink) {
	for _, name := range slices.Sorted(maps.Keys(c.Sink)) {
		if s, err := c.sink(name); err == nil {
			all = append(all, s)
		}
	}
	return all
}

func (c Config) sink(name string) (Sink, error) {
	url := c.Sink[name]
	driver, err := c.kinds.Sinks.Find(url)
	return Sink{Name: name, URL: url, Driver: driver, masked: c.kinds.Sinks.Mask(url)}, err
}

// SinkOf returns where a table's events go: to the sink that its route names, else to the only one, or to the one that
// is called default.
func (c Config) SinkOf(table string) (Sink, error) {
	name, err := c.sinkOf(table)
	if err != nil {
		return Sink{}, err
	}
	return c.sink(name)
}

func (c Config) sinkOf(table string) (name string, err error) {
	all := slices.Sorted(maps.Keys(c.Sink))
	name, routed := c.route(table)
	_, known := c.Sink[name]
	_, hasDefault := c.Sink[DefaultSink]
	switch {
	case routed && known:
		return name, nil
	case routed:
		return "", fmt.Errorf("routes: %s goes to %s, and there is no sink of that name: it is one of %s: %s", table,
			shape(name), strings.Join(all, ", "), set("routes"))
	case len(all) == 1:
		return all[0], nil
	}
	if heard := c.heardOf(table); heard != "" {
		return heard, nil
	}
	switch {
	case hasDefault:
		return DefaultSink, nil
	}
	return "", fmt.Errorf("routes: %s goes to no sink: there are %s, and none of them is called %s: give "+
		"--routes %s=NAME, or call one %s", table, strings.Join(all, ", "), DefaultSink, table, DefaultSink)
}

// TailSink returns the sink that a person listens to.
func (c Config) TailSink() (Sink, error) { return c.SinkOf("") }

// StreamSink returns the sink that a gateway hears: where the events of runs go.
func (c Config) StreamSink() (Sink, error) { return c.SinkOf(outbox.CrawlOutbox().Table) }

// TopicSink is StreamSink for the topics of outbox_events.
func (c Config) TopicSink() (Sink, error) { return c.SinkOf(outbox.OutboxEvents().Table) }

// checkSinks checks the sinks and which table goes to which, for a command with these needs.
func (c *Config) checkSinks(problems *Error, needs Need) {
	if len(c.Sink) == 0 {
		// Load gives what it could not read its default, and has said so.
		if slices.ContainsFunc(c.found.problems, func(p string) bool { return strings.Contains(p, "sink: ") }) {
			return
		}
		problems.add("no sink is set, so events have nowhere to go: %s%s:\n    %s", set("sink"), c.offered(),
			strings.Join(c.kinds.Sinks.Examples(), "\n    "))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sink)) {
		if err := c.kinds.Sinks.Check(c.Sink[name]); err != nil {
			problems.add("sink %s: %v: %s", name, err, set("sink"))
		}
	}
	if needs&Tailing != 0 {
		c.checkTail(problems)
		return
	}
	c.checkShortRoutes(problems)
	relay := needs&Serving != 0
	used := map[string]Sink{}
	if relay {
		used = c.usedSinks(problems)
	}
	if needs&Parts != 0 && c.Serve.Has("gateway") {
		c.checkHeard(problems, relay)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if used[name].Driver.InProcess {
			problems.add("%v delivers within one process, and this one has no gateway to hear it: run outbox serve with "+
				"the parts gateway and relay both, or give another --sink", used[name])
		}
	}
}

// checkShortRoutes reports what is wrong with those of the form TABLE=SINK.
func (c *Config) checkShortRoutes(problems *Error) {
	for _, raw := range c.Routes {
		text, short := raw.(string)
		if table, _, _ := strings.Cut(text, "="); !short || table == "" {
			continue
		} else if _, ok := find(c.Known(), table); !ok {
			problems.add("%s", unknownTable("routes", table, c.Known()))
		} else if _, err := c.sinkOf(table); err != nil {
			problems.add("%v", err)
		}
	}
}

// usedSinks are those that the tables that are served need.
func (c *Config) usedSinks(problems *Error) map[string]Sink {
	used := map[string]Sink{}
	served, _ := c.Tables() // what is wrong with them is said elsewhere
	for _, t := range served {
		names, err := c.sinksOf(t.Name())
		_, routed := c.route(t.Name())
		if err != nil && !routed { // else it is said already
			problems.add("%v", err)
		}
		for _, name := range names {
			if s, err := c.sink(name); err == nil {
				used[name] = s
			}
		}
	}
	return used
}

// checkHeard checks the sink that the gateway of this process hears.
func (c *Config) checkHeard(problems *Error, relay bool) {
	s, err := c.StreamSink()
	_, routed := c.route(outbox.CrawlOutbox().Table)
	switch {
	case s.Name == "" && (routed || relay && c.serves(outbox.CrawlOutbox().Table)): // said already
	case s.Name == "":
		problems.add("%v", err)
	case err != nil: // no driver: said with the URLs
	case s.Driver.Subscribe == nil:
		problems.add("%v cannot be listened to, and the gateway hears there what happens in runs: give --routes %s=NAME of "+
			"another sink, or leave gateway out of parts", s, outbox.CrawlOutbox().Table)
	case !c.heardAt(outbox.CrawlOutbox().Table, s.Name):
		problems.add("no entry of routes sends the events of runs to %v under the name that the gateway listens to: add "+
			"%s to one, without a destination", s, s.Name)
	case s.Driver.InProcess && !relay:
		problems.add("%v delivers from the relay to the gateway of one process, and relay is none of the parts here: "+
			"serve both, or give another --sink", s)
	}
}

func (c *Config) serves(table string) bool {
	served, _ := c.Tables()
	_, ok := find(served, table)
	return ok
}

func (c *Config) checkTail(problems *Error) {
	s, err := c.TailSink()
	switch {
	case s.Name == "":
		problems.add("there are the sinks %s, and one can be listened to at a time: give --sink URL of that one",
			strings.Join(slices.Sorted(maps.Keys(c.Sink)), ", "))
	case err != nil: // no driver: said with the URLs
	case s.Driver.InProcess:
		problems.add("%v delivers within one process, so there is nothing that other processes could hear: ask the outbox "+
			"serve that delivers, for instance curl -N 'http://127.0.0.1:8080/v1/stream?topics=order.placed'; or give "+
			"another --sink", s)
	case s.Driver.Tail == nil:
		problems.add("%v cannot be listened to: look at its own end of it, or give another --sink", s)
	}
}

// offered names a variable in which a platform offers the URL of a sink.
func (c *Config) offered() string {
	for _, d := range c.kinds.Sinks.Drivers() {
		for _, name := range d.Variables {
			if c.found.environ[name] != "" {
				return fmt.Sprintf(". %s is set: set OUTBOX_SINK to it", name)
			}
		}
	}
	return ""
}

// limitEntry is one entry of the list limits in the file of --config.
type limitEntry struct {
	Sink        string  `yaml:"sink"`
	Rate        float64 `yaml:"rate"`        // deliveries a second
	Concurrency int     `yaml:"concurrency"` // batches at a time
}

// limitEntries decodes and checks the list.
func (c *Config) limitEntries(problems *Error) (entries []limitEntry) {
	seen := map[string]bool{}
	for i, raw := range c.Limits {
		at := fmt.Sprintf("limits, entry %d", i+1)
		var e limitEntry
		unused, wrong := decode(raw, &e)
		if problems.entry(at, unused, wrong) && len(wrong) > 0 {
			continue
		}
		if c.Sink[e.Sink] == "" {
			problems.add("%s: there is no sink %q: it is one of %s", at, e.Sink,
				strings.Join(slices.Sorted(maps.Keys(c.Sink)), ", "))
		}
		if seen[e.Sink] {
			problems.add("%s: the sink %s has an entry already", at, e.Sink)
		}
		seen[e.Sink] = true
		if e.Rate < 0 {
			problems.add("%s: rate is %g, must be positive", at, e.Rate)
		}
		if e.Concurrency < 0 {
			problems.add("%s: concurrency is %d, must be positive", at, e.Concurrency)
		}
		entries = append(entries, e)
	}
	return entries
}

func (e limitEntry) limits() sink.Limits {
	return sink.Limits{Rate: e.Rate, Concurrency: e.Concurrency}
}

// LimitsOf returns what a sink is given at most. Check has found it right.
func (c Config) LimitsOf(name string) sink.Limits {
	for _, e := range c.limitEntries(&Error{}) {
		if e.Sink == name {
			return e.limits()
		}
	}
	return sink.Limits{}
}

// Exposed tells whether other machines may reach an address to listen on.
func Exposed(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && !loopback(host)
}
