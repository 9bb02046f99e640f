package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/sink"
)

// Sinks are URLs by the names of their sinks. In a file they are one URL, or keys with URLs; a flag
// and a variable have each as URL or NAME=URL.
type Sinks map[string]string

func (s Sinks) names() string { return strings.Join(slices.Sorted(maps.Keys(s)), ", ") }

// DefaultSink is the name of a sink that is given none, and of the one for tables that no route
// names.
const DefaultSink = relay.DefaultSink

var sinkName = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// parseSinks takes each text as URL or NAME=URL. Errors show no URL: a password may be in it.
func (c *Config) parseSinks() error {
	all := Sinks{}
	for _, text := range c.written.sink {
		name, url := DefaultSink, text
		// What stands before the first = is a name unless it has a colon: then it is in the URL.
		if before, after, named := strings.Cut(text, "="); named && !strings.Contains(before, ":") {
			name, url = before, after
		}
		if !sinkName.MatchString(name) {
			return fmt.Errorf("%s is no name of a sink: want small letters, digits, _ and -", shape(name))
		}
		if _, twice := all[name]; twice {
			return fmt.Errorf("two sinks are called %s: give each a name of its own, as in "+
				"audit=URL", name)
		}
		all[name] = url
	}
	c.Sink = all
	return nil
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

// SinkOf returns where a table's events go: to the sink that its route names, else to the only one,
// or to the one that is called default.
func (c Config) SinkOf(table string) (Sink, error) {
	name, err := c.sinkOf(table)
	if err != nil {
		return Sink{}, err
	}
	return c.sink(name)
}

func (c Config) sinkOf(table string) (name string, err error) {
	names := c.Sink.names()
	if name, routed := c.route(table); routed {
		if _, known := c.Sink[name]; known {
			return name, nil
		}
		return "", fmt.Errorf("routes: %s goes to %s, and there is no sink of that name: it is "+
			"one of %s: %s", table,
			shape(name), names, give("routes"))
	}
	if len(c.Sink) == 1 {
		return names, nil
	}
	if heard := c.heardOf(table); heard != "" {
		return heard, nil
	}
	if _, ok := c.Sink[DefaultSink]; ok {
		return DefaultSink, nil
	}
	return "", fmt.Errorf("routes: %s goes to no sink: there are %s, and none of them is called "+
		"%s: give --routes %s=NAME, or call one %s", table, names, DefaultSink, table, DefaultSink)
}

// TailSink returns the sink that a person listens to.
func (c Config) TailSink() (Sink, error) { return c.SinkOf("") }

// StreamSink returns the sink that a gateway hears: where the events of runs go.
func (c Config) StreamSink() (Sink, error) { return c.SinkOf(runs) }

// TopicSink is StreamSink for the topics of outbox_events.
func (c Config) TopicSink() (Sink, error) { return c.SinkOf(topics) }

// checkSinks checks the sinks and which table goes to which, for a command with these needs.
func (c *Config) checkSinks(problems *Error, needs Need) {
	if len(c.Sink) == 0 {
		// Load gives what it could not read its default, and has said so.
		if slices.ContainsFunc(c.found.problems.Problems, func(p string) bool {
			return strings.Contains(p, "sink: ") || strings.HasPrefix(p, "OUTBOX_SINK: ")
		}) {
			return
		}
		problems.add("no sink is set, so events have nowhere to go: %s%s:\n    %s", give("sink"), c.offered(),
			strings.Join(c.kinds.Sinks.Examples(), "\n    "))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sink)) {
		if err := c.kinds.Sinks.Check(c.Sink[name]); err != nil {
			problems.add("sink %s: %v: %s", name, err, give("sink"))
		}
	}
	if needs&Tailing != 0 {
		c.checkTail(problems)
		return
	}
	c.checkWholeTables(problems)
	used := map[string]Sink{}
	if needs&Serving != 0 {
		used = c.usedSinks(problems)
	}
	if needs&Parts != 0 && c.Serve.Has("gateway") {
		c.checkHeard(problems, needs&Serving != 0)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if used[name].Driver.InProcess {
			problems.add("%v delivers within one process, and this one has no gateway to hear it: "+
				"run outbox serve with the parts gateway and relay both, or give another --sink", used[name])
		}
	}
}

// checkWholeTables reports what is wrong with routes of the form TABLE=SINK.
func (c *Config) checkWholeTables(problems *Error) {
	for _, r := range c.Routes {
		if r.Sink == "" {
			continue
		} else if _, ok := find(c.Known(), r.Table); !ok {
			problems.add("%s", unknownTable("routes", r.Table, c.Known()))
		} else if _, err := c.sinkOf(r.Table); err != nil {
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
		if _, routed := c.route(t.Name()); err != nil && !routed { // else it is said already
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
	_, routed := c.route(runs)
	served, _ := c.Tables()
	_, serves := find(served, runs)
	switch {
	case s.Name == "" && (routed || relay && serves): // said already
	case s.Name == "":
		problems.add("%v", err)
	case err != nil: // no driver: said with the URLs
	case s.Driver.Subscribe == nil:
		problems.add("%v cannot be listened to, and the gateway hears there what happens in runs: "+
			"give --routes %s=NAME of another sink, or leave gateway out of parts", s, runs)
	case !c.heardAt(runs, s.Name):
		problems.add("no entry of routes sends the events of runs to %v under the name that the "+
			"gateway listens to: add %s to one, without a destination", s, s.Name)
	case s.Driver.InProcess && !relay:
		problems.add("%v delivers from the relay to the gateway of one process, and relay is none "+
			"of the parts here: serve both, or give another --sink", s)
	}
}

func (c *Config) checkTail(problems *Error) {
	s, err := c.TailSink()
	switch {
	case s.Name == "":
		problems.add("there are the sinks %s, and one can be listened to at a time: give --sink "+
			"URL of that one",
			c.Sink.names())
	case err != nil: // no driver: said with the URLs
	case s.Driver.InProcess:
		problems.add("%v delivers within one process, so there is nothing that other processes "+
			"could hear: ask the outbox serve that delivers, for instance curl -N "+
			"'http://127.0.0.1:8080/v1/stream?topics=order.placed'; or give another --sink", s)
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

func (c *Config) checkLimits(problems *Error) {
	seen := map[string]bool{}
	for i, e := range c.limits {
		at := fmt.Sprintf("limits, entry %d", i+1)
		if c.Sink[e.Sink] == "" {
			problems.add("%s: there is no sink %q: it is one of %s", at, e.Sink, c.Sink.names())
		}
		if seen[e.Sink] {
			problems.add("%s: the sink %s has an entry already", at, e.Sink)
		}
		seen[e.Sink] = true
		if e.Rate < 0 || e.Concurrency < 0 {
			problems.add("%s: rate is %g and concurrency %d, must be positive", at, e.Rate, e.Concurrency)
		}
	}
}

// LimitsOf returns what a sink is given at most.
func (c Config) LimitsOf(name string) sink.Limits {
	for _, e := range c.limits {
		if e.Sink == name {
			return sink.Limits{Rate: e.Rate, Concurrency: e.Concurrency}
		}
	}
	return sink.Limits{}
}
