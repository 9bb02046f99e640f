// Command driver is outbox with one sink more, which is its own: every command of outbox knows
// lines:FILE.
//
// It guarantees nothing that outbox does not, and is no better sink than a file is: a copy after a
// crash is a second line.
package main

import (
	"context"
	"os"

	"github.com/outboxrelay/outbox/command"
)

func main() { os.Exit(command.Main(context.Background(), linesDriver())) }
