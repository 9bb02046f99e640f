package cli_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// developing is a running outbox dev and what it has said.
type developing struct {
	env
	*process
	dir      string
	url      string
	commands []string // to try
}

// launch is env.start for a command that is not ours, or not in the tests' folder.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, out: newStream(), err: newStream(), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.endedError = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has usually ended
		<-p.ended
		if t.Failed() {
			t.Logf("%s wrote:\n%s%s", strings.Join(cmd.Args, " "), p.out, p.err)
		}
	})
	return p
}

// develop starts outbox dev in dir, where variables name servers that it must leave alone.
func (e env) develop(dir string, args ...string) developing {
	e.t.Helper()
	e.extra = append(e.extra, "DATABASE_URL=postgres://127.0.0.1:1/not_this_one", "OUTBOX_SINK=redis://127.0.0.1:1/0")
	began := time.Now()
	cmd := e.command(context.Background(), append([]string{"dev", "--http", "127.0.0.1:0"}, args...)...)
	cmd.Dir = dir
	p := launch(e.t, cmd)
	d := developing{env: e, process: p, dir: dir,
		url: regexp.MustCompile(`http://[^/]+`).FindString(p.await(p.out, "Open http://"))}
	if code, body := get(e.t, d.url+"/"); code != http.StatusOK || !strings.Contains(body, "EventSource") {
		e.t.Errorf("status %d: %s", code, body)
	}
	e.t.Logf("first answer after %s", time.Since(began).Round(time.Millisecond))
	p.await(p.out, "Ctrl-C stops it")
	for _, line := range p.out.lines() {
		if command, ok := strings.CutPrefix(line, "  "); ok {
			d.commands = append(d.commands, command)
		}
	}
	return d
}

// stop is Ctrl-C.
func (d developing) stop() {
	d.env.t.Helper()
	d.signal(syscall.SIGINT)
	// Warnings are allowed: on a machine that others keep busy, housekeeping may find the file's
	// one writer taken for half a second.
	if code := d.wait(); code != 0 {
		d.env.t.Errorf("exit code %d after SIGINT:\n%s", code, d.err)
	}
	contains(d.env.t, d.out.String(), "stopped; ")
}

// shell runs a command line literally.
func (d developing) shell(line string, variables ...string) *process {
	d.env.t.Helper()
	cmd := exec.CommandContext(context.Background(), "sh", "-c", line)
	cmd.Dir, cmd.Env = d.dir, append([]string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}, variables...)
	return launch(d.env.t, cmd)
}

// tried runs the three commands as they are printed.
func (d developing) tried(variables ...string) {
	t := d.env.t
	t.Helper()
	if len(d.commands) != 3 {
		t.Fatalf("got commands %q", d.commands)
	}
	curl := d.shell("exec " + d.commands[0])
	curl.await(curl.out, "retry:") // it is subscribed
	write := d.shell(d.commands[1], variables...)
	if code := write.wait(); code != 0 || write.err.String() != "" {
		t.Fatalf("%s: exit code %d", d.commands[1], code)
	}
	curl.await(curl.out, "event: order.placed")
	contains(t, curl.await(curl.out, "data: "), strings.TrimSpace(write.out.String()), `"subject":"42"`, `"total":`)
	letters := d.shell(d.commands[2], variables...)
	if code := letters.wait(); code != 0 {
		t.Errorf("%s: exit code %d", d.commands[2], code)
	}
	contains(t, letters.err.String(), "no pending dead letters")
	if said := d.out.lines(); slices.Index(said, "In a third:") != slices.Index(said, "  "+d.commands[0])+1 {
		t.Errorf("the first command never ends, and the others are to be tried in the same terminal:\n%s", d.out)
	}
}

