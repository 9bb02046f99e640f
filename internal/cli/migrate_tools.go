package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

func (a *application) migrateExport() *cobra.Command {
	var dir, format string
	var sets []string
	known := strings.Join(formatNames(), ", ")
	cmd := command("migrate export", cobra.NoArgs, func(*cobra.Command, []string) error {
		switch {
		case format == "":
			return usagef("--format is required: %s", known)
		case !slices.Contains(formatNames(), format):
			return usagef("--format: there is no format %q: the formats are %s", format, known)
		case dir == "":
			return usagef("--dir is required: the folder of the migrations, which is made if it is missing")
		}
		c, err := a.migrationSettings(0, sets...)
		if err != nil {
			return err
		}
		database, err := able[app.ExportMigrations](c, app.Export)
		if err != nil {
			return err
		}
		files, err := database.Export(dir, pgmigrations.Format(format), sets...)
		if errors.Is(err, migration.ErrCoreMissing) {
			return usageError{err}
		}
		if err != nil {
			return err
		}
		return list[pgmigrations.ExportedFile]{items: files, head: "FILE,STEP,NOW",
			cells: func(f pgmigrations.ExportedFile) []any {
				return []any{f.File, f.Step, map[bool]string{true: "written", false: "was there"}[f.Written]}
			}}.print(a, c.Output)
	})
	cmd.Flags().StringVar(&dir, "dir", "", "`dir` of the migrations (required)")
	cmd.Flags().StringVar(&format, "format", "", "`format` of the tool: "+known+" (required)")
	setsFlag(cmd.Flags(), &sets, "those in the folder, or core and events")
	return cmd
}

func formatNames() (names []string) {
	for _, f := range pgmigrations.Formats {
		names = append(names, string(f))
	}
	return names
}

func (a *application) migrateRoles() *cobra.Command {
	var show bool
	cmd := command("migrate roles", cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
		if show {
			return pgmigrations.PrintRoles(a.Out)
		}
		c, err := a.migrationSettings(config.Database)
		if err != nil {
			return err
		}
		database, err := able[app.RoleMigrations](c, app.Roles)
		if err != nil {
			return err
		}
		if err := database.ApplyRoles(cmd.Context()); err != nil {
			return err
		}
		if c.Output == "json" {
			return printJSON(a.Out, map[string]any{"roles": pgmigrations.Roles})
		}
		fmt.Fprintf(a.Err, "The roles %s are in place: GRANT them to your logins.\n",
			strings.Join(pgmigrations.Roles, ", "))
		return nil
	})
	cmd.Flags().BoolVar(&show, "print", false, "SQL of the roles, printed and not run")
	return cmd
}

func (a *application) migrateIndexes() *cobra.Command {
	var forms []string
	for _, set := range pgmigrations.IndexSets {
		forms = append(forms, string(set))
	}
	cmd := command("migrate indexes", cobra.MatchAll(cobra.MaximumNArgs(2), cobra.OnlyValidArgs),
		func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 && pgmigrations.IndexSet(args[0]).Full() == pgmigrations.IndexSet(args[1]).Full() {
				return usagef("%s and %s contradict each other: they are forms of the same indexes", args[0], args[1])
			}
			c, err := a.migrationSettings(config.Database)
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
			return list[pgmigrations.Index]{items: indexes, head: "INDEX,SET,ON",
				cells: func(x pgmigrations.Index) []any {
					_, on, _ := strings.Cut(x.Definition, " ON ")
					return []any{x.Name, x.Set, on}
				}}.print(a, c.Output)
		})
	cmd.ValidArgs = forms
	return cmd
}
