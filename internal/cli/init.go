package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/config"
)

// written is what outbox init prints with -o json.
type written struct {
	File string `json:"file"`
}

// initialize is outbox init, a name that Go keeps for itself.
func (a *application) initialize() *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a file with every setting, its default and what it does",
		Long: `init writes a YAML file with every setting of the relay, of outbox serve and of the commands, each with
its default, its unit and what it does, and commented out: take the # away before the ones that you want to
change. It leaves a file that is there already as it is.

The file is not picked up by itself: a daemon that is started in another folder would otherwise have other
settings. Name it with --config or in OUTBOX_CONFIG.`,
		Example: `  outbox init
  outbox init --file /etc/outbox/outbox.yaml
  outbox config print --config outbox.yaml                    what is in effect, and from where`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			form, err := a.formAlone()
			if err != nil {
				return err
			}
			text, err := config.Template(a.kinds)
			if err != nil {
				return err
			}
			if err := writeNew(file, text, force); err != nil {
				return err
			}
			if form == "json" {
				return printJSON(a.Out, written{file})
			}
			fmt.Fprintf(a.Out, "wrote %s\n", file)
			fmt.Fprintf(a.Err, `Next:
  take the # away before what you want to change
  outbox config validate --config %[1]s    is it right
  outbox serve --config %[1]s              use it; or set OUTBOX_CONFIG, for every command
`, shellWord(file))
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "outbox.yaml", "`file` to write")
	cmd.Flags().BoolVar(&force, "force", false, "replace a file that is there")
	return cmd
}

// formAlone is the form of what goes to stdout, for a command that reads no file: the one of --config may be what it is
// to write.
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
func writeNew(path, text string, replace bool) error {
	how := os.O_WRONLY | os.O_CREATE | os.O_EXCL
	if replace {
		how = os.O_WRONLY | os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(path, how, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is there already and was left as it is: choose another name with --file, or replace it "+
			"with --force", path)
	}
	if err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
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
