package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// consent holds the flags --yes and --dry-run. Each command that removes data or access prints its
// effect, asks on a terminal, needs --yes elsewhere, and changes nothing with --dry-run.
type consent struct{ yes, dryRun bool }

// destroys is the annotation of commands that remove data or access.
const destroys = "destroys"

// destroy adds the flags to a command that removes data or access, and marks it as one.
func (k *consent) destroy(a *application, cmd *cobra.Command) {
	cmd.Annotations = map[string]string{destroys: "yes"}
	k.addTo(a, cmd)
}

// addTo adds the flags. Without a terminal and without either flag the command is refused before it
// opens anything.
func (k *consent) addTo(a *application, cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&k.yes, "yes", "y", false, "consent to the change, without a question")
	cmd.Flags().BoolVar(&k.dryRun, "dry-run", false, "preview of the change, which is not made")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case k.yes && k.dryRun:
			return usagef("--yes and --dry-run contradict each other")
		case !k.yes && !k.dryRun && !isTerminal(a.In):
			return usagef("ask for consent: stdin is not a terminal; add --yes, or --dry-run to preview the change")
		}
		return nil
	}
}

// confirm prints the effect of the command and returns whether to go on. With --dry-run the effect
// is the result: plan for programs, says for people.
func (k *consent) confirm(ctx context.Context, a *application, form string, plan any, says string) (bool, error) {
	says = strings.TrimSuffix(says, "\n")
	switch {
	case k.dryRun:
		return false, a.printResult(form, plan, "%s", says)
	case k.yes:
		fmt.Fprintln(a.Err, says)
	case !a.confirmed(ctx, says+"\nContinue? [y/N] "):
		return false, errors.New("nothing was changed")
	}
	return true, nil
}

// confirmed asks on the terminal.
func (a *application) confirmed(ctx context.Context, question string) bool {
	fmt.Fprint(a.Err, question)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.Err)
		return false
	case answer := <-readLines(ctx, a.In):
		said := strings.ToLower(strings.TrimSpace(string(answer.text)))
		return said == "y" || said == "yes"
	}
}
