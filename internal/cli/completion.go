package cli

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/app"
)

// valued are the values that a shell offers for a flag of this name, in whatever command.
var valued = map[string][]string{
	"table":     {"outbox_events", "event_outbox", "crawl_outbox", "outbox_log"},
	"output":    {"table", "json"},
	"log-level": {"debug", "info", "warn", "error"},
	"by":        {"tenant", "topic"},
	"format":    formatNames(),
	"for":       slices.Sorted(maps.Keys(needs)),
	"auth":      {"token", "none"},
	"set":       slices.Concat(app.Sets, app.OptionalSets),
}

// complete has shells offer the values of flags that have few, and of --sink the forms of its URLs.
func (a *application) complete(cmd *cobra.Command) {
	offer := func(f *pflag.Flag) {
		values, known := valued[f.Name]
		if f.Name == "sink" {
			known = true
			for _, d := range a.kinds.Sinks.Drivers() {
				for _, scheme := range d.Schemes {
					values = append(values, scheme+":")
				}
			}
		}
		if known {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	cmd.LocalFlags().VisitAll(offer)
	for _, sub := range cmd.Commands() {
		a.complete(sub)
	}
}
