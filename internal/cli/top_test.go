package cli_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// terminal is a command in a terminal, which an emulator of one shows to the test.
type terminal struct {
	env
	*process
	keyboard *os.File
	screen   *vt.SafeEmulator
}

// onTerminal starts a command in a terminal of that size.
func (e env) onTerminal(columns, rows int, args ...string) terminal {
	e.t.Helper()
	e.extra = append(e.extra, "TERM=xterm-256color")
	s := terminal{env: e, screen: vt.NewSafeEmulator(columns, rows),
		process: &process{t: e.t, cmd: exec.Command(binary, args...), ended: make(chan struct{}), out: newStream()}}
	s.cmd.Env = e.command(e.t.Context()).Env
	var err error
	if s.keyboard, err = pty.StartWithSize(s.cmd, &pty.Winsize{Cols: uint16(columns), Rows: uint16(rows)}); err != nil {
		e.t.Fatal(err)
	}
	go func() { _, _ = io.Copy(s.keyboard, s.screen) }() // what a terminal answers when it is asked
	go func() {
		_, _ = io.Copy(io.MultiWriter(s.screen, s.out), s.keyboard) // ends once all that the command wrote is read
		s.endedError = s.cmd.Wait()
		close(s.ended)
	}()
	e.t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has usually ended
		<-s.ended
		_ = s.keyboard.Close() // likewise
		if e.t.Failed() {
			e.t.Logf("outbox %s shows:\n%s", strings.Join(args, " "), s.text())
		}
	})
	return s
}

// text is what stands on the screen.
func (s terminal) text() string {
	var b strings.Builder
	for y := range s.screen.Height() {
		for x := range s.screen.Width() {
			if c := s.screen.CellAt(x, y); c != nil && c.Content != "" {
				b.WriteString(c.Content)
			} else if c == nil {
				b.WriteByte(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// shows waits until all of these stand on the screen; one that begins with ! must not.
func (s terminal) shows(texts ...string) {
	s.env.t.Helper()
	deadline := time.Now().Add(tier.Patience())
	for {
		now, missing := s.text(), ""
		for _, t := range texts {
			unwanted, not := strings.CutPrefix(t, "!")
			if strings.Contains(now, unwanted) == not {
				missing = t
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			s.env.t.Fatalf("the screen never was as wanted: %q", missing)
		}
		select {
		case <-s.ended:
			s.env.t.Fatalf("it ended before the screen was as wanted: %q", missing)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s terminal) press(keys string) {
	s.env.t.Helper()
	if _, err := s.keyboard.WriteString(keys); err != nil {
		s.env.t.Fatal(err)
	}
}

// What an operator sees while a sink, and then the database, is away and comes back.
func TestTopOnATerminal(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{})
	redis := testenv.RedisServer(t)
	e := env{t: t, database: server.URL("postgres"), redis: redis.URL()}
	e.ok("", "migrate", "up")
	e.relaying("--table", "outbox_events")
	top := e.onTerminal(80, 24, "top", "--table", "outbox_events")
	top.shows("outbox top", "every 2.7s", "TABLES",
		"outbox_events  default  0", "default  ready", "BLOCKED KEYS", "LETTERS",
		"RELAYS", "64     64", "q quit")

	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	e.ok("{}", "write", "--topic", "order.placed", "--key", "42")
	top.shows("CRITICAL", "OBX-027     critical", "default  DOWN", "outbox_events  default  1", "1 wait")
	top.press("\r")
	top.shows("CONDITIONS  OBX-027", "sink down", "cause ", "do ", "see ", "enter or esc: back", "!TABLES")
	top.press("\x1b")
	top.shows("TABLES")
	top.screen.Resize(140, 40) // before the command is told, which paints all of the new size once
	if err := pty.Setsize(top.keyboard, &pty.Winsize{Cols: 140, Rows: 40}); err != nil {
		t.Fatal(err)
	}
	top.shows("default  DOWN", "q quit")
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	top.shows("default  ready", "outbox_events  default  0", "!OBX-027")

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	top.shows("CRITICAL  The database cannot be asked")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	top.shows("outbox_events  default  0", "!cannot be asked")
	top.press("p")
	top.shows("PAUSED")
	top.press("p++")
	top.shows("every 5s", "!PAUSED")
	top.press("q")
	if code := top.wait(); code != 0 {
		t.Errorf("q ended it with exit code %d", code)
	}
	if top.screen.IsAltScreen() {
		t.Error("the terminal is left on the alternate screen")
	}
}

// Samples are an object a line, with rates from the second on. What cannot be meant or asked is an
// error.
func TestTopSamples(t *testing.T) {
	tier.Full(t)
	onStores(t, testTopSamples)
}

func testTopSamples(t *testing.T, e env) {
	type sample struct {
		Sentence string
		Tables   []struct {
			Table              string
			Backlog            int
			WrittenPerSecond   *float64
			DeliveredPerSecond *float64
		}
		LetterGroups []struct{ Count int }
	}
	e.redis = "redis://127.0.0.1:1"
	one := decode[sample](t, e.ok("", "top", "--once", "--table", "outbox_events"))
	if len(one.Tables) != 1 || one.Tables[0].Backlog != 0 || one.Tables[0].WrittenPerSecond != nil {
		t.Errorf("the first sample is %+v", one)
	}
	e.jobsDied(3)
	top := e.start("top", "--table", "outbox_events", "--interval", "1s")
	top.await(top.out, `"backlog":0`)
	e.ok(strings.Join(numbered(30), "\n"), "write", "--jsonl")
	last := decode[sample](t, top.await(top.out, `"backlog":30`))
	if last.Tables[0].WrittenPerSecond == nil || last.Tables[0].DeliveredPerSecond == nil ||
		len(last.LetterGroups) != 1 || last.LetterGroups[0].Count != 3 {
		t.Errorf("got %+v", last)
	}
	contains(t, last.Sentence, "30 wait")
	top.signal(syscall.SIGINT)
	if code := top.wait(); code != 0 || !bytes.HasSuffix([]byte(top.out.String()), []byte("}\n")) {
		t.Errorf("exit code %d after SIGINT, and it wrote %s", code, top.out)
	}
	e.says(2, "top --interval 1ms", "want at least 1s")
	e.says(2, "top --interval soon", "--interval")
	e.says(2, "top now", "unknown command")
	away := e
	away.database = "postgres://127.0.0.1:1/shop"
	away.says(1, "top --once", `"error":"`, "The database cannot be asked")
}
