// Command outbox delivers the events of transactional outboxes, and writes, lists and watches them.
// It promises nothing by itself: package internal/cli is the command.
package main

import (
	"context"
	"os"

	"github.com/outboxrelay/outbox/command"
)

func main() { os.Exit(command.Main(context.Background())) }
