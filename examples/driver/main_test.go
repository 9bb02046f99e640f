package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asProgram has this binary be the program.
const asProgram = "OUTBOX_TEST_DRIVER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		if err := os.Unsetenv(asProgram); err != nil { // it is no setting
			panic(err)
		}
		main()
	}
	os.Exit(m.Run())
}

const patience = 5 * time.Minute

// Every command knows the sink: its settings are checked, it is shown, and what is written arrives.
func TestEveryCommandKnowsTheSink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "events.jsonl")
	program := func(args ...string) *exec.Cmd {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		c := exec.CommandContext(ctx, self, args...)
		c.Env = append(os.Environ(), asProgram+"=1", "OUTBOX_DATABASE_URL=sqlite:"+filepath.Join(dir, "outbox.db"),
			"OUTBOX_SINK=lines:"+file)
		return c
	}
	run := func(stdin string, want string, args ...string) {
		t.Helper()
		c := program(args...)
		c.Stdin = strings.NewReader(stdin)
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v: %v, want %q:\n%s", args, err, want, out)
		}
	}
	run("", "core", "migrate", "up")
	run("", "", "config", "validate", "--parts", "relay")
	run("", "lines:FILE appends to a file", "help", "urls")
	if out, err := program("config", "validate", "--sink", "lines:").CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "names no file") {
		t.Errorf("a URL without a file: %v\n%s", err, out)
	}

	relay, tail := program("relay", "--listen", "127.0.0.1:0"), program("tail", "order.placed")
	var log bytes.Buffer
	seen := filepath.Join(dir, "seen")
	shown, err := os.Create(seen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shown.Close() })
	relay.Stderr, tail.Stdout = &log, shown
	notice, err := tail.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*exec.Cmd{relay, tail} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := notice.Read(make([]byte, 1)); err != nil { // it says so when it listens
		t.Fatal(err)
	}
	run("{\"total\":\n 12}", "", "write", "--topic", "order.placed", "--key", "42")
	run("", "lines:"+file, "sinks")
	for _, name := range []string{file, seen} {
		for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			text, err := os.ReadFile(name)
			if err == nil && strings.Contains(string(text), `{"total":12}`) {
				break
			}
			if time.Since(start) > patience {
				t.Fatalf("nothing arrives in %s: %q, %v", name, text, err)
			}
		}
	}
	for _, c := range []*exec.Cmd{relay, tail} {
		if err := c.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", c.Args, err, log.String())
		}
	}
}
