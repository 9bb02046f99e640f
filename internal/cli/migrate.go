package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
)

func (a *application) migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Make and change the tables",
		Long: `migrate makes the tables in PostgreSQL, or in an SQLite file (--database sqlite:outbox.db), in
sets, so that an application takes only what it uses; the first two, and what the database has, where none is named:

    core      outbox_events, job_dlq (dead letters), apps (tenants), and what relays and operators
              keep: outbox_lanes, outbox_relays, outbox_maintenance, outbox_archive, outbox_audit;
              outbox_tokens and outbox_tickets, of who may use the API
    events    event_outbox, an event bus with row-level security; stands on core
    crawl     crawl_runs, crawl_events, crawl_outbox and the view run_outbox, for outbox serve; stands on core
    log       outbox_log, whose rows are only inserted, in PostgreSQL; stands on core

The files are plain numbered SQL: outbox migrate print shows them, and outbox migrate export writes them for
Encore, golang-migrate, goose or Atlas to run. Connect to PostgreSQL itself: a transaction pooler loses the
locks.

An SQLite file that is not there yet is made by up. It has the same sets and tables; what it lacks is
row-level security, and with it the commands roles and indexes.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			// Help with exit code 0 would let a deployment script believe that it has migrated.
			return usagef("say what to do: up, down, status, print, export, roles or indexes")
		},
	}
	cmd.AddCommand(a.migrateUp(), a.migrateDown(), a.migrateStatus(), a.migratePrint(), a.migrateExport(),
		a.migrateRoles(), a.migrateIndexes())
	return cmd
}

// change is what up and down did to a set.
type change struct {
	Set     string   `json:"set"`
	Version uint     `json:"version"` // after it
	Changed []string `json:"changed"` // files applied, or taken away
}

func (a *application) migrateUp() *cobra.Command {
	var sets []string
	var plan, takeOver bool
	var zone string
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Bring the tables to the version that this program needs",
		Long: `up applies what is missing, core first. It may run any number of times, and from many processes
at once: they take turns. Each file is one transaction; what a killed process left half done is put
right by the next up.

Tables of the seed documents that an application has already are adopted, while it goes on writing:
columns are added and filled in batches, constraints validated and indexes built concurrently. What
will be done is printed first; --plan prints it and changes nothing. What cannot be adopted is
refused before anything changes. down gives such a table back as it was, with its rows.

Times in columns without a zone (TIMESTAMP) mean what the application's sessions mean by them. up
compares their newest values with now, in UTC and in the zones of the database and its roles, says
which fits, and records it: every relay and command reads and writes them so, in whatever session.
Where none or several fit it refuses, and --zone says it. Given later, --zone corrects what was
recorded; start the relays and gateways again then.

Where another migration tool has applied the files (outbox migrate export), up has nothing to do; if a
step is missing it says so and leaves it to that tool. --take-over ends that: up records what is there
as its own, and goes on. That tool must not run the files any more then.`,
		Example: `  outbox migrate up --plan
  outbox migrate up
  outbox migrate up --set core,crawl
  outbox migrate up --zone America/New_York`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.migrationSettings(sets)
			if err != nil {
				return err
			}
			if takeOver {
				if err := a.takeOver(cmd.Context(), c, plan); err != nil {
					return err
				}
			}
			m := app.MigrationsOf(c.Database)
			if zone != "" {
				zoned, err := able[app.ZoneMigrations](c, app.Zones)
				if err != nil {
					return err
				}
				m = zoned.InZone(zone)
			}
			adoption, err := m.Plan(cmd.Context(), sets...)
			if err != nil {
				return err
			}
			if plan {
				return a.printPlan(adoption, c.Output)
			}
			showPlan(a.Err, adoption)
			return a.migrating(cmd.Context(), c, sets,
				func(ctx context.Context, _ app.Migrations) error { return m.Up(ctx, sets...) })
		},
	}
	cmd.Flags().StringVar(&zone, "zone", "", "the time `zone` in which the application writes times without one")
	cmd.Flags().BoolVar(&plan, "plan", false, "change nothing, print what would be done to tables that exist")
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "record what another tool has applied as applied by up")
	cmd.Flags().StringSliceVar(&sets, "set", nil,
		"migration `sets`, of core, events, crawl and log (default: core and events, and what the database has)")
	return cmd
}

func (a *application) migrateDown() *cobra.Command {
	var set string
	var steps int
	var all bool
	cmd := &cobra.Command{
		Use:   "down --set SET",
		Short: "Take the newest migration of one set away, with its data",
		Long: `down takes migrations away, the newest first: one, unless --steps or --all says more. The tables
that it drops take their rows with them, undelivered events too, so the set must be named. A set that
others stand on goes last: core after events, crawl and log.

A table that up has adopted is not dropped but given back as it was, with its rows; so is one whose
adoption was interrupted. While outbox_archive has rows of such a table, or of a mapped one, core does
not go below it: the error says how to put them back.`,
		Example: `  outbox migrate down --set crawl
  outbox migrate down --set events --all`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if set == "" {
				return usagef("--set is required: name the one set whose newest migration goes, of %s",
					strings.Join(slices.Concat(app.Sets, app.OptionalSets), ", "))
			}
			if steps < 1 {
				return usagef("--steps is %d, must be 1 or more", steps)
			}
			if all && cmd.Flags().Changed("steps") {
				return usagef("--steps and --all contradict each other")
			}
			if all {
				steps = app.AllSteps
			}
			c, err := a.migrationSettings([]string{set})
			if err != nil {
				return err
			}
			return a.migrating(cmd.Context(), c, []string{set},
				func(ctx context.Context, m app.Migrations) error { return m.Down(ctx, steps, set) })
		},
	}
	cmd.Flags().StringVar(&set, "set", "", "migration `set`: core, events, crawl or log (required)")
	cmd.Flags().IntVar(&steps, "steps", 1, "how `many` migrations to take away")
	cmd.Flags().BoolVar(&all, "all", false, "take the whole set away")
	return cmd
}

func (a *application) migrateStatus() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which migrations the database has and lacks",
		Long: `status compares each set's version in the database with the one this program needs. It changes