// The same on each store and through each broker: the page answers, the three commands work as they
// are printed, no run begins unasked and one that was under way goes on, Ctrl-C ends it.
func TestDev(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]func(*testing.T) []string{
		"file and memory":    func(*testing.T) []string { return nil },
		"file and Redis":     func(t *testing.T) []string { return []string{"--sink", testenv.RedisServer(t).URL()} },
		"PostgreSQL, memory": func(t *testing.T) []string { return []string{"--database", testenv.Database(t)} },
		"PostgreSQL and Redis": func(t *testing.T) []string {
			return []string{"--database", testenv.Database(t), "--sink", testenv.RedisServer(t).URL()}
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "file and memory" {
				tier.Full(t)
			}
			t.Parallel()
			e, dir := env{t: t}, t.TempDir()
			d := e.develop(dir, args(t)...)
			d.tried()
			client := e
			client.extra = []string{"OUTBOX_SERVER=" + d.url}
			if n := len(decode[struct{ Items []runView }](t, client.ok("", "runs", "list", "-o", "json")).Items); n != 0 {
				t.Errorf("there are %d runs, and nobody asked for one", n)
			}
			client.ok("", "runs", "create", "--app", "com.example.shop", "--crawler", "script:checkout", "--max-steps", "1000")
			run := decode[struct{ Items []runView }](t, client.ok("", "runs", "list", "-o", "json")).Items
			if len(run) != 1 || run[0].Crawler != "script:checkout" {
				t.Fatalf("got runs %+v", run)
			}
			follow := client.start("runs", "follow", run[0].RunID)
			follow.await(follow.out, "SCREENSHOT_CAPTURED")
			d.stop()

			// What was under way goes on.
			again := e.develop(dir, d.cmd.Args[4:]...)
			client.extra = []string{"OUTBOX_SERVER=" + again.url}
			follow = client.start("runs", "follow", run[0].RunID, "--after", "8")
			follow.await(follow.out, "     12  ")
			if n := len(decode[struct{ Items []runView }](t, client.ok("", "runs", "list", "-o", "json")).Items); n != 1 {
				t.Errorf("there are %d runs", n)
			}
			again.stop()
			left, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, f := range left {
				names = append(names, f.Name())
			}
			want := "outbox.db"
			if strings.HasPrefix(name, "PostgreSQL") {
				want = ""
			}
			if got := strings.Join(names, " "); got != want {
				t.Errorf("it left %q, want %q", got, want)
			}
		})
	}
}

func TestDevTemporary(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e, dir := env{t: t}, t.TempDir()
	e.extra = []string{"TMPDIR=" + dir}
	d := e.develop(dir, "--temp")
	d.tried()
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("got %v, error %v", files, err)
	}
	d.stop()
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("it left %v, error %v", files, err)
	}
}

// Two on one file: both are served, each at an address of its own.
func TestDevTwice(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e, dir := env{t: t}, t.TempDir()
	one := e.develop(dir, "--file", "it's mine.db")
	relay := fmt.Sprintf("process %d", one.cmd.Process.Pid)
	looking := e
	looking.database = "sqlite:" + filepath.Join(dir, "it's mine.db")
	// The API answers before the relay has lanes.
	e.eventually("a relay has lanes", func() bool { return strings.Contains(looking.ok("", "lanes"), relay) })
	two := e.develop(dir, "--file", "it's mine.db")
	if strings.Contains(one.err.String(), "another relay") {
		t.Errorf("the first says %s", one.err)
	}
	contains(t, two.err.String(), relay+") serves it's mine.db too", "--sink", "--temp or --file")
	for _, d := range []developing{one, two} {
		if code, body := get(t, d.url+"/v1/runs"); code != http.StatusOK || strings.Contains(body, "script:checkout") {
			t.Errorf("status %d: %s", code, body)
		}
	}
	one.stop()
	two.tried()
	two.stop()
}

func TestDevHidesPasswords(t *testing.T) {
	t.Parallel()
	e := env{t: t}
	database := testenv.Database(t)
	d := e.develop(t.TempDir(), "--database", strings.Replace(database, "postgres@", "postgres:hunter2@", 1))
	if said := d.out.String(); strings.Contains(said, "hunter2") ||
		!strings.Contains(said, "export OUTBOX_DATABASE_URL=") {
		t.Errorf("got %s", said)
	}
	d.commands = slices.Delete(d.commands, 1, 2) // the export, which one does by hand
	d.tried("OUTBOX_DATABASE_URL=" + database)
	d.stop()
}

