package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// debtFlags say of which sink and table a debt is to end, and who does it.
type debtFlags struct {
	operatorFlags
	table string
	yes   bool
}

func (f *debtFlags) addTo(cmd *cobra.Command, mapping *pflag.FlagSet) {
	cmd.Flags().StringVar(&f.table, "table", "",
		"`table` of the events (default: every one of which the sink owes something)")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do it, instead of saying how many events there are")
	f.operatorFlags.addTo(cmd.Flags(), " (required with --yes)")
	cmd.Flags().AddFlagSet(mapping)
	cmd.Flags().SortFlags = false
}

// debtEnded is what outbox sinks forget and move print with -o json, a table each.
type debtEnded struct {
	Sink   string `json:"sink"`
	Table  string `json:"table"`
	To     string `json:"to,omitempty"`
	Events int    `json:"events"`
	Had    int    `json:"had,omitempty"` // of those that the other sink had already
	DryRun bool   `json:"dryRun,omitempty"`
}

// end looks for what a sink owes, and calls end for each table, which does nothing in a dry run.
func (f *debtFlags) end(
	ctx context.Context, c config.Config, name string,
	end func(context.Context, app.Database, *debtEnded, operate.Skip) error,
) (ended []debtEnded, err error) {
	if f.yes && strings.TrimSpace(f.Reason) == "" {
		return nil, usagef("--reason is required: say why what %s owes need not wait for it", name)
	}
	if f.table != "" {
		t, err := c.Find(f.table)
		if err != nil {
			return nil, err
		}
		f.table = t.Layout.Table
	}
	run, err := outbox.NewID()
	if err != nil {
		return nil, err
	}
	db, err := app.OpenDatabase(ctx, c.Database)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	debts, err := db.Debts(ctx)
	if err != nil {
		return nil, err
	}
	debts = slices.DeleteFunc(debts, func(d operate.Debt) bool {
		return d.Sink != name || d.Owed == 0 || f.table != "" && !sameTable(d.Table, f.table)
	})
	if len(debts) == 0 {
		return nil, fmt.Errorf("sink %s owes nothing: see outbox sinks", oneLine(name))
	}
	operator := f.operator()
	by := operate.Skip{Actor: operator.Actor, Reason: operator.Reason, Run: run}
	for _, d := range debts {
		one := debtEnded{Sink: name, Table: d.Table, Events: d.Owed, DryRun: !f.yes}
		if err := end(ctx, db, &one, by); err != nil {
			return ended, err
		}
		ended = append(ended, one)
	}
	return ended, nil
}

func (a *application) forgetDebts() *cobra.Command {
	var f debtFlags
	mapping := config.Mapping()
	cmd := &cobra.Command{
		Use:   "forget NAME [--yes --reason TEXT]",
		Short: "End what a sink owes: it becomes dead letters",
		Long: `forget ends what a sink owes that is gone for good: each event becomes a dead letter of that sink, and
nobody waits for it any more. Nothing is lost: outbox dlq replay puts a letter back, for a sink of that name, and
outbox dlq discard ends it.

Without --yes it only says how many events there are. With it, it works in transactions of 500, the oldest
first, and is recorded (outbox dlq audit). New events that the routes lead to that sink are owed again.`,
		Example: `  outbox sinks
  outbox sinks forget audit
  outbox sinks forget audit --yes --reason 'the audit bus was shut down, INC-4711'
  outbox dlq list --error 'skipped by'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			ended, err := f.end(cmd.Context(), c, args[0],
				func(ctx context.Context, db app.Database, one *debtEnded, by operate.Skip) error {
					if one.DryRun {
						return nil
					}
					b, err := db.Browser(ctx, outbox.DeliveriesOf(one.Table, one.Sink))
					if err == nil {
						one.Events, err = skipAll(ctx, b, operate.Selection{All: true}, by, one.Events)
					}
					return err
				})
			return firstOf(a.printEnded(c.Output, ended, "would become dead letters of "+oneLine(args[0]),
				"became dead letters: see outbox dlq list --error 'skipped by'"), err)
		},
	}
	f.addTo(cmd, mapping)
	return cmd
}

func (a *application) moveDebts() *cobra.Command {
	var f debtFlags
	var to string
	mapping := config.Mapping()
	cmd := &cobra.Command{
		Use:   "move NAME --to OTHER [--yes --reason TEXT]",
		Short: "Give what a sink owes to another one",
		Long: `move gives what a sink owes that is gone, or has another name now, to another one. OTHER's relay delivers
it, to the same destinations, in the order of each key; what OTHER has taken of newer events comes before it. What
OTHER has of an event and destination already it does not get again.

A relay that serves NAME must be stopped, or have no sink of that name any more: it could be delivering one of
the events. Without --yes move only says how many there are. With it, it works in transactions of 500, the
oldest first, and is recorded (outbox dlq audit).`,
		Example: `  outbox sinks move audit --to archive --config outbox.yaml
  outbox sinks move audit --to archive --yes --reason 'renamed'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch to {
			case "":
				return usagef("--to is required: which sink is to have what %s owes?", oneLine(args[0]))
			case args[0]:
				return usagef("--to %s: that is the sink that owes it", oneLine(to))
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			ended, err := f.end(cmd.Context(), c, args[0],
				func(ctx context.Context, db app.Database, one *debtEnded, by operate.Skip) error {
					one.To = to
					if err := movable(ctx, c, db, *one); err != nil || one.DryRun {
						return err
					}
					move := operate.DebtMove{Table: one.Table, Sink: one.Sink, To: to, Skip: by}
					total := one.Events
					for one.Events = 0; one.Events < total && ctx.Err() == nil; {
						done, err := db.MoveDebt(context.WithoutCancel(ctx), move, min(skipEvents, total-one.Events))
						if err != nil || done == (operate.DebtMoved{}) {
							return err
						}
						one.Events, one.Had = one.Events+done.Moved+done.Had, one.Had+done.Had
					}
					return ctx.Err()
				})
			return firstOf(a.printEnded(c.Output, ended, "would go to "+oneLine(to), "are "+oneLine(to)+"'s now"), err)
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "`sink` that is to have it (required)")
	f.addTo(cmd, mapping)
	return cmd
}

// movable refuses to give events to a sink that nobody knows, and to take them from one that a relay serves.
func movable(ctx context.Context, c config.Config, db app.Database, one debtEnded) error {
	if err := knownSink(ctx, c, db, looked{one.Table, one.To}); err != nil {
		return err
	}
	debtors, err := db.Debtors(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(debtors, outbox.Debtor{Table: one.Table, Sink: one.Sink, Served: true}) {
		return fmt.Errorf("a relay serves what %s owes of %s, and may be delivering it: stop it, or take the sink out of "+
			"its settings (a killed relay's lease ends after --lease-ttl)", one.Sink, one.Table)
	}
	return nil
}

func (a *application) printEnded(form string, ended []debtEnded, would, did string) error {
	if form == "json" {
		return printPage(a.Out, ended, "")
	}
	for _, one := range ended {
		what, had := did, ""
		if one.DryRun {
			what = would
		}
		if one.Had > 0 {
			had = fmt.Sprintf(", of which it had %d already", one.Had)
		}
		_, err := fmt.Fprintf(a.Out, "%s of %s that %s owes %s%s\n",
			counted(one.Events, "event"), one.Table, one.Sink, what, had)
		if err != nil {
			return err
		}
	}
	if len(ended) > 0 && ended[0].DryRun {
		fmt.Fprintln(a.Err, "nothing is changed: add --yes --reason TEXT")
	}
	return nil
}
