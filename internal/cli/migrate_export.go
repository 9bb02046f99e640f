package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
)

func (a *application) migrateExport() *cobra.Command {
	var dir, format string
	var sets []string
	cmd := &cobra.Command{
		Use:   "export --dir DIR --format FORMAT",
		Short: "Write the migrations as a folder of another migration tool",
		Long: `export writes the steps of all chosen sets into one folder, numbered in one sequence in the order in
which they depend on each other, as the tool that you have wants them:

    encore           1_outbox_core_001_apps.up.sql         no way down; numbers without a gap
    golang-migrate   000001_outbox_core_001_apps.up.sql    and .down.sql
    goose            00001_outbox_core_001_apps.sql        up and down in one file
    atlas            00001_outbox_core_001_apps.sql        no way down; then run atlas migrate hash

It needs no database. Run it again after each upgrade of outbox: the steps that are in the folder are
known by their names and left as they are, new ones get the numbers after the highest in the folder.
So no number ever changes, and the folder may have migrations of your own. Without --set it goes on
with the sets that the folder has; an empty one gets core and events.

The comment at the head of the first file says what outbox migrate up does beyond these files. After
the tool has run them, outbox migrate status shows it, a relay starts, and outbox migrate up has
nothing to do. outbox migrate up --take-over is the way back.`,
		Example: `  # Encore: the folder of the service that owns the database; encore run applies it
  outbox migrate export --format encore --dir orders/migrations --set core

  # golang-migrate
  outbox migrate export --format golang-migrate --dir migrations
  migrate -path migrations -database "$DATABASE_URL" up

  # goose
  outbox migrate export --format goose --dir migrations --set core,events
  goose -dir migrations postgres "$DATABASE_URL" up

  # Atlas
  outbox migrate export --format atlas --dir migrations
  atlas migrate hash --dir file://migrations
  atlas migrate apply --dir file://migrations --url "$DATABASE_URL"

  # the names of the files that are new
  outbox migrate export --format goose --dir migrations -o json | jq -r '.items[] | select(.written) | .file'`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			known := strings.Join(formatNames(), ", ")
			switch {
			case format == "":
				return usagef("--format is required: %s", known)
			case !slices.Contains(formatNames(), format):
				return usagef("--format: there is no format %q: the formats are %s", format, known)
			case dir == "":
				return usagef("--dir is required: the folder of the migrations, which is made if it is missing")
			}
			if err := checkSets(sets); err != nil {
				return err
			}
			c, err := a.settings(0)
			if err != nil {
				return err
			}
			database, err := able[app.ExportMigrations](c, app.Export)
			if err != nil {
				return err
			}
			files, err := database.Export(dir, pgmigrations.Format(format), sets...)
			switch {
			case errors.Is(err, pgmigrations.ErrCoreMissing):
				return usageError{err}
			case err != nil:
				return err
			case c.Output == "json":
				return printPage(a.Out, files, "")
			}
			var rows [][]string
			for _, f := range files {
				rows = append(rows, []string{f.File, f.Step, map[bool]string{true: "written", false: "was there"}[f.Written]})
			}
			return printTable(a.Out, []string{"FILE", "STEP", "NOW"}, rows)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the `folder` to write to (required)")
	cmd.Flags().StringVar(&format, "format", "",
		fmt.Sprintf("whose `format`: %s (required)", strings.Join(formatNames(), ", ")))
	cmd.Flags().StringSliceVar(&sets, "set", nil,
		"migration `sets`, of core, events, crawl and log (default: those in the folder, or core and events)")
	return cmd
}

func formatNames() (names []string) {
	for _, f := range pgmigrations.Formats {
		names = append(names, string(f))
	}
	return names
}
