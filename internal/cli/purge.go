package cli

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/retention"
)

// purge is what the command line asks for.
type purge struct {
	tables    []string
	olderThan time.Duration
	dryRun    bool
}

func (a *application) purge() *cobra.Command {
	var p purge
	var age string
	settings := config.Mapping()
	settings.AddFlagSet(config.RetentionFlags())
	settings.Lookup("retention").Hidden = true // here --older-than says it; a relay's settings still count
	cmd := &cobra.Command{
		Use:   "purge",
		Short: "Archive or delete what was delivered long ago",
		Long: `purge removes delivered events, and replayed dead letters (job_dlq), that are older than --older-than,
as a relay does bit by bit. Undelivered and dead events stay, whatever their age, and so do letters that were
not replayed.

Events go to --archive: table is outbox_archive, a directory gets gzip files with a JSON object a line, none
deletes. A file is on disk before its rows are deleted; after a crash in between they are in the file and in the
table, and the next purge archives them once more. Rows of event_outbox and job_dlq are deleted, as by the
functions purge_event_outbox and purge_job_dlq.

It reads each table once, works in batches with a pause as long as the batch took between them, and can be
interrupted and repeated. One process at a time works on a table: it waits 15 seconds for a relay that does. The
database role must be a member of outbox_relay. What was removed is recorded in outbox_audit.

--dry-run reads as much and counts exactly, and changes nothing.`,
		Example: `  outbox purge --dry-run
  outbox purge --table outbox_events,crawl_outbox --older-than 72h --archive /var/lib/outbox/archive
  outbox purge --table job_dlq --older-than 90d -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("table") && len(p.tables) == 0 {
				return usagef("--table is empty: give it a value, or leave it out")
			}
			if cmd.Flags().Changed("older-than") {
				var err error
				if p.olderThan, err = parseAge(age); err != nil || p.olderThan <= 0 {
					return usagef("--older-than is %q, want an age above zero such as 30d or 12h", age)
				}
			}
			c, err := a.settings(config.Database|config.Retaining, settings)
			if err != nil {
				return err
			}
			chosen, err := p.chosen(c)
			if err != nil {
				return err
			}
			line := newProgress(a.Err)
			reports, err := app.Purge(cmd.Context(), c, chosen, p.dryRun,
				func(r retention.Report) { line.show("%s: %d rows", r.Table, r.Rows) })
			line.done()
			if errors.Is(err, retention.ErrBusy) {
				err = fmt.Errorf("%w: a relay, probably, in a long run: try again later, or see table outbox_maintenance", err)
			}
			if len(reports) == 0 && len(chosen) > 0 && err == nil {
				missing := &outbox.SchemaError{Table: chosen[len(chosen)-1].Layout.Table, Remedy: "run: outbox migrate up"}
				err = fmt.Errorf("there is no table to purge: %w", missing)
			}
			if len(reports) == 0 && err != nil {
				return err
			}
			return firstOf(a.printPurge(c.Output, reports), err)
		},
	}
	cmd.Flags().StringSliceVar(&p.tables, "table", nil, "`tables` to purge, job_dlq among them (default: all that exist)")
	cmd.Flags().StringVar(&age, "older-than", "",
		"`age` since delivery or replay, as 30d or 12h (default: what --retention is for the relay, 168h, and "+
			"720h for job_dlq)")
	cmd.Flags().BoolVar(&p.dryRun, "dry-run", false, "count what would go, change nothing")
	cmd.Flags().AddFlagSet(settings)
	cmd.Flags().SortFlags = false
	return cmd
}

// chosen are the tables to purge, each with its age and archive.
func (p purge) chosen(c config.Config) (purging []app.Purging, err error) {
	names := p.tables
	if len(names) == 0 {
		for _, t := range c.Known() {
			if t.Layout.KeepsState() { // its relays truncate it
				names = append(names, t.Name())
			}
		}
		names = append(names, config.Letters)
	}
	for _, name := range names {
		t := app.Purging{Layout: outbox.Layout{Table: config.Letters}, Required: len(p.tables) > 0}
		if name != config.Letters {
			known, err := c.Find(name)
			if err != nil {
				return nil, err
			}
			t.Layout = known.Layout
		}
		if t.OlderThan, t.Archive = c.RetentionOf(name); p.olderThan > 0 {
			t.OlderThan = p.olderThan
		}
		switch {
		case t.OlderThan > 0:
			purging = append(purging, t)
		case t.Required:
			return nil, usagef("retention of %s is off in the settings: say how old with --older-than", name)
		}
	}
	return purging, nil
}

func (a *application) printPurge(output string, reports []retention.Report) error {
	if output == "json" {
		return printPage(a.Out, reports, "")
	}
	var rows [][]string
	for _, r := range reports {
		action := r.Action
		if r.DryRun {
			action = "would be " + action
		}
		rows = append(rows, []string{r.Table, action, fmt.Sprint(r.Rows), strings.Join(r.Files, " ")})
	}
	return printTable(a.Out, []string{"TABLE", "ACTION", "ROWS", "FILES"}, rows)
}
