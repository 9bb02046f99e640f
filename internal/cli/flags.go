package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

// parsed is the value of a flag that is checked when the command line is read. It keeps its text.
type parsed struct {
	text, kind string
	parse      func(text string) error
}

func (p *parsed) String() string { return p.text }
func (p *parsed) Type() string   { return p.kind }

func (p *parsed) Set(text string) error {
	if text == "" {
		return errors.New("it is empty: give it a value, or leave it out")
	}
	p.text = text
	return p.parse(text)
}

// momentFlag adds a flag for a time: RFC 3339, or how long ago.
func momentFlag(flags *pflag.FlagSet, to *time.Time, name, usage string) {
	flags.Var(&parsed{kind: "time", parse: func(text string) (err error) {
		if *to, err = time.Parse(time.RFC3339Nano, text); err == nil {
			return nil
		}
		age, err := parseAge(text)
		if err != nil {
			return fmt.Errorf("%q is neither RFC 3339, such as 2025-01-31T12:00:00Z, nor how long "+
				"ago, such as 90m or 7d",
				text)
		}
		*to = time.Now().Add(-age)
		return nil
	}}, name, usage)
}

// spanFlags add --since and --until.
func spanFlags(flags *pflag.FlagSet, since, until *time.Time, happened string) {
	momentFlag(flags, since, "since", "start `time` of "+happened+": RFC 3339, or an age such as 7d")
	momentFlag(flags, until, "until", "end `time` of "+happened)
}

// checkSpan refuses a time that ends before it begins.
func checkSpan(since, until time.Time) error {
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return usagef("--since %s is not before --until %s: nothing is between them", text(since), text(until))
	}
	return nil
}

// ageFlag adds a flag for an age of least or more. Nobody says it: it is standard, "" for none.
func ageFlag(flags *pflag.FlagSet, to *time.Duration, name, standard string, least time.Duration, usage string) {
	f := &parsed{text: standard, kind: "age"}
	f.parse = func(text string) (err error) {
		if *to, err = parseAge(text); err != nil || *to < least {
			err = fmt.Errorf("%q is no age such as 30d or 12h", text)
			if least > 0 {
				err = fmt.Errorf("%w, above zero", err)
			}
		}
		return err
	}
	*to, _ = parseAge(standard) // "" is none
	flags.Var(f, name, usage)
}

