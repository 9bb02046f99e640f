// Package cli is the outbox command: its words, its texts, what it prints and how it ends.
//
// Guaranteed: exit code 0 for done, 1 for failed, 2 for a command line or settings that cannot be
// meant, 3 and 4 for what outbox doctor finds, 130 when forced by a second signal. Results go to
// stdout and everything else to stderr. Errors name the setting and the remedy. No password is on
// either stream.
//
// Not guaranteed: the table form of results, which is for people and may change. Programs take -o
// json.
package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/admin"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/version"
	"github.com/outboxrelay/outbox/sink"
)

// Main runs the command line and returns the exit code. It publishes to the sinks of these drivers.
// The first SIGINT or SIGTERM ends ctx for the command, the second the process.
func Main(ctx context.Context, args []string, streams Streams, environ []string, sinks []sink.Driver) int {
	ctx, release := interruptible(ctx, streams.Err)
	defer release()
	kinds, err := app.Kinds(sinks)
	if err != nil {
		fmt.Fprintf(streams.Err, "outbox: %v\n", err)
		return 1
	}
	a := &application{Streams: streams, environ: environ, kinds: kinds, global: config.Global()}
	root := a.root()
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if found, ok := errors.AsType[exitCode](err); ok {
		return int(found)
	}
	var settings *config.Error
	var usage usageError
	var refused *admin.Refused
	misused := !a.started || errors.As(err, &settings) || errors.As(err, &usage) || errors.As(err, &refused)
	if settings != nil && len(settings.Problems) > 1 {
		err = fmt.Errorf("%d problems with the settings:\n  - %s", len(settings.Problems),
			strings.Join(settings.Problems, "\n  - "))
	}
	if superuser, ok := errors.AsType[*pooler.SuperuserError](err); ok {
		err = superuser // one sentence, without what was to be done and how the connection failed
	}
	// PostgreSQL's client reports each attempt to connect on a line of its own.
	text := strings.NewReplacer(":\n\t", ": ", "\n\t", "; ").Replace(err.Error())
	fmt.Fprintf(a.Err, "%s: %s\n", ran.CommandPath(), text)
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
	root := command("", nil, func(cmd *cobra.Command, _ []string) error { return cmd.Help() })
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentPreRun = func(*cobra.Command, []string) { a.started = true }
	root.Version = version.Of().Version
	root.SetVersionTemplate("outbox {{.Version}}\n")
	root.SetUsageFunc(printUsage)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
			if _, own := bad.GetFlag().Value.(*parsed); own {
				return fmt.Errorf("--%s: %w", bad.GetFlag().Name, bad.Unwrap())
			}
			return fmt.Errorf("--%s: %s", bad.GetFlag().Name, config.Misfit(bad.GetFlag(), bad.GetValue(), err))
		}
		return suggestFlag(cmd, err)
	})
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.PersistentFlags().AddFlagSet(a.global)
	root.AddCommand(a.migrate(), a.relay(), a.serve(), a.write(), a.tail(), a.events(), a.dlq(), a.audit(), a.lanes(),
		a.route(), a.sinks(), a.groups(), a.subscriptions(), a.pause(), a.resume(), a.pauses(), a.replayDelivered(),
		a.purge(),
		a.runs(), a.token(), a.ready(), a.status(), a.doctor(), a.why(), a.verify(), a.dev(), a.initialize(),
		a.config(), a.man(),
		a.version())
	root.AddCommand(a.topics()...)
	a.complete(root)
	return root
}
