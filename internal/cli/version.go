package cli

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/wire"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
	sqlite "github.com/outboxrelay/outbox/store/sqlite/migrations"
)

// build is what `outbox version` knows of this binary.
type build struct {
	Version  string          `json:"version"`
	Go       string          `json:"go"`
	Revision string          `json:"revision,omitempty"` // of the version control system
	Modified bool            `json:"modified,omitempty"` // built from a work tree with changes
	Schema   map[string]uint `json:"schema"`             // version that a PostgreSQL database must have, a migration set
	File     map[string]uint `json:"sqlite_schema"`      // and an SQLite file
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the schema versions it needs",
		Long: `version prints what this binary was built from and, for each migration set, the version that a database
needs for it. outbox migrate status shows what a database has. Wrong settings do not keep it from that; it warns
of them.`,
		Example: `  outbox version
  outbox version -o json`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			form, err := a.versionForm()
			if err != nil {
				return err
			}
			b := readBuild()
			if form == "json" {
				return printJSON(a.Out, b)
			}
			revision := b.Revision
			if b.Modified {
				revision += " with changes"
			}
			rows := [][]string{{b.Version, b.Go, revision}}
			if err := printTable(a.Out, []string{"VERSION", "GO", "REVISION"}, rows); err != nil {
				return err
			}
			rows = nil
			for _, set := range wire.Sets {
				rows = append(rows, []string{set, fmt.Sprint(b.Schema[set]), fmt.Sprint(b.File[set])})
			}
			fmt.Fprintln(a.Out)
			return printTable(a.Out, []string{"SET", "IN POSTGRESQL", "IN SQLITE"}, rows)
		},
	}
}

// versionForm warns of wrong settings: whoever asks for a version is often about to find out what is wrong.
func (a *app) versionForm() (form string, err error) {
	c, err := a.settings(0)
	if form = c.Output; form == "" { // the file cannot be read
		form = a.global.Lookup("output").Value.String()
	}
	settings, ok := errors.AsType[*config.Error](err)
	if !ok || form != "table" && form != "json" {
		return form, err
	}
	for _, p := range settings.Problems {
		fmt.Fprintf(a.Err, "Warning: %s\n", p)
	}
	return form, nil
}

func readBuild() build {
	b := build{Version: "(unknown)", Schema: map[string]uint{}, File: map[string]uint{}}
	for _, set := range wire.Sets {
		b.Schema[set], b.File[set] = migrations.Required(set), sqlite.Required(set)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version, b.Go = info.Main.Version, info.GoVersion
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
