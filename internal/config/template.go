package config

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// headings stand before the flag with which a group begins, so that a new flag is in the group that
// it is declared in.
var headings = map[string]string{
	"database":     "Servers and log",
	"table":        "Relay",
	"retention":    "Retention: what becomes of what was delivered",
	"http":         "Gateway",
	"crawlers":     "Worker",
	"stream-limit": "Streams",
}

// preface has a paragraph a line.
const preface = `Settings of outbox. Each stands here with its default: take the # away before the ones that you want to change.

A process reads this file only if told to: --config FILE, or OUTBOX_CONFIG=FILE.

` + "Every setting is also a flag, with - for _ (--poll-max), and a variable, OUTBOX_ and its name in capitals " +
	"(OUTBOX_POLL_MAX; but OUTBOX_DATABASE_URL, or else DATABASE_URL, for database). A flag wins over a variable, a " +
	"variable over this file. outbox config print shows what is in effect, and from where. " +
	"Times have a unit: 5ms, 10s, 15m, 168h."

// examples are the lists whose entries have several keys. They are examples and no defaults: the
// lists are empty.
var examples = []struct{ heading, about, text string }{
	{"layouts: tables of your own shape", "Each entry names the columns that play a part; outbox help layouts says more. Types are PostgreSQL's; in SQLite a uuid is TEXT, and position an INTEGER PRIMARY KEY.", `layouts:
  - table: billing.outbox
    id: event_id               # uuid not null; required like position, topic, payload, attempts, next_retry_at
    position: seq              # bigint not null, drawn by the database
    topic: kind
    payload: body
    key: invoice_id            # what must stay in order
    delivered_at: sent_at      # null until delivered; or status with pending, delivered and dead
    attempts: tries
    next_retry_at: retry_at
    destination: "billing.{topic}"
  - table: outbox              # upgraded by deploy/postgres/upgrade-outbox.sql
    like: outbox_events        # that table's columns; further keys change single ones
`},
	{"retry: destinations with a retry policy of their own", "What an entry leaves out is as for the table.", `retry:
  - destination: "orders.*"    # a name or a pattern; * does not match a slash
    table: outbox_events       # default: all
    max_attempts: 10
    backoff_base: 1s
    backoff_factor: 2
    backoff_cap: 5m
`},
	{"routes: which events go to which sinks", "Of a table's routes the first that fits an event is taken; without any, all events go to the table's sink. An entry outbox_events=default sends all of a table to one sink. Names may be patterns in which * stands for any text. A sink that is slow or down delays no other.", `routes:
  - table: outbox_events       # default: all
    name: orders               # which destination_topics of an event may name, whatever the conditions
    topic: "order.*"           # conditions; what is left out fits everything
    tenant: acme
    type: Order
    to: ["default:orders.{tenant}"]   # sinks, each with a destination or else the table's
  - to: [default]              # everything else
`},
	{"limits: what sinks are given at most", "A sink without an entry has no limits.", `limits:
  - sink: default
    rate: 5000                 # deliveries a second
    concurrency: 2             # batches at a time
`},
}

// Template returns a file of --config with every setting, all of them commented out. It is made of
// the flags' own texts, so that there is one documentation and a new flag cannot be missing. Lines
// of settings begin with # and no space, lines of text with # and one.
func Template(kinds Kinds) (string, error) {
	var b strings.Builder
	comment(&b, preface)
	all := All()
	var problems []error
	all.VisitAll(func(f *pflag.Flag) {
		if f.Name == "config" || f.Name == "layouts" || f.Name == "routes" { // the last two are among the examples
			return
		}
		if text, ok := headings[f.Name]; ok {
			heading(&b, text)
		}
		_, usage := pflag.UnquoteUsage(f)
		comment(&b, usage+kinds.examples(f.Name))
		value, err := flow(valueOf(f))
		problems = append(problems, err)
		fmt.Fprintf(&b, "#%s: %s\n\n", key(f.Name), value)
	})
	for _, e := range examples {
		heading(&b, e.heading)
		comment(&b, e.about)
		for line := range strings.Lines(e.text) {
			b.WriteString("#" + line)
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String()) + "\n", errors.Join(problems...)
}

// examples returns the forms of the URLs of a setting, to follow its text.
func (k Kinds) examples(flag string) string {
	switch flag {
	case "database":
		return ": " + strings.Join(k.Databases.Examples(), "; ")
	case "sink":
		return ": one of " + k.Sinks.Schemes()
	}
	return ""
}

func heading(b *strings.Builder, text string) {
	fmt.Fprintf(b, "\n# ---- %s %s\n\n", text, strings.Repeat("-", max(4, 70-len(text))))
}

// comment writes text in lines that fit a screen.
func comment(b *strings.Builder, text string) {
	const width = 110
	for line := range strings.SplitSeq(text, "\n") {
		length := 0
		b.WriteString("#")
		for _, word := range strings.Fields(line) {
			if length += len(word) + 1; length > width {
				b.WriteString("\n#")
				length = len(word) + 1
			}
			b.WriteString(" " + word)
		}
		b.WriteString("\n")
	}
}

// flow writes a value on one line.
func flow(value any) (string, error) {
	var node yaml.Node
	if err := node.Encode(value); err != nil {
		return "", fmt.Errorf("write default: %w", err)
	}
	node.Style |= yaml.FlowStyle
	text, err := yaml.Marshal(&node)
	if err != nil {
		return "", fmt.Errorf("write default: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
