// Command outbox delivers the events of transactional outboxes, and writes, lists and watches them. It promises nothing
// by itself: package internal/cli is the command.
package main

import (
	"context"
	"os"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/cli"
)

func main() {
	os.Exit(cli.Main(context.Background(), os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr},
		os.Environ(), app.Sinks()))
}
