// Package command is the command outbox as a part of a program: for who has a sink of his own, and
// wants every command of outbox to serve it.
//
// # What is guaranteed
//
//   - The commands, settings and exit codes are those of outbox, and a driver is known to all of
//     them: settings, help, log, readiness, tail where it has one.
//
// # What is not
//
//   - That a driver keeps what its fields ask for. outboxtest.SinkSuite tests what its sinks
//     publish.
//   - A small program: it compiles every sink and store that outbox has.
package command

import (
	"context"
	"os"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/sink"
)

// Main runs the command line of the process and returns its exit code. Beside the sinks of outbox
// it has those of these drivers, whose schemes must be others. The first SIGINT or SIGTERM ends ctx
// for the command, the second the process.
func Main(ctx context.Context, drivers ...sink.Driver) int {
	return cli.Main(ctx, os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Environ(),
		append(app.Sinks(), drivers...))
}
