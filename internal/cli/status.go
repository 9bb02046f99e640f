package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
)

// status prints one sentence about the outbox, and the findings behind it.
func (a *application) status() *cobra.Command {
	var watch time.Duration
	settings := every()
	cmd := command("status", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if watch != 0 && watch < time.Second {
			return usagef("--watch is %s, want at least 1s", watch)
		}
		c, err := a.settings(config.Database, settings)
		if err != nil {
			return err
		}
		for {
			status, err := app.Status(cmd.Context(), c)
			if cmd.Context().Err() != nil {
				return nil
			}
			if err = cmp.Or(err, a.printStatus(c.Output, status)); err != nil || watch == 0 {
				return cmp.Or(err, verdict(status.Report))
			}
			if !backoff.Wait(cmd.Context(), watch) {
				return nil
			}
		}
	})
	cmd.Flags().DurationVar(&watch, "watch", 0, "repeat after this `duration`, until stopped")
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

func (a *application) printStatus(form string, s condition.Status) error {
	if form == "json" {
		return printJSON(a.Out, s)
	}
	if _, err := fmt.Fprintln(a.Out, oneLine(s.Sentence)); err != nil {
		return fmt.Errorf("print result: %w", err)
	}
	return a.printFindings(s.Report)
}
