package cli

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

// build is what `outbox version` knows of this binary.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Revision string `json:"revision,omitempty"` // of the version control system
	Modified bool   `json:"modified,omitempty"` // built from a work tree with changes
	// Schemas are the versions that a database must have, by kind of database and migration set; Schema is the first's.
	Schemas map[string]map[string]uint `json:"schemas"`
	Schema  map[string]uint            `json:"schema"`
}

func (a *application) version() *cobra.Command {
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
			header := []string{"SET"}
			for _, name := range app.StoreNames() {
				header = append(header, "IN "+strings.ToUpper(name))
			}
			for _, set := range app.Sets {
				row := []string{set}
				for _, name := range app.StoreNames() {
					row = append(row, fmt.Sprint(b.Schemas[name][set]))
				}
				rows = append(rows, row)
			}
			fmt.Fprintln(a.Out)
			return printTable(a.Out, header, rows)
		},
	}
}

// versionForm warns of wrong settings: whoever asks for a version is often about to find out what is wrong.
func (a *application) versionForm() (form string, err error) {
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
	b := build{Version: "(unknown)", Schemas: app.Required()}
	b.Schema = b.Schemas[app.StoreNames()[0]]
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
