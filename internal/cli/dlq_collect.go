package cli

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

func (a *application) collectLetters(mapping *pflag.FlagSet) *cobra.Command {
	var by operatorFlags
	var table string
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Write the letters of dead events that have none",
		Long: `collect writes a letter for every dead row that has none: one that was set dead with
plain SQL, that was dead before a relay served its table, as in an upgraded older outbox, or whose letter was
purged. The letters can then be listed, replayed and discarded like all others. It changes no row of the table,
and run again it finds what is new. The table is read once. outbox_deliveries, which has what sinks did not take
of tables with routes, is one of the tables.`,
		Example: `  outbox dlq collect
  outbox dlq collect --table outbox --layouts legacy.yaml --reason 'taken over from the old relay'
  outbox dlq list --error 'set dead by hand'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.settings(config.Database, mapping)
			if err != nil {
				return err
			}
			deliveries := outbox.DeliveriesOf("", "").Table
			if table != "" && table != deliveries {
				if _, err := c.Find(table); err != nil {
					return err
				}
			}
			return a.openLetters(cmd.Context(), c, func(_ app.Database, d deadletter.Store) error {
				names := []string{deliveries}
				for _, t := range c.Known() {
					names = append(names, t.Name())
				}
				var done cleared
				for _, name := range names {
					if table != "" && name != table {
						continue
					}
					n, err := deadletter.Collect(cmd.Context(), d, name, by.operator())
					if done.Letters += n; err != nil {
						return a.printCleared(c.Output, "wrote %s\n", done, err)
					}
				}
				return a.printCleared(c.Output, "wrote %s\n", done, nil)
			})
		},
	}
	cmd.Flags().StringVar(&table, "table", "", "outbox `table` whose dead rows to look at (default: all)")
	by.addTo(cmd.Flags(), "")
	return cmd
}
