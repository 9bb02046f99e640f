package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

func (a *application) migrateIndexes() *cobra.Command {
	var forms []string
	for _, set := range pgmigrations.IndexSets {
		forms = append(forms, string(set))
	}
	return &cobra.Command{
		Use:   "indexes [adr|lean] [tenants|one-tenant]",
		Short: "Show or switch the indexes of outbox_events",
		Long: `indexes shows which form the indexes of outbox_events have, or gives them another one. Those of ADR-004:

    adr          five, as the ADR writes them: events are found by status, tenant, time, aggregate
                 and topic, delivered ones too
    lean         one, of failed and dead events only: every event is written to fewer indexes, at
                 its INSERT and when it is delivered

And the one by which tenants share a claim, so that a flood of one holds back no other:

    tenants      it is there
    one-tenant   it is not. A relay looks for it when it starts: restart relays afterwards

outbox migrate up makes those of the ADR and the one by tenant. Switching works on a live table: each
index is built beside the old one, which writers and relays do not wait for, and takes its name in a
moment. It can be interrupted, and run again.`,
		Example: `  outbox migrate indexes
  outbox migrate indexes lean
  outbox migrate indexes lean one-tenant`,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(2), cobra.OnlyValidArgs),
		ValidArgs: forms,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && pgmigrations.IndexSet(args[0]).Full() == pgmigrations.IndexSet(args[1]).Full() {
				return usagef("%s and %s contradict each other: they are forms of the same indexes", args[0], args[1])
			}
			c, err := a.migrationSettings(nil)
			if err != nil {
				return err
			}
			database, err := able[app.IndexMigrations](c, app.Indexes)
			if err != nil {
				return err
			}
			for _, form := range args {
				progress := func(name string) { fmt.Fprintf(a.Err, "building %s\n", name) }
				changed, err := database.SwitchIndexes(cmd.Context(), pgmigrations.IndexSet(form), progress)
				if err != nil {
					return err
				}
				if len(changed) == 0 {
					fmt.Fprintf(a.Err, "The indexes are %s already.\n", form)
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
