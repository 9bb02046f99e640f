package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/backoff"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/top"
)

func (a *application) top() *cobra.Command {
	var once bool
	var interval time.Duration
	settings := every()
	cmd := command("top", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if interval < time.Second {
			return usagef("--interval is %s, want at least 1s", interval)
		}
		// Not a.settings, which warns of what are conditions here.
		c, err := config.Load(a.kinds, a.environ, a.global, settings)
		if err == nil {
			err = c.Check(config.Database)
		}
		if err != nil {
			return err
		}
		desk, closed, err := app.Desk(cmd.Context(), c, "outbox top")
		if err != nil {
			return err
		}
		defer closed()
		source := top.NewSource(desk)
		if once || c.Output == "json" || !isTerminal(a.Out) {
			return a.printSamples(cmd, source, once, interval)
		}
		return top.Show(cmd.Context(), source, app.MaskDatabase(c.Database), interval,
			top.Terminal{In: a.In, Out: a.Out, Environ: a.environ})
	})
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "how `long` between two looks, 1s or more")
	cmd.Flags().BoolVar(&once, "once", false, "look once, and print the sample as JSON")
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

// printSamples prints a sample a line, until stopped. Of one sample alone an error is the
// command's.
func (a *application) printSamples(cmd *cobra.Command, source *top.Source, once bool, interval time.Duration) error {
	for {
		sample, least := source.Look(cmd.Context())
		if cmd.Context().Err() != nil {
			return nil
		}
		if err := printLine(a.Out, sample); err != nil {
			return err
		}
		if once && sample.Error != "" {
			return errors.New(sample.Sentence)
		}
		if once {
			return nil
		}
		if !backoff.Wait(cmd.Context(), max(interval, least)) {
			return nil
		}
	}
}
