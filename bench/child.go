package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// childVariable has a process of this program be something else than the bench: a broker, or a side
// of a comparison.
const childVariable = "OUTBOX_BENCH_CHILD"

// What a side's process is told by its environment.
const (
	databaseVariable = "OUTBOX_BENCH_DATABASE"
	socketVariable   = "OUTBOX_BENCH_REDIS"
)

// childLimit is how long a child may take to be ready, and to end.
const childLimit = 20 * time.Second

// child is another process of this program. It ends when its input does, so that it never outlives
// this process.
type child struct {
	ready string // the line that it has printed when it was ready
	input io.WriteCloser
	*os.Process
	ended chan struct{} // closed once it has
	err   error         // why it has ended; to be read after that
}

func startChild(ctx context.Context, kind string, environment ...string) (*child, error) {
	executable, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process := exec.CommandContext(ctx, executable)
	process.Env = slices.Concat(os.Environ(), []string{childVariable + "=" + kind}, environment)
	process.Stderr = os.Stderr
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	c := &child{input: input, Process: process.Process, ended: make(chan struct{})}
	late := time.AfterFunc(childLimit, func() { _ = c.Kill() })
	line, err := bufio.NewReader(output).ReadString('\n')
	late.Stop()
	go func() {
		defer close(c.ended)
		c.err = process.Wait()
	}()
	if err != nil {
		_ = c.stop()
		return nil, fmt.Errorf("start %s: it has printed no line: %w", kind, err)
	}
	c.ready = strings.TrimSpace(line)
	return c, nil
}

// begin tells a side's process to serve.
func (c *child) begin() error {
	_, err := io.WriteString(c.input, "begin\n")
	return err
}

// stop ends the child's input and waits until the child has ended, for childLimit.
func (c *child) stop() error {
	_ = c.input.Close()
	late := time.AfterFunc(childLimit, func() { _ = c.Kill() })
	defer late.Stop()
	<-c.ended
	return c.err
}

// runChild is what a child does.
func runChild(ctx context.Context, kind string) error {
	if kind == "nats" || kind == "kafka" {
		return serveBroker(kind)
	}
	if kind == idleChild {
		return serveIdle(ctx)
	}
	return serveSide(ctx, kind)
}

// serveSide connects, says that it is ready, serves once it is told to, and stops when its input
// ends.
func serveSide(ctx context.Context, name string) error {
	one, err := sideCalled(name)
	if err != nil {
		return err
	}
	own, err := newConnections(ctx, os.Getenv(databaseVariable), os.Getenv(socketVariable))
	defer own.close()
	if err != nil {
		return err
	}
	fmt.Println("ready")
	input := bufio.NewReader(os.Stdin)
	if _, err := input.ReadString('\n'); err != nil {
		return nil // it is not wanted any more
	}
	until, stop := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, input)
		stop()
		time.Sleep(childLimit) // nobody may be left to kill a side that does not end
		os.Exit(1)
	}()
	err = one.serve(ctx, &servers{connections: own}, until)
	if err == nil {
		<-until.Done() // a loop that ends with its table waits here: its processor time is read while it lives
	}
	return err
}