// parseAge is time.ParseDuration with days.
func parseAge(text string) (time.Duration, error) {
	if number, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.Atoi(number)
		if err != nil || days < 0 || days > 36500 {
			return 0, fmt.Errorf("%q is no number of days", text)
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	age, err := time.ParseDuration(text)
	if err == nil && age < 0 {
		err = fmt.Errorf("%q is negative", text)
	}
	return age, err
}

// uuidFlag adds a flag for a UUID.
func uuidFlag(flags *pflag.FlagSet, to *uuid.UUID, name, usage string) {
	flags.Var(&parsed{kind: "uuid", parse: func(text string) (err error) {
		if *to, err = uuid.Parse(text); err != nil {
			err = fmt.Errorf("got %q, want a UUID", text)
		}
		return err
	}}, name, usage)
}

// countFlag adds a flag for a whole number, standard where nobody says it, between two; a most of 0
// is no end.
func countFlag(flags *pflag.FlagSet, to *int, name string, standard, least, most int, usage string) {
	*to = standard
	flags.Var(&parsed{text: strconv.Itoa(standard), kind: "int", parse: func(text string) (err error) {
		switch *to, err = strconv.Atoi(text); {
		case err != nil, *to < least:
			return fmt.Errorf("got %s, want a whole number, %d or more", text, least)
		case most > 0 && *to > most:
			return fmt.Errorf("got %s, want %d at most", text, most)
		}
		return nil
	}}, name, usage)
}

// pageFlags add --limit and --after.
func pageFlags(flags *pflag.FlagSet, limit *int, after *string, most int, what string) {
	countFlag(flags, limit, "limit", 50, 1, most, "number of "+what+" per page")
	flags.StringVar(after, "after", "", "cursor printed below the previous page")
}

// operatorFlags say who acts.
type operatorFlags struct{ deadletter.Operator }

func (f *operatorFlags) addTo(flags *pflag.FlagSet, reason string) {
	flags.StringVar(&f.Actor, "actor", "", "`name` of the operator, for the audit (default: user@host)")
	flags.StringVar(&f.Reason, "reason", "", "reason, for the audit"+reason)
}

func (f *operatorFlags) operator() deadletter.Operator {
	f.Actor = cmp.Or(f.Actor, app.Actor())
	return f.Operator
}

// unreasoned tells whether a reason is missing.
func (f *operatorFlags) unreasoned() bool { return strings.TrimSpace(f.Reason) == "" }

// The flags by which commands choose what they show or change. In those of patterned, * stands for
// any text, as it does in the routes of the settings. The others of chosenBy take one name, or are
// checked by whoever knows them.
var (
	patterned = []string{"topic", "type", "destination"}
	named     = []string{"key", "tenant", "table", "sink", "trace"}
	chosenBy  = slices.Concat(patterned, named, []string{"status", "source", "error-reason", "request-id", "error",
		"fingerprint", "since", "until"})
)

var (
	// otherWildcard is what ends a pattern of NATS or RabbitMQ. Topics do not end so.
	otherWildcard = regexp.MustCompile(`(^|\.)[>#]$`)
	fingerprint   = regexp.MustCompile(`^[0-9a-fA-F]{12}$`)
)

// checkFilters refuses values that choose nothing or not what was meant: an empty one (most likely
// a variable that is not set, which must not choose everything), a pattern where a name is wanted,
// and another program's pattern. alsoNamed are flags that take no pattern here.
func checkFilters(flags *pflag.FlagSet, alsoNamed ...string) error {
	for _, name := range chosenBy {
		f := flags.Lookup(name)
		if f == nil || !f.Changed || config.IsSetting(f) {
			continue
		}
		text := strings.Trim(f.Value.String(), "[]") // a list's text has brackets
		switch {
		case text == "":
			return usagef("--%s is empty: give it a value, or leave it out", name)
		case name == "fingerprint" && !fingerprint.MatchString(text):
			return usagef("--fingerprint is %q, want the 12 characters that outbox dlq stats prints", text)
		case slices.Contains(slices.Concat(named, alsoNamed), name) && strings.Contains(text, "*"):
			return usagef("--%s is %q and takes no pattern: name one, and repeat the command for others; a --topic or "+
				"--type may be a pattern, in which * stands for any text", name, text)
		case slices.Contains(patterned, name) && otherWildcard.MatchString(text):
			return usagef("--%s is %q, which is no pattern here: write %q, in which * stands for any text, dots too",
				name, text, text[:len(text)-1]+"*")
		}
	}
	return nil
}

// lookedFor says by which flags something was chosen, for when there is nothing: ", looked for
// topic invoice.*". A table that is one without being named is not among them.
func lookedFor(flags *pflag.FlagSet) string {
	var parts []string
	for _, name := range chosenBy {
		f := flags.Lookup(name)
		if f != nil && f.Changed && !config.IsSetting(f) && f.DefValue != "outbox_events" && name != "sink" {
			parts = append(parts, name+" "+strings.Trim(f.Value.String(), "[]"))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ", looked for " + strings.Join(parts, " and ")
}

func positionFlag(flags *pflag.FlagSet, to *int64) {
	flags.Int64Var(to, "position", 0, "position of the event in its table, instead of its id")
}

// oneEvent returns the id or the position that a command line names. A number is no id: a mistyped
// id must not show another event.
func oneEvent(args []string, position int64) (string, error) {
	switch {
	case len(args) == 0 && position > 0:
		return strconv.FormatInt(position, 10), nil
	case len(args) == 0 || position != 0:
		return "", usagef("name one event: its id, or its position as --position N")
	}
	if _, err := uuid.Parse(args[0]); err != nil {
		return "", usagef("%q is not the id of an event, which is a UUID; name a position as --position N", args[0])
	}
	return args[0], nil
}

// parseIDs returns the ids among the arguments. what names them, and where they are found.
func parseIDs(args []string, what string) (ids []uuid.UUID, err error) {
	for _, arg := range args {
		id, err := uuid.Parse(arg)
		if err != nil {
			return nil, usagef("%q is no %s", arg, what)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
