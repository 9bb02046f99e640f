package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/pgmigrations"
)

func (a *application) migrateIndexes() *cobra.Command {
	return &cobra.Command{
		Use:   "indexes [adr|lean]",
		Short: "Show or switch the indexes of ADR-004 on outbox_events",
		Long: `indexes shows which form the indexes of ADR-004 on outbox_events have, or gives them another one:

    adr     five, as the ADR writes them: events are found by status, tenant, time, aggregate and
            topic, delivered ones too
    lean    one, of failed and dead events only: every event is written to fewer indexes, at its
            INSERT and when it is delivered

outbox migrate up makes those of the ADR. Switching works on a live table: each index is built beside
the old one, which writers and relays do not wait for, and takes its name in a moment. It can be
interrupted, and run again.`,
		Example: `  outbox migrate indexes
  outbox migrate indexes lean`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{string(pgmigrations.ADRIndexes), string(pgmigrations.LeanIndexes)},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.migrationSettings(nil)
			if err != nil {
				return err
			}
			database, err := able[app.IndexMigrations](c, app.Indexes)
			if err != nil {
				return err
			}
			if len(args) > 0 {
				progress := func(name string) { fmt.Fprintf(a.Err, "building %s\n", name) }
				changed, err := database.SwitchIndexes(cmd.Context(), pgmigrations.IndexSet(args[0]), progress)
				if err != nil {
					return err
				}
				if len(changed) == 0 {
					fmt.Fprintf(a.Err, "The indexes are %s already.\n", args[0])
				}
			}
			indexes, err := database.Indexes(cmd.Context())
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printPage(a.Out, indexes, "")
			}
			rows := make([][]string, 0, len(indexes))
			for _, x := range indexes {
				_, on, _ := strings.Cut(x.Definition, " ON ")
				rows = append(rows, []string{x.Name, string(x.Set), on})
			}
			return printTable(a.Out, []string{"INDEX", "SET", "ON"}, rows)
		},
	}
}
