package cli

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// The flags by which commands choose what they show or change. In those of patterned, * stands for any text, as it does
// in the routes of the settings. The others of chosenBy take one name, or are checked by whoever knows them.
var (
	patterned = []string{"topic", "type", "destination"}
	named     = []string{"key", "tenant", "table", "to"}
	chosenBy  = slices.Concat(patterned, named, []string{"status", "source", "error-reason", "request-id", "error",
		"fingerprint", "since", "until"})
)

var (
	// otherWildcard is what ends a pattern of NATS or RabbitMQ. Topics do not end so.
	otherWildcard = regexp.MustCompile(`(^|\.)[>#]$`)
	fingerprint   = regexp.MustCompile(`^[0-9a-fA-F]{12}$`)
)

// checkFilters refuses values that choose nothing or not what was meant: an empty one (most likely a variable that is
// not set, which must not choose everything), a pattern where a name is wanted, and another program's pattern.
// alsoNamed are flags that take no pattern here.
func checkFilters(flags *pflag.FlagSet, alsoNamed ...string) error {
	for _, name := range chosenBy {
		f := flags.Lookup(name)
		if f == nil || !f.Changed {
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

// checkSpan refuses a time that ends before it begins.
func checkSpan(since, until time.Time) error {
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return usagef("--since %s is not before --until %s: nothing is between them", moment(&since), moment(&until))
	}
	return nil
}

// lookedFor says by which flags something was chosen, for when there is nothing: ", looked for topic invoice.*". A
// table that is one without being named is not among them.
func lookedFor(flags *pflag.FlagSet) string {
	var parts []string
	for _, name := range chosenBy {
		if f := flags.Lookup(name); f != nil && f.Changed && f.DefValue != "outbox_events" && name != "to" {
			parts = append(parts, name+" "+strings.Trim(f.Value.String(), "[]"))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ", looked for " + strings.Join(parts, " and ")
}