nothing, and exits 0 also where something is missing, be it the SQLite file itself. What another tool
has applied (outbox migrate export) is found by the tables, columns and indexes that are there.`,
		Example: `  outbox migrate status
  outbox migrate status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.migrationSettings(nil)
			if err != nil {
				return err
			}
			all, err := app.MigrationsOf(c.Database).Status(cmd.Context())
			if err != nil {
				return err
			}
			if c.Output == "json" {
				return printPage(a.Out, all, "")
			}
			var rows [][]string
			for _, s := range all {
				rows = append(rows, []string{s.Set, fmt.Sprint(s.Current), fmt.Sprint(s.Latest), state(s),
					strings.Join(s.Pending, " ")})
			}
			if file, ok := app.FileOf(c.Database); ok {
				if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
					fmt.Fprintf(a.Err, "the file %s does not exist: outbox migrate up makes it\n", file)
				}
			}
			return printTable(a.Out, []string{"SET", "HAS", "NEEDS", "STATE", "MISSING"}, rows)
		},
	}
}

func state(s migration.SetStatus) string {
	switch {
	case s.By != "" && len(s.Pending) > 0:
		return "old, applied by " + s.By
	case s.By != "":
		return "up to date, applied by " + s.By
	case s.Dirty:
		return "interrupted: run outbox migrate up"
	case s.Current > s.Latest:
		return "newer than this program"
	case s.Current == 0:
		return "absent"
	case len(s.Pending) > 0:
		return "old: run outbox migrate up"
	}
	return "up to date"
}

func (a *application) migratePrint() *cobra.Command {
	var sets []string
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print the SQL that up would run on an empty database",
		Long: `print writes the migration files to stdout in the order in which up applies them, to be read, or run by
your own tools. It needs no database. Where --database names an SQLite file they are SQLite's, else
PostgreSQL's.`,
		Example: `  outbox migrate print --set core | less
  outbox migrate print --database sqlite:outbox.db`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := checkSets(sets); err != nil {
				return err
			}
			c, err := a.settings(0)
			if err != nil {
				return err
			}
			return app.MigrationsOf(c.Database).Print(a.Out, sets...)
		},
	}
	cmd.Flags().StringSliceVar(&sets, "set", nil,
		"migration `sets`, of core, events, crawl and log (default: core and events)")
	return cmd
}

// migrationSettings checks the sets before anything asks the database.
func (a *application) migrationSettings(sets []string) (config.Config, error) {
	if err := checkSets(sets); err != nil {
		return config.Config{}, err
	}
	return a.settings(config.Database)
}

func checkSets(sets []string) error {
	for _, s := range sets {
		if !slices.Contains(app.Sets, s) && !slices.Contains(app.OptionalSets, s) {
			return usagef("--set: there is no migration set %q: the sets are %s", s,
				strings.Join(slices.Concat(app.Sets, app.OptionalSets), ", "))
		}
	}
	return nil
}

// able returns the migrations of a database as what only some can do. The error says why this one cannot.
func able[T any](c config.Config, what app.Ability) (T, error) {
	m := app.MigrationsOf(c.Database)
	can, ok := m.(T)
	if !ok {
		return can, usagef("%s", m.Lacks(what))
	}
	return can, nil
}

// migrating runs fn for the named sets, or all, and prints what it changed, also when it failed half way.
func (a *application) migrating(
	ctx context.Context, c config.Config, named []string, fn func(context.Context, app.Migrations) error,
) error {
	m := app.MigrationsOf(c.Database)
	before, err := m.Status(ctx, slices.Concat(app.Sets, named)...) // up may find tables of a set that nobody has named
	if err != nil {
		return err
	}
	missed := map[string][]string{}
	for _, s := range before {
		missed[s.Set] = s.Pending
	}
	failure := fn(ctx, m)
	after, err := m.Status(context.WithoutCancel(ctx), named...)
	if err != nil {
		return firstOf(failure, err)
	}
	var changes []change
	var changed bool
	for _, s := range after {
		c := change{Set: s.Set, Version: s.Current, Changed: difference(missed[s.Set], s.Pending)}
		changes, changed = append(changes, c), changed || len(c.Changed) > 0
	}
	if failure != nil && !changed {
		return failure
	}
	if c.Output == "json" {
		return firstOf(failure, printJSON(a.Out, changes))
	}
	return firstOf(failure, printChanges(a.Out, changes))
}

func printChanges(w io.Writer, changes []change) error {
	var rows [][]string
	for _, c := range changes {
		changed := strings.Join(c.Changed, " ")
		if changed == "" {
			changed = "(nothing)"
		}
		rows = append(rows, []string{c.Set, fmt.Sprint(c.Version), changed})
	}
	return printTable(w, []string{"SET", "NOW AT", "CHANGED"}, rows)
}

// difference returns what is in one of the lists only.
func difference(a, b []string) []string {
	only := []string{}
	for _, pair := range [][2][]string{{a, b}, {b, a}} {
		for _, s := range pair[0] {
			if !slices.Contains(pair[1], s) {
				only = append(only, s)
			}
		}
	}
	return only
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
