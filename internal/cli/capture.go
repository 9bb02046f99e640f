package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/dev"
)

func (a *application) capture() *cobra.Command {
	var table, tenant, out string
	var withheld bool
	settings := every()
	cmd := command("capture", cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
		c, err := a.settings(config.Database, settings)
		if err == nil && table != "" {
			_, err = c.Find(table)
		}
		if err != nil {
			return err
		}
		desk, closed, err := app.Desk(cmd.Context(), c, "outbox capture")
		if err != nil {
			return err
		}
		defer closed()
		capsule, err := desk.Capture(cmd.Context(), table, tenant, args[0], !withheld)
		if err != nil {
			return unexplained(err, args[0])
		}
		capsule.Program = readBuild()
		if capsule.Schemas, err = app.MigrationsOf(c.Database).Status(cmd.Context()); err != nil {
			capsule.Unseen = append(capsule.Unseen, "schemas: "+err.Error())
		}
		capsule.Conditions, err = app.Examine(cmd.Context(), c, condition.Usual, condition.Selection{}, condition.Canary{})
		if err != nil {
			return err
		}
		return a.writeCapsule(c.Output, capsule, out)
	})
	cmd.Flags().StringVar(&out, "out", "", "`file` to write (default: capsule-ID.json; -: stdout)")
	cmd.Flags().BoolVar(&withheld, "without-payload", false, "leave the payloads out")
	cmd.Flags().StringVar(&table, "of", "", "`table` that the event is in (default: any)")
	cmd.Flags().StringVar(&tenant, "tenant", "", "`tenant` of the event, where the role may see one at a time")
	cmd.Flags().AddFlagSet(settings)
	return cmd
}

// writeCapsule writes a file that nobody else may read.
func (a *application) writeCapsule(form string, c admin.Capsule, path string) error {
	// Not indented: that makes a deep payload larger many times over.
	if path == "-" {
		return printLine(a.Out, c)
	}
	var text strings.Builder
	if err := printLine(&text, c); err != nil {
		return err
	}
	if path == "" {
		path = "capsule-" + c.Event.ID.String() + ".json"
	}
	err := writeNew(path, text.String(), false)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already and was left as it is: choose another name with --out", path)
	}
	if err != nil {
		return err
	}
	for _, missing := range c.Unseen {
		fmt.Fprintf(a.Err, "not captured  %s\n", oneLine(missing))
	}
	return a.printResult(form, map[string]any{"file": path, "bytes": text.Len()}, "wrote %s (%d bytes); replay it "+
		"with: outbox dev --from %s", path, text.Len(), shellWord(path))
}

// incident reads the capsule that dev is to try; nil: there is none.
func (a *application) incident(path string) (*dev.Incident, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return nil, usagef("--from: %w", err)
	}
	defer f.Close()
	c, err := admin.ReadCapsule(f)
	if err != nil {
		return nil, usagef("--from %s: %w", path, err)
	}
	if c.Withheld {
		fmt.Fprintf(a.Err, "%s has no payloads: its events are written with null\n", path)
	}
	events, err := c.Events()
	return &dev.Incident{Events: events, Told: func(line string) { fmt.Fprintln(a.Out, oneLine(line)) }}, err
}
