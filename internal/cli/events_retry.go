package cli

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/operate"
)

// retried is what `outbox events retry` prints with -o json.
type retried struct {
	Table  string `json:"table"`
	To     string `json:"to,omitempty"`
	Events int    `json:"events"`
}

func (a *application) retryEvents(table *looked, tenant *string, mapping *pflag.FlagSet) *cobra.Command {
	var by operatorFlags
	var f eventFlags
	cmd := &cobra.Command{
		Use:   "retry (ID... | --key KEY | --topic PATTERN | --tenant TENANT | --all)",
		Short: "Try events now that wait for their next attempt",
		Long: `retry makes events due that failed and wait, and with them what waits behind them in their keys: for
when the cause of the failure is gone, and the next attempt would come minutes later. The relay takes them at
its next poll. What is chosen by several flags must match all of them. It is recorded (outbox dlq audit). A dead
event is not waiting: outbox dlq replay puts that back.`,
		Example: `  outbox events --status FAILED
  outbox events retry --topic 'invoice.*' --reason 'the channels are allowed now'
  outbox events retry --to audit --all --reason 'audit answers again'
  outbox events retry 01890a5d-ac96-774b-bcce-b302099a8057`,
		RunE: func(cmd *cobra.Command, args []string) error {
			waiting, err := f.selection(cmd.Flags(), args, *tenant)
			if err != nil {
				return err
			}
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			n, operator := 0, by.operator()
			err = browse(cmd.Context(), c, *table, func(ctx context.Context, _ app.Database, b *operate.Browser) (err error) {
				n, err = b.RetryNow(ctx, waiting, operator.Actor, operator.Reason)
				return err
			})
			if err != nil {
				return err
			}
			if n == 0 && len(waiting.IDs) == 0 {
				fmt.Fprintf(a.Err, "no event of %s waits for its next attempt%s\n", table, lookedFor(cmd.Flags()))
			}
			if c.Output == "json" {
				return printJSON(a.Out, retried{Table: table.table, To: table.sink, Events: n})
			}
			fmt.Fprintf(a.Out, "%s of %s will be tried now\n", counted(n, "event"), table)
			if n < len(waiting.IDs) {
				return fmt.Errorf("%d of %s do not wait for an attempt: see outbox events show ID", len(waiting.IDs)-n,
					counted(len(waiting.IDs), "event"))
			}
			return nil
		},
	}
	f.addTo(cmd.Flags(), "try")
	by.addTo(cmd.Flags(), "")
	return cmd
}

// eventFlags choose the undelivered events that something is done with.
type eventFlags struct{ operate.Selection }

func (f *eventFlags) addTo(flags *pflag.FlagSet, verb string) {
	flags.StringVar(&f.Key, "key", "", "`key` whose events to "+verb+": the aggregate's or the run's id")
	flags.StringVar(&f.Topic, "topic", "", "`topic` whose events to "+verb+", or a pattern in which * stands for any text")
	flags.BoolVar(&f.All, "all", false, verb+" every one")
}

// selection refuses a command line that names no events: it could mean all of them.
func (f *eventFlags) selection(flags *pflag.FlagSet, args []string, tenant string) (operate.Selection, error) {
	if err := checkFilters(flags); err != nil {
		return f.Selection, err
	}
	s := f.Selection
	s.Tenant = tenant
	for _, arg := range args {
		id, err := uuid.Parse(arg)
		if err != nil {
			return s, usagef("%q is no event's id, which is a UUID as outbox events prints it", arg)
		}
		s.IDs = append(s.IDs, id)
	}
	chosen := s
	chosen.All = false
	switch {
	case s.None():
		return s, usagef("say which events: ids, --key, --topic, --tenant, or --all")
	case s.All && !chosen.None():
		return s, usagef("--all contradicts what else chooses events: use one of them")
	}
	return s, nil
}
