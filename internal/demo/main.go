// Command demo shows the product at work on private servers: it runs the outbox command as a user would and checks what arrives. It
// guarantees to leave nothing behind, also when it is interrupted.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outboxrelay/outbox/internal/testenv"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	binary := flag.String("outbox", "bin/outbox", "the outbox command")
	file := flag.String("file", "examples/orders.jsonl", "events to write, one JSON object a line")
	show := flag.Int("show", 12, "how many arriving events to print")
	flag.Parse()
	if err := demo(ctx, *binary, *file, *show); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func demo(ctx context.Context, binary, file string, show int) (err error) {
	events, err := countLines(file)
	if err != nil {
		return err
	}
	fmt.Println("Starting PostgreSQL and Redis in private directories …")
	db, err := testenv.StartPostgres(ctx, testenv.PostgresConfig{Fsync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Stop()) }()
	cache, err := testenv.StartRedis(ctx, testenv.RedisConfig{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cache.Stop()) }()
	env := append(os.Environ(), "OUTBOX_DATABASE_URL="+db.URL("postgres"), "OUTBOX_REDIS_URL="+cache.URL(), "OUTBOX_LOG_FORMAT=text")
	command := func(args ...string) *exec.Cmd {
		fmt.Println("\n$ outbox", strings.Join(args, " "))
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Env, cmd.Stderr, cmd.Stdout = env, os.Stderr, os.Stdout
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 10 * time.Second
		return cmd
	}

	if err := command("migrate", "up").Run(); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	tail := command("tail", "order.*", "-o", "json", "--count", strconv.Itoa(events))
	tail.Stdout = nil
	arriving, err := tail.StdoutPipe()
	if err != nil {
		return err
	}
	subscribed := &firstLine{to: os.Stderr, seen: make(chan struct{})}
	tail.Stderr = subscribed
	if err := tail.Start(); err != nil {
		return fmt.Errorf("tail: %w", err)
	}
	defer func() { _ = tail.Process.Kill() }() // fails if it has ended, as it should have
	select {
	case <-subscribed.seen:
	case <-time.After(10 * time.Second):
		return errors.New("tail did not subscribe")
	}

	relay := command("relay", "--table", "outbox_events")
	if err := relay.Start(); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	defer func() { _ = relay.Process.Kill() }()

	write := command("write", "--jsonl", "-o", "json")
	input, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = input.Close() }()
	write.Stdin, write.Stdout = input, io.Discard // the ids
	start := time.Now()
	if err := write.Start(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := watch(arriving, events, show); err != nil {
		return err
	}
	fmt.Printf("%d events written and received in %s.\n", events, time.Since(start).Round(time.Millisecond))
	if err := errors.Join(write.Wait(), tail.Wait()); err != nil {
		return err
	}
	fmt.Println("\nStopping the relay with SIGTERM; it finishes its batch and gives up its lanes.")
	if err := relay.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop relay: %w", err)
	}
	if err := relay.Wait(); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	return command("events", "--limit", "3").Run()
}

// watch prints the first messages and checks all of them: every order's events in order, none twice.
func watch(arriving io.Reader, events, show int) error {
	last := map[string]int64{}
	seen := map[string]bool{}
	lines := bufio.NewScanner(arriving)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var line struct {
			Channel string          `json:"channel"`
			Message json.RawMessage `json:"message"`
		}
		var event struct {
			ID       string          `json:"id"`
			Type     string          `json:"type"`
			Subject  string          `json:"subject"`
			Tenant   string          `json:"tenantid"`
			Sequence string          `json:"sequence"`
			Data     json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("read what tail printed: %w", err)
		}
		if err := json.Unmarshal(line.Message, &event); err != nil {
			return fmt.Errorf("read message: %w", err)
		}
		sequence, err := strconv.ParseInt(event.Sequence, 10, 64)
		if err != nil {
			return fmt.Errorf("read sequence: %w", err)
		}
		key := event.Tenant + " " + event.Subject
		if seen[event.ID] {
			return fmt.Errorf("event %s arrived twice", event.ID)
		}
		if sequence <= last[key] {
			return fmt.Errorf("%s: event %d arrived after %d", key, sequence, last[key])
		}
		seen[event.ID], last[key] = true, sequence
		switch n := len(seen); {
		case n <= show:
			fmt.Printf("  %-16s %-11s %s\n", line.Channel, event.Subject, event.Data)
		case n == show+1:
			fmt.Println("  …")
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read what tail printed: %w", err)
	}
	if len(seen) != events {
		return fmt.Errorf("%d of %d events arrived", len(seen), events)
	}
	fmt.Printf("\nEvery one of %d orders received its events in order, none twice, none missing.\n", len(last))
	return nil
}

func countLines(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read events: %w", err)
	}
	return bytes.Count(text, []byte("\n")), nil
}

// firstLine passes writes on and tells when there was one.
type firstLine struct {
	to   io.Writer
	seen chan struct{}
	told bool
}

func (f *firstLine) Write(p []byte) (int, error) {
	if !f.told {
		f.told = true
		close(f.seen)
	}
	return f.to.Write(p)
}
