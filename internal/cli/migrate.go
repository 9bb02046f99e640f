package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
)

func (a *application) migrate() *cobra.Command {
	return group("migrate", a.migrateUp(), a.migrateDown(), a.migrateStatus(), a.migratePrint(),
		a.migrateExport(), a.migrateRoles(),
		a.migrateIndexes())
}

var allSets = slices.Concat(app.Sets, app.OptionalSets)

func setsFlag(flags *pflag.FlagSet, sets *[]string, standard string) {
	flags.StringSliceVar(sets, "set", nil, "`names` of migration sets (default: "+standard+")")
}

// migrationSettings checks the sets before anything asks the database.
func (a *application) migrationSettings(needs config.Need, sets ...string) (config.Config, error) {
	for _, s := range sets {
		if !slices.Contains(allSets, s) {
			return config.Config{}, usagef("--set: there is no migration set %q: the sets are %s", s,
				strings.Join(allSets, ", "))
		}
	}
	return a.settings(needs)
}

// able returns the migrations of a database as what only some can do. The error says why this one
// cannot.
func able[T any](c config.Config, what app.Ability) (T, error) {
	m := app.MigrationsOf(c.Database)
	can, ok := m.(T)
	if !ok {
		return can, usagef("%s", m.Lacks(what))
	}
	return can, nil
}

func (a *application) migrateUp() *cobra.Command {
	var sets []string
	var plan bool
	var zone string
	cmd := command("migrate up", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		c, err := a.migrationSettings(config.Database, sets...)
		if err != nil {
			return err
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
	})
	cmd.Flags().StringVar(&zone, "zone", "", "`name` of the time zone of columns without one")
	cmd.Flags().BoolVar(&plan, "plan", false, "preview of the changes to existing tables")
	setsFlag(cmd.Flags(), &sets, "core and events, and what the database has")
	return cmd
}

// printPlan is the answer to --plan. Problems are in it, and make the command fail as up would.
func (a *application) printPlan(plan migration.Adoption, output string) error {
	switch {
	case output == "json":
		if err := printJSON(a.Out, plan); err != nil {
			return err
		}
	case plan.Empty():
		fmt.Fprintln(a.Out, "no table exists that up would have to adopt")
	default:
		showPlan(a.Out, plan)
	}
	if len(plan.Problems) > 0 {
		return fmt.Errorf("%s: up would refuse, and change nothing", counted(len(plan.Problems), "problem"))
	}
	return nil
}

// showPlan writes what up does to tables that exist, nothing where there is none.
func showPlan(w io.Writer, plan migration.Adoption) {
	for _, t := range plan.Tables {
		was := ""
		if t.Was != "" {
			was = ", now called " + t.Was
		}
		rows := "rows not counted"
		if t.Rows != nil {
			rows = fmt.Sprintf("%d rows", *t.Rows)
		}
		fmt.Fprintf(w, "%s exists%s: %s, %s\n", t.Name, was, rows, t.Size)
		for i, step := range t.Steps {
			fmt.Fprintf(w, "%3d. %s\n", i+1, step)
		}
	}
	for _, note := range plan.Notes {
		fmt.Fprintln(w, "note: "+note)
	}
	for _, problem := range plan.Problems {
		fmt.Fprintln(w, "problem: "+problem)
	}
}

func (a *application) migrateStatus() *cobra.Command {
	return command("migrate status", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		c, err := a.migrationSettings(config.Database)
		if err != nil {
			return err
		}
		all, err := app.MigrationsOf(c.Database).Status(cmd.Context())
		if err != nil {
			return err
		}
		if file, ok := app.FileOf(c.Database); ok && c.Output != "json" {
			if !exists(file) {
				fmt.Fprintf(a.Err, "the file %s does not exist: outbox migrate up makes it\n", file)
			}
		}
		return list[migration.SetStatus]{items: all, head: "SET,HAS,NEEDS,STATE,MISSING",
			cells: func(s migration.SetStatus) []any {
				return []any{s.Set, s.Current, s.Latest, state(s), strings.Join(s.Pending, " ")}
			}}.print(a, c.Output)
	})
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist)
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
	cmd := command("migrate print", cobra.NoArgs, func(*cobra.Command, []string) error {
		c, err := a.migrationSettings(0, sets...)
		if err != nil {
			return err
		}
		return app.MigrationsOf(c.Database).Print(a.Out, sets...)
	})
	setsFlag(cmd.Flags(), &sets, "core and events")
	return cmd
}

// change is what up and down did to a set.
type change struct {
	Set     string   `json:"set"`
	Version uint     `json:"version"` // after it
	Changed []string `json:"changed"` // files applied, or taken away
}

// migrating runs fn for the named sets, or all, and prints what it changed, also when it failed
// half way.
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
		return cmp.Or(failure, err)
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
		return cmp.Or(failure, printJSON(a.Out, changes))
	}
	printed := list[change]{items: changes, head: "SET,NOW AT,CHANGED", cells: func(c change) []any {
		return []any{c.Set, c.Version, cmp.Or(strings.Join(c.Changed, " "), "(nothing)")}
	}}
	return cmp.Or(failure, printed.print(a, c.Output))
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
