package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/pgmigrations"
)

func (a *application) migrateLegacy() *cobra.Command {
	var options pgmigrations.LegacyOptions
	cmd := &cobra.Command{
		Use:   "legacy",
		Short: "Upgrade an outbox table of before ADR-004 in place",
		Long: `legacy gives a table with the columns id, tenant_id, aggregate_id, type, schema_id, schema_ver, payload,
status (NEW, SENT, ERR), retry_cnt and created_at the columns of outbox_events, so that a relay can serve it. No
row is lost; status ERR becomes DEAD.

It adds columns, fills them in batches with a commit each, and ends with constraints and indexes under an
exclusive lock, which read the table a few times, and rewrite it if a column's type changes (--dry-run tells).
Stop whoever writes the old columns first, and try --dry-run. Killed at any point it can be run again and goes
on where it stopped; on an upgraded table it does nothing.`,
		Example: `  outbox migrate legacy --dry-run
  outbox migrate legacy --table billing.outbox --batch 20000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if options.BatchSize < 1 {
				return usagef("--batch is %d, must be 1 or more", options.BatchSize)
			}
			c, err := a.settings(config.Database)
			if err != nil {
				return err
			}
			database, err := able[app.LegacyMigrations](c, app.Legacy)
			if err != nil {
				return err
			}
			p := newProgress(a.Err)
			options.Progress = func(done, total int64) { p.show("%s: %d of %d rows", options.Table, done, total) }
			report, err := database.Legacy(cmd.Context(), options)
			p.done()
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printJSON(a.Out, report)
			}
			a.printLegacy(report, options.DryRun)
			return nil
		},
	}
	cmd.Flags().StringVar(&options.Table, "table", "outbox", "`table` to upgrade, with its schema if need be")
	cmd.Flags().IntVar(&options.BatchSize, "batch", 5000, "`rows` a commit")
	cmd.Flags().BoolVar(&options.DryRun, "dry-run", false, "change nothing, print what would be done")
	return cmd
}

func (a *application) printLegacy(r pgmigrations.LegacyReport, dryRun bool) {
	switch {
	case r.AlreadyUpgraded:
		fmt.Fprintf(a.Out, "%s is upgraded already, nothing to do\n", r.Table)
	case dryRun:
		fmt.Fprintf(a.Out, "%s would be upgraded: %d rows, %d of them with status ERR. Nothing was changed. Steps:\n",
			r.Table, r.Rows, r.Errors)
		for i, step := range r.Steps {
			fmt.Fprintf(a.Out, "%3d. %s\n", i+1, step)
		}
	default:
		fmt.Fprintf(a.Out, "%s is upgraded: %d rows filled, %d of them had status ERR, which is DEAD now\n", r.Table,
			r.Upgraded, r.Errors)
	}
	if !dryRun && r.Errors > 0 {
		fmt.Fprintf(a.Out, "Its dead rows have no letters yet: outbox dlq collect --table %s --layouts FILE writes them\n",
			r.Table)
	}
	if !dryRun {
		fmt.Fprintf(a.Out,
			"To deliver its events, put this into a file for outbox relay --layouts:\n- {table: %s, like: outbox_events}\n",
			r.Table)
	}
}
