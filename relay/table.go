package relay

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/outbox"
)

// DefaultSink is the name of the sink that New was given.
const DefaultSink = "default"

// Table is an outbox table as a Relay serves it. Zero means the default in parentheses.
type Table struct {
	Layout   outbox.Layout
	Optional bool   // a database without the table is served all the same; one of the tables must be there
	Sink     string // the name of the table's sink, if it has no Routes (DefaultSink)
	// Routes say which events go to which sinks. A sink that is slow or down delays no other: what
	// it does not take is recorded in outbox_deliveries and delivered from there (nil: all events
	// go to Sink).
	Routes []Route

	Destination outbox.Template // where events without Destinations go ({topic})
	Envelope    outbox.Envelope // what the table's messages are (the sink's)
	// Reserved tells whether a destination belongs to another table, whose readers would take the
	// event for one of theirs. An event that would go there is dead at once, all of it. It must be
	// quick, and safe for concurrent use (nil: none is reserved).
	Reserved func(destination string) bool

	MaxAttempts int              // (the relay's)
	Backoff     Backoff          // each field that is zero is the relay's
	Policies    []RetryPolicy    // (the relay's)
	Retention   outbox.Retention // each field that is zero is the relay's

	serves string // LeaseRequest.Serves
}

// Tables returns the tables of the migration sets, each served where it exists: outbox_events,
// event_outbox, crawl_outbox and outbox_log. Attempts and pause of crawl_outbox are those of
// docs/seeds.md#fr-005. What event_outbox has delivered is not archived but deleted, as its seed
// does (docs/seeds.md#05-01).
func Tables() []Table {
	return []Table{
		{Layout: outbox.OutboxEvents(), Optional: true},
		{Layout: outbox.EventOutbox(), Optional: true, Retention: outbox.Retention{Archive: "none"}},
		{Layout: outbox.CrawlOutbox(), Optional: true, Destination: builtin("run:{key}"), MaxAttempts: 3,
			Backoff: Backoff{Base: 200 * time.Millisecond}},
		{Layout: outbox.OutboxLog(), Optional: true, Retention: outbox.Retention{Archive: "none"}},
	}
}

// sinks returns the names of the sinks that the table's events go to.
func (t *Table) sinks() []string {
	if len(t.Routes) > 0 {
		return routes(t.Routes).sinks()
	}
	return []string{t.Sink}
}

// describe returns the table's sinks and routes as relays compare them, one per line. A sink is
// described by its String method, which must not reveal a password, or by its Go type. Texts are
// quoted in ASCII, which every database encoding has.
func (t *Table) describe(sinks map[string]outbox.Sink) string {
	target := func(sink string, destination outbox.Template) string {
		what := fmt.Sprintf("%T", sinks[sink])
		if named, ok := sinks[sink].(fmt.Stringer); ok {
			what = named.String()
		}
		return fmt.Sprintf("%+q (%+q) as %+q", sink, what, destination.String())
	}
	if len(t.Routes) == 0 {
		return "all events to " + target(t.Sink, t.Destination)
	}
	var lines []string
	for i, r := range t.Routes {
		for _, to := range r.To {
			lines = append(lines, fmt.Sprintf("route %d %+q (topic %+q, tenant %+q, type %+q) to %s", i+1, r.Name, r.Topic,
				r.Tenant, r.AggregateType, target(to.Sink, to.Destination)))
		}
	}
	return strings.Join(lines, "\n")
}

// served returns the tables to serve, complete, or every problem at once. c has its defaults.
func (c *Config) served() ([]Table, error) {
	tables := slices.Clone(c.Tables)
	if len(tables) == 0 {
		tables = Tables()
	}
	var problems []error
	seen := map[string]bool{}
	for i := range tables {
		t := &tables[i]
		if err := t.Layout.Validate(); err != nil {
			problems = append(problems, err)
			continue
		}
		name := t.Layout.Table
		if seen[name] {
			problems = append(problems, fmt.Errorf("table %s is there twice", name))
		}
		seen[name] = true
		t.complete(c, name+": ", &problems)
	}
	return tables, errors.Join(problems...)
}

// complete fills the table's gaps from the relay's configuration.
func (t *Table) complete(c *Config, of string, problems *[]error) {
	known := func(sink string) bool { return sink == DefaultSink || c.Sinks[sink] != nil }
	if t.Sink = cmp.Or(t.Sink, DefaultSink); !known(t.Sink) {
		*problems = append(*problems, fmt.Errorf("%sthere is no sink %q", of, t.Sink))
	}
	if t.Destination.String() == "" {
		t.Destination = builtin("{topic}")
	}
	t.Routes = routes(t.Routes).complete(of, t.Destination, known, problems)
	if t.MaxAttempts = cmp.Or(t.MaxAttempts, c.MaxAttempts); t.MaxAttempts < 0 {
		*problems = append(*problems, fmt.Errorf("%sMaxAttempts is %d, must be positive", of, t.MaxAttempts))
	}
	t.Backoff = t.Backoff.withDefaults(c.Backoff)
	t.Backoff.check(of+"Backoff", problems)
	own := RetryPolicy{MaxAttempts: t.MaxAttempts, Backoff: t.Backoff}
	if t.Policies == nil {
		t.Policies = complete(c.Policies, "", own, new([]error)) // WithDefaults has told their problems
	} else {
		t.Policies = complete(t.Policies, of, own, problems)
	}
	if archive := &t.Retention.Archive; !t.Layout.KeepsState() {
		if *archive = cmp.Or(*archive, "none"); *archive != "none" {
			*problems = append(*problems, fmt.Errorf("%sRetention.Archive is %s, must be none: a log's old rows go with "+
				"their part, which is truncated", of, *archive))
		}
	}
	t.Retention = completeRetention(t.Retention, c.Retention)
	checkRetention(t.Retention, of+"Retention", problems)
}

// builtin is ParseTemplate of a text of ours.
func builtin(text string) outbox.Template {
	t, err := outbox.ParseTemplate(text)
	if err != nil {
		panic(err)
	}
	return t
}

// policy returns what applies to a destination. A record of which several have failed waits for the
// longest, and is dead once all of them are.
func (t *Table) policy(destination string) RetryPolicy {
	for _, p := range t.Policies {
		if fits, err := path.Match(p.Destination, destination); err == nil && fits {
			return p
		}
	}
	return RetryPolicy{MaxAttempts: t.MaxAttempts, Backoff: t.Backoff}
}
