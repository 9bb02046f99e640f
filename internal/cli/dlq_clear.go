package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

// cleared is what `outbox dlq discard` and `purge` print with -o json.
type cleared struct {
	Letters int  `json:"letters"`
	DryRun  bool `json:"dryRun,omitempty"`
}

func (a *application) discardLetters(mapping *pflag.FlagSet) *cobra.Command {
	var f struct {
		selectionFlags
		operatorFlags
	}
	cmd := &cobra.Command{
		Use:   "discard (ID... | filter flags | --all) --reason TEXT",
		Short: "Mark dead letters as not to be replayed",
		Long: `discard takes letters out of the pending ones and keeps why. It deletes nothing: outbox dlq list
--state discarded shows them, and outbox dlq replay ID --discarded replays one after all.`,
		Example: `  outbox dlq discard 01890a5d-ac96-774b-bcce-b302099a8057 --reason 'test data'
  outbox dlq discard --type order.placed --until 30d --reason 'orders were closed by hand'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			selection, err := f.selection(args)
			if err != nil {
				return err
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			return a.openLetters(cmd.Context(), c, func(_ app.Database, d deadletter.Store) error {
				n, err := deadletter.Discard(cmd.Context(), d, selection, f.operator())
				if errors.Is(err, deadletter.ErrNoReason) {
					return usagef("--reason is required: say why these need not arrive")
				}
				if err == nil && n < len(selection.IDs) {
					err = fmt.Errorf("%d of %s not discarded: there is no such letter, or it was replayed or discarded already: see "+
						"outbox dlq show ID", len(selection.IDs)-n, counted(len(selection.IDs), "letter"))
				}
				if err == nil && n == 0 {
					err = f.none(a, c, "no pending dead letters are chosen")
				}
				return a.printCleared(c.Output, "discarded %s\n", cleared{Letters: n}, err)
			})
		},
	}
	f.selectionFlags.addTo(cmd.Flags())
	f.operatorFlags.addTo(cmd.Flags(), " (required)")
	return cmd
}

func (a *application) purgeLetters(mapping *pflag.FlagSet) *cobra.Command {
	var f operatorFlags
	var purge deadletter.Purge
	var age string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Delete letters that were replayed long ago",
		Long: `purge deletes letters that were replayed more than --older-than ago, and with --discarded those that
were discarded that long ago, in batches of 1000. Pending letters are never deleted. What was deleted is not
kept anywhere.

A relay does the same for replayed letters bit by bit (see outbox purge --help); this is for once, as an operator.`,
		Example: `  outbox dlq purge --dry-run
  outbox dlq purge --older-than 90d --discarded --reason 'quarterly'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if purge.OlderThan, err = parseAge(age); err != nil {
				return usagef("--older-than is %q, want an age such as 30d or 12h", age)
			}
			if err := checkFilters(cmd.Flags()); err != nil {
				return err
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			return a.openLetters(cmd.Context(), c, func(_ app.Database, d deadletter.Store) error {
				if dryRun {
					n, err := d.Purgeable(cmd.Context(), purge)
					return a.printCleared(c.Output, "%s would be deleted\n", cleared{n, true}, err)
				}
				n, err := purge.Run(cmd.Context(), d, f.operator())
				return a.printCleared(c.Output, "deleted %s\n", cleared{Letters: n}, err)
			})
		},
	}
	cmd.Flags().StringVar(&age, "older-than", "30d", "`age` since their replay, as 30d or 12h")
	cmd.Flags().BoolVar(&purge.Discarded, "discarded", false, "also letters that were discarded that long ago")
	cmd.Flags().StringVar(&purge.Tenant, "tenant", "", "`tenant` whose letters to delete (default: all)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, say how many")
	f.addTo(cmd.Flags(), "")
	cmd.Flags().SortFlags = false
	return cmd
}

// printCleared says how many letters were changed, also when err stopped it half way.
func (a *application) printCleared(form, text string, done cleared, err error) error {
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted after %s: the same command goes on from there", counted(done.Letters, "letter"))
	}
	if err != nil && done.Letters == 0 {
		return err
	}
	if form == "json" {
		return firstOf(printJSON(a.Out, done), err)
	}
	if _, printed := fmt.Fprintf(a.Out, text, counted(done.Letters, "letter")); printed != nil {
		return fmt.Errorf("print result: %w", printed)
	}
	return err
}
