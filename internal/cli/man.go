package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// man writes the manual, for whoever packages the program.
func (a *application) man() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write a manual page for each command",
		Long:    `man writes outbox.1, outbox-relay.1 and so on into a folder, which it makes: what --help says, for man(1).`,
		Example: `  outbox man /usr/local/share/man/man1 && man outbox-relay`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("write the manual: %w", err)
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true // no date: the same program writes the same pages
			header := &doc.GenManHeader{Section: "1", Source: "Outbox", Manual: "Outbox"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write the manual: %w", err)
			}
			fmt.Fprintf(a.Err, "wrote the manual to %s\n", args[0])
			return nil
		},
	}
}