// go run builds into a folder that is gone afterwards: the commands to try are go run's then.
func TestDevByGoRun(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := env{t: t}
	exe := filepath.Join(t.TempDir(), "go-build1", "b001", "exe", "outbox")
	if err := os.MkdirAll(filepath.Dir(exe), 0o755); err != nil {
		t.Fatal(err)
	}
	// A copy would be busy while a process that another test forked meanwhile has it open for
	// writing.
	if err := os.Link(binary, exe); err != nil {
		t.Fatal(err)
	}
	cmd := e.command(context.Background(), "dev", "--temp", "--http", "127.0.0.1:0")
	cmd.Path, cmd.Dir = exe, "../.."
	p := launch(t, cmd)
	p.await(p.out, "Ctrl-C stops it")
	root, err := filepath.Abs(cmd.Dir)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, p.out.String(),
		"| go -C "+root+" run ./cmd/outbox write --topic order.placed --key 42 --database sqlite:/",
		"  go -C "+root+" run ./cmd/outbox dlq list --database sqlite:/")
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Each refusal is a sentence that says what to do.
func TestDevRefuses(t *testing.T) {
	t.Parallel()
	e, dir := env{t: t}, t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := os.WriteFile(in("notes.txt"), []byte("No database, and longer than a header."), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign, newer := e, e
	foreign.database, newer.database = "sqlite:"+in("shop.db"), "sqlite:"+in("newer.db")
	exec1(foreign, "CREATE TABLE customers (id INTEGER)")
	newer.ok("", "migrate", "up")
	exec1(newer, "UPDATE outbox_migrations_core SET version = 99")
	for _, c := range []struct {
		args []string
		code int
		says []string
	}{
		{[]string{"--file", in("taken.db"), "--http", taken.Addr().String()}, 1,
			[]string{taken.Addr().String() + " is in use", "--http 127.0.0.1:0", "--temp or --file"}},
		{[]string{"--http", "0.0.0.0:0"}, 2, []string{"other machines can reach", "--http 127.0.0.1:0, or run outbox serve"}},
		{[]string{"--file", in("notes.txt")}, 1, []string{"notes.txt is no SQLite database", "--file"}},
		{[]string{"--file", in("shop.db")}, 1,
			[]string{"shop.db is the database of another program", "table customers",
				"outbox migrate up --database sqlite:" + in("shop.db")}},
		{[]string{"--file", in("newer.db")}, 1, []string{"newer.db was made by a newer outbox", "core is at version 99"}},
		{[]string{"--file", in("no/such/folder.db")}, 1, []string{"no/such: no such file", "--file"}},
		{[]string{"--file", "/sys/outbox.db"}, 1, []string{"folder /sys", "--temp"}}, // where even root cannot write
		{[]string{"--file", dir}, 1, []string{"is a directory", "--file"}},
		{[]string{"--file", "x.db", "--temp"}, 2, []string{"contradict"}},
		{[]string{"--database", "postgres://h/d", "--temp"}, 2, []string{"contradict"}},
		{[]string{"--database", "sqlite:" + in("shop.db")}, 2, []string{"say --file " + in("shop.db")}},
		{[]string{"--database", ""}, 2, []string{"--database is empty"}},
		{[]string{"--database", "postgres://127.0.0.1:1/d"}, 1,
			[]string{"Hint: is PostgreSQL running there? The URL is that of --database\n"}},
		{[]string{"--file", in("untouched.db"), "--sink", "foo"}, 2,
			[]string{"sink default: the URL has no scheme"}},
		{[]string{"--file", in("untouched.db"), "--sink", "redis://h/foo"}, 2,
			[]string{"sink default: the Redis URL is not of the form"}},
		{[]string{"--database", "sqlite:x.db"}, 2, []string{"--file x.db"}},
		{[]string{"--file", ""}, 2, []string{"--file is empty"}},
		{[]string{"--log-level", "loud"}, 2, []string{"log-level"}},
	} {
		r := e.run("", append([]string{"dev"}, c.args...)...)
		if r.code != c.code || r.out != "" {
			t.Errorf("%v: exit code %d, want %d:\n%s%s", c.args, r.code, c.code, r.out, r.err)
		}
		contains(t, r.err, c.says...)
	}
	if _, err := os.Stat(in("untouched.db")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("tables were made, and then the Redis URL refused: %v", err)
	}
}
