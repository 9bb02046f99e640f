package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

const skipEvents = 500 // a transaction of outbox events skip, and of outbox sinks forget and move

// skipped is what `outbox events skip` prints with -o json.
type skipped struct {
	Table  string `json:"table"`
	To     string `json:"to,omitempty"`
	Events int    `json:"events"`
	DryRun bool   `json:"dryRun,omitempty"`
}

func (a *application) skipEvents(table *looked, tenant *string, mapping *pflag.FlagSet) *cobra.Command {
	var by operatorFlags
	var f eventFlags
	var yes bool
	cmd := &cobra.Command{
		Use:   "skip (ID... | --key KEY | --topic PATTERN | --tenant TENANT | --all) [--yes --reason TEXT]",
		Short: "Make events dead letters instead of delivering them",
		Long: `skip takes undelivered events out of delivery: each becomes a dead letter whose
error says who skipped it and why, and its key goes on with the next event. Nothing is lost: outbox dlq replay
puts an event back, at its place. What is chosen by several flags must match all of them.

Without --yes it only says how many events there are. With it, it works in transactions of 500, the
oldest first, and is recorded (outbox dlq audit).

A relay may be publishing an event at this moment; it takes no lock that would show it. If the
relay's record comes first, the event is delivered and not skipped: you are told. If the skip comes first, the
event is a dead letter and may have arrived as well; a replay would deliver it twice, under one event id. It
is never neither. An event that waits for its next try (NEXT TRY in outbox events) is in no relay's hands.`,
		Example: `  outbox events --status FAILED
  outbox events skip 01890a5d-ac96-774b-bcce-b302099a8057
  outbox events skip 01890a5d-ac96-774b-bcce-b302099a8057 --yes --reason 'order was cancelled by hand'
  outbox events skip --to audit --topic invoice.test --yes --reason 'audit need not know'
  outbox events skip --topic invoice.test --yes --reason 'test data'
  outbox dlq list --error 'skipped by'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := f.selection(cmd.Flags(), args, *tenant)
			if err != nil {
				return err
			}
			if yes && strings.TrimSpace(by.Reason) == "" {
				return usagef("--reason is required: say why these need not arrive")
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			run, err := outbox.NewID()
			if err != nil {
				return err
			}
			done, operator := skipped{Table: table.table, To: table.sink, DryRun: !yes}, by.operator()
			skip := operate.Skip{Actor: operator.Actor, Reason: operator.Reason, Run: run}
			err = browse(cmd.Context(), c, *table,
				func(ctx context.Context, _ app.Database, b *operate.Browser) (err error) {
					if done.Events, err = b.Undelivered(ctx, chosen); err != nil || !yes {
						return err
					}
					done.Events, err = skipAll(ctx, b, chosen, skip, done.Events)
					return err
				})
			if err != nil && done.Events > 0 {
				err = fmt.Errorf("%w; %s skipped before, the same command goes on from there", err,
					counted(done.Events, "event"))
			}
			if err == nil && done.Events == 0 {
				fmt.Fprintf(a.Err, "no undelivered events of %s are chosen%s\n", table, lookedFor(cmd.Flags()))
			}
			return firstOf(a.printSkipped(c.Output, done, len(chosen.IDs), err), err)
		},
	}
	f.addTo(cmd.Flags(), "skip")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it, instead of saying how many events there are")
	by.addTo(cmd.Flags(), " (required with --yes)")
	return cmd
}

// skipAll skips as many events as there were when it began: producers go on. Pages are not broken off by ctx.
func skipAll(
	ctx context.Context, b *operate.Browser, s operate.Selection, by operate.Skip, total int,
) (done int, err error) {
	for done < total {
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		n, err := b.SkipPage(context.WithoutCancel(ctx), s, by, min(skipEvents, total-done))
		if err != nil {
			return done, err
		}
		if done += n; n > 0 {
			continue
		}
		// None of those that were chosen was left when they were locked. A relay has delivered them; there may be
		// others.
		if left, err := b.Undelivered(ctx, s); err != nil || left == 0 {
			return done, err
		}
	}
	return done, nil
}

// printSkipped says what was done, or would be. Ids that name nothing undelivered are a failure.
func (a *application) printSkipped(form string, done skipped, named int, failed error) error {
	if failed != nil && done.Events == 0 {
		return nil
	}
	switch {
	case form == "json":
		if err := printJSON(a.Out, done); err != nil {
			return err
		}
	case done.Events == 0: // it was said
	case done.DryRun:
		fmt.Fprintf(a.Out, "%s of %s would become dead letters instead of being delivered: add --yes --reason TEXT\n",
			counted(done.Events, "undelivered event"), looked{done.Table, done.To})
	default:
		fmt.Fprintf(a.Out, "skipped %s of %s: see outbox dlq list --error 'skipped by'\n",
			counted(done.Events, "event"), looked{done.Table, done.To})
	}
	if failed == nil && done.Events < named {
		return fmt.Errorf("%d of %s not undelivered: see outbox events show ID",
			named-done.Events, counted(named, "event"))
	}
	return nil
}
