package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
)

// Tree returns the command tree of a process with these sinks, and Destroys the annotation of its
// commands that remove data or access.
func Tree() *cobra.Command {
	kinds, err := app.Kinds(app.Sinks())
	if err != nil {
		panic(err)
	}
	a := &application{Streams: Streams{In: strings.NewReader("")}, kinds: kinds, global: config.Global()}
	return a.root()
}

const Destroys = destroys
