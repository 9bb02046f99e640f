// Package cli is the outbox command: its words, its texts, what it prints and how it ends.
//
// Guaranteed: exit code 0 for done, 1 for failed, 2 for a command line or settings that cannot be meant, 130 when
// forced by a second signal. Results go to stdout and everything else to stderr. Errors name the setting and the
// remedy. No password is on either stream.
//
// Not guaranteed: the table form of results, which is for people and may change. Programs take -o json.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/sink"
)

// Main runs the command line and returns the exit code. It publishes to the sinks of these drivers. The first SIGINT or
// SIGTERM ends ctx for the command, the second the process.
func Main(ctx context.Context, args []string, streams Streams, environ []string, sinks []sink.Driver) int {
	ctx, release := interruptible(ctx, streams.Err)
	defer release()
	kinds, err := app.Kinds(sinks)
	if err != nil {
		fmt.Fprintf(streams.Err, "outbox: %v\n", err)
		return 1
	}
	a := &application{Streams: streams, environ: environ, kinds: kinds, global: config.Global()}
	kinds.Describe(a.global)
	root := a.root()
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	var settings *config.Error
	var usage usageError
	misused := !a.started || errors.As(err, &settings) || errors.As(err, &usage)
	if settings != nil && len(settings.Problems) > 1 {
		err = fmt.Errorf("%d problems with the settings:\n  - %s", len(settings.Problems),
			strings.Join(settings.Problems, "\n  - "))
	}
	fmt.Fprintf(a.Err, "%s: %v\n", ran.CommandPath(), err)
	if misused {
		fmt.Fprintf(a.Err, "See: %s --help\n", ran.CommandPath())
		return 2
	}
	if h := a.hint(ran.Name(), err); h != "" {
		fmt.Fprintf(a.Err, "Hint: %s\n", h)
	}
	return 1
}

func (a *application) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox",
		Short: "Commit your event with your data, and it arrives",
		Long: `outbox delivers events that applications write into a table of their own database, in the
transaction that changes their data. So an event exists exactly if its change does, and a
relay delivers it afterwards, in order for its key and once, to the sinks that --sink names.

    outbox dev                                              try all of it on one file, with nothing installed
    outbox migrate up                                       make the tables
    outbox write --topic order.placed --key 42 < order.json    or INSERT INTO outbox_events …
    outbox relay                                            deliver, until stopped
    outbox tail order.placed                                see it arrive

outbox serve joins the relay with an HTTP API and a worker for crawl runs, whose events a browser
sees as they commit; outbox runs is its client.

Settings are flags, or environment variables (--poll-max is OUTBOX_POLL_MAX, --sink OUTBOX_SINK; the database
is OUTBOX_DATABASE_URL, or else DATABASE_URL), or keys of a YAML file named by --config or OUTBOX_CONFIG
(poll_max: 200ms): outbox init writes one, outbox config print shows what is in effect. A flag wins over a variable, a variable
over the file. That holds for the flags of outbox relay and outbox serve, for --server and --token of
outbox runs, and for the global ones below; the other commands' own flags say what to do this once and
are flags only.

Exit codes: 0 done, 1 failed, 2 wrong command line or settings, 130 ended at once by a second signal.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRun: func(*cobra.Command, []string) {
			a.started = true
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			return fmt.Errorf("--%s: %s", bad.GetFlag().Name, config.Misfit(bad.GetFlag(), bad.GetValue(), err))
		}
		return err
	})
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.PersistentFlags().AddFlagSet(a.global)
	root.PersistentFlags().SortFlags = false
	root.AddCommand(a.migrate(), a.relay(), a.serve(), a.write(), a.tail(), a.events(), a.dlq(), a.lanes(), a.route(),
		a.sinks(), a.endpoints(), a.pause(), a.resume(), a.pauses(), a.replayDelivered(), a.purge(), a.runs(), a.token(),
		a.dev(),
		a.initialize(), a.config(), a.man(), a.version())
	a.complete(root)
	return root
}
