package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/version"
)

// initialize is outbox init, a name that Go keeps for itself.
func (a *application) initialize() *cobra.Command {
	var file string
	cmd := command("init", cobra.NoArgs, func(*cobra.Command, []string) error {
		form, err := a.formAlone()
		if err != nil {
			return err
		}
		text, err := config.Template(a.kinds)
		if err != nil {
			return err
		}
		switch err := writeNew(file, text); {
		case errors.Is(err, fs.ErrExist):
			return fmt.Errorf("%s exists and was not changed: remove it, or choose another name with --file", file)
		case err != nil:
			return fmt.Errorf("write settings: %w", err)
		}
		if form != "json" {
			fmt.Fprintf(a.Err, `Next:
  take the # away before what you want to change
  outbox config validate --config %[1]s    is it right
  outbox serve --config %[1]s              use it; or set OUTBOX_CONFIG, for every command
`, shellWord(file))
		}
		return a.printResult(form, struct {
			File string `json:"file"`
		}{file}, "wrote %s", file)
	})
	cmd.Flags().StringVar(&file, "file", "outbox.yaml", "`file` to write")
	return cmd
}

// formAlone is the form of what goes to stdout, for a command that reads no file: the one of
// --config may be what it is to write.
func (a *application) formAlone() (string, error) {
	alone := pflag.NewFlagSet("output", pflag.ContinueOnError)
	alone.AddFlag(a.global.Lookup("output"))
	c, err := config.Load(a.kinds, a.environ, alone)
	if err == nil && c.Output != "table" && c.Output != "json" {
		err = usagef("output is %q, want table or json: set --output", c.Output)
	}
	return c.Output, err
}

// writeNew writes a file that nobody else may read: URLs with passwords may come to stand in it.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// harmless are words that mean nothing else to a shell.
var harmless = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shellWord quotes text for a command line that is to be copied.
func shellWord(text string) string {
	if harmless.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// man writes the manual, for whoever packages the program.
func (a *application) man() *cobra.Command {
	return command("man", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		err := os.MkdirAll(args[0], 0o755)
		if err == nil {
			cmd.Root().DisableAutoGenTag = true // no date: the same program writes the same pages
			err = doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "Outbox",
				Manual: "Outbox"}, args[0])
		}
		if err != nil {
			return fmt.Errorf("write the manual: %w", err)
		}
		fmt.Fprintf(a.Err, "wrote the manual to %s\n", args[0])
		return nil
	})
}

// build is what `outbox version` knows of this binary.
type build struct {
	Version  string `json:"version"`
	Go       string `json:"go"`
	Revision string `json:"revision,omitempty"` // of the version control system
	Modified bool   `json:"modified,omitempty"` // built from a work tree with changes
	// Schemas are the versions that a database must have, by kind of database and migration set;
	// Schema is the first's.
	Schemas map[string]map[string]uint `json:"schemas"`
	Schema  map[string]uint            `json:"schema"`
}

func (a *application) version() *cobra.Command {
	return command("version", cobra.NoArgs, func(*cobra.Command, []string) error {
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
		if err := a.printRows("VERSION,GO,REVISION", [][]any{{b.Version, b.Go, revision}}); err != nil {
			return err
		}
		head := "SET"
		for _, name := range app.StoreNames() {
			head += ",IN " + strings.ToUpper(name)
		}
		var rows [][]any
		for _, set := range allSets {
			row := []any{set}
			for _, name := range app.StoreNames() {
				row = append(row, b.Schemas[name][set])
			}
			rows = append(rows, row)
		}
		fmt.Fprintln(a.Out)
		return a.printRows(head, rows)
	})
}

// versionForm warns of wrong settings: whoever asks for a version is often about to find out what
// is wrong.
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
	b := version.Of()
	schemas := app.Required()
	return build{Version: b.Version, Go: b.Go, Revision: b.Revision, Modified: b.Modified, Schemas: schemas,
		Schema: schemas[app.StoreNames()[0]]}
}
