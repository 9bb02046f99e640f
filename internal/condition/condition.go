// Package condition knows the ways in which an outbox can be unwell, and finds out which of them it
// is in.
//
// The catalogue is one table. An entry has an id that never changes, a severity, what it means and
// what to do, and the check that finds it. From it come outbox doctor, the conditions of /readyz
// and of the metric outbox_condition, the alert rules, the runbook (docs/operations/conditions.md),
// and the list of what the tests provoke.
//
// Guaranteed: an examination writes nothing into the database. What the role may not see is said,
// and hides no other condition. A finding's sentence has the numbers it rests on, and its remedy is
// what can be typed.
//
// Not guaranteed: that a finding still holds when it is read. Relays go on meanwhile.
package condition

import (
	"fmt"
	"strings"
	"time"
)

// Severity is how bad a condition is.
type Severity int

// The severities. Advice is no reason to act at once and has no alert. A warning becomes a fault of
// delivery if it stays. Uncertain is the result of a report in which something is unknown, and of
// no condition. A critical condition stops delivery, or is about to.
const (
	Advice Severity = iota + 1
	Warning
	Uncertain
	Critical
)

var severities = map[Severity]string{0: "healthy", Advice: "advice", Warning: "warning", Uncertain: "unknown",
	Critical: "critical"}

// String is what commands and the API call it.
func (s Severity) String() string { return severities[s] }

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Severity) UnmarshalText(text []byte) (err error) {
	*s, err = parseSeverity(string(text))
	return err
}

// parseSeverity reads what a statement has called it.
func parseSeverity(text string) (Severity, error) {
	for s, name := range severities {
		if name == text {
			return s, nil
		}
	}
	return 0, fmt.Errorf("there is no severity %q", text)
}

// Category is the part of an outbox that a condition is of.
type Category string

// Categories are all, in the order in which one looks at them: what comes first is the cause of
// what comes behind it.
var Categories = []Category{"settings", "host", "database", "schema", "sinks", "relays", "events", "letters",
	"consumers", audit}

// Condition is one way in which an outbox can be unwell.
type Condition struct {
	ID       string // OBX-017, for ever
	Name     string // what is wrong, in a few words
	Category Category
	Severity Severity // the worst that a finding of it has
	Means    string   // what follows from it, and where it comes from
	Remedy   string   // what to do, where a finding does not know better
	// Pre says that it can be found before a relay has ever started.
	Pre bool
	// Alert is the rule of deploy/prometheus/outbox.rules.yml that watches for it by a metric of
	// its own. "": the rule is in outbox.conditions.rules.yml, by outbox_condition. Advice has
	// none.
	Alert string

	judge judge // finds it in facts alone, or
	check check // asks the database, the machine or a sink for it
}

// Anchor is the heading of its entry in the runbook, as a link has it.
func (c *Condition) Anchor() string {
	words := strings.FieldsFunc(strings.ToLower(c.ID+" "+c.Name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
	return strings.Join(words, "-")
}

// Runbook is where the entries of all are.
const Runbook = "https://github.com/outboxrelay/outbox/blob/main/docs/operations/conditions.md"

// Finding is a condition that was found, at one thing.
type Finding struct {
	ID       string     `json:"id"`
	Name     string     `json:"name"`
	Category Category   `json:"category"`
	Severity Severity   `json:"severity"`
	About    string     `json:"about"` // the table, sink, relay or server that it is of
	Says     string     `json:"says"`
	Since    *time.Time `json:"since,omitempty"`
	Remedy   string     `json:"remedy"`
	See      string     `json:"see"`
}

// Unseen is a condition or a fact that could not be looked at.
type Unseen struct {
	ID    string `json:"id,omitempty"` // of a condition
	Name  string `json:"name"`
	State string `json:"state"` // unknown, or not visible to this login
	Why   string `json:"why"`
}

// Report is the result of an examination: findings by severity, and those of one severity by their
// harm to delivery.
type Report struct {
	At       time.Time `json:"at"`
	Worst    Severity  `json:"worst"` // of all findings; unknown if something unknown may be worse
	Findings []Finding `json:"findings"`
	Unseen   []Unseen  `json:"unseen"`
	Asked    int       `json:"asked"` // conditions that were looked for
}
