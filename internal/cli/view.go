package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// view is an open table that people look into, or what one of its sinks owes.
type view struct {
	admin.View
	c  config.Config
	db app.Database
}

// browse opens a table for people and runs fn. alsoNamed are flags of cmd that take no pattern
// here.
func (a *application) browse(
	cmd *cobra.Command, of admin.Of, mapping *pflag.FlagSet, fn func(view) error, alsoNamed ...string,
) error {
	if err := checkFilters(cmd.Flags(), alsoNamed...); err != nil {
		return err
	}
	c, err := a.settings(config.Database, mapping)
	if err != nil {
		return err
	}
	if _, err := of.Find(c); err != nil {
		return err
	}
	return withDatabase(cmd.Context(), c, func(db app.Database) error {
		opened, err := admin.Open(cmd.Context(), c, db, of)
		if err == nil {
			err = fn(view{opened, c, db})
		}
		switch {
		case errors.Is(err, outbox.ErrRowsHidden):
			return usagef("%w: name it with --tenant", err)
		case errors.Is(err, operate.ErrFilter):
			return usageError{err}
		}
		return err
	})
}

// printTroubles says what is wrong before anything else is shown: a reason is one line, whoever has
// it.
func (a *application) printTroubles(form string, all []operate.Trouble) {
	to := a.Out
	if form == "json" {
		to = a.Err
	}
	var reasons []string
	first, relays := map[string]operate.Trouble{}, map[string][]string{}
	for _, t := range all {
		for _, r := range t.Reasons() {
			if seen, ok := first[r]; !ok {
				reasons, first[r] = append(reasons, r), t
			} else if t.Since != nil && seen.Since != nil && t.Since.Before(*seen.Since) {
				first[r] = t
			}
			if t.Relay != "" && !slices.Contains(relays[r], t.Relay) {
				relays[r] = append(relays[r], t.Relay)
			}
		}
	}
	for _, r := range reasons {
		line := "NOT READY: " + oneLine(r)
		if len(relays[r]) > 0 {
			line += fmt.Sprintf(" (relay %s, since %s)", strings.Join(relays[r], ", "), text(first[r].Since))
		}
		fmt.Fprintln(to, line)
	}
}
