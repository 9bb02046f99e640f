package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/cli"
)

// terminal returns the two ends of a pseudo-terminal. A write to keyboard is typed input of tty.
func terminal(t *testing.T) (keyboard, tty *os.File) {
	t.Helper()
	open := func(path string) *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() }) // nothing is stored in it
		return f
	}
	keyboard = open("/dev/ptmx")
	var unlocked, number uint32
	for request, value := range map[uintptr]*uint32{syscall.TIOCSPTLCK: &unlocked, syscall.TIOCGPTN: &number} {
		_, _, failed := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(unsafe.Pointer(value)))
		if failed != 0 {
			t.Fatal(failed)
		}
	}
	return keyboard, open(fmt.Sprintf("/dev/pts/%d", number))
}

// On a terminal a command that destroys asks, and only a yes makes it go on.
func TestDestroyingAsksOnATerminal(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: stores["sqlite"](t)}
	e.ok("", "migrate", "up", "--set", "core")
	e.ok("1", "write", "--topic", "order.placed")
	for _, answer := range []struct {
		typed, says string
		code, left  int
	}{
		{"\n", "nothing was changed", 1, 1}, {"n\n", "nothing was changed", 1, 1}, {"y\n", "skipped 1 event", 0, 0},
	} {
		keyboard, tty := terminal(t)
		if _, err := keyboard.WriteString(answer.typed); err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		code := cli.Main(t.Context(), strings.Fields("events skip --all --reason r"),
			cli.Streams{In: tty, Out: &said, Err: &said}, []string{"OUTBOX_DATABASE_URL=" + e.database}, app.Sinks())
		contains(t, said.String(), "1 undelivered event of outbox_events will become", "[y/N]", answer.says)
		left := query[int](e, "SELECT count(*) FROM outbox_events WHERE status = 'NEW'")
		if code != answer.code || left != answer.left {
			t.Errorf("%q: exit code %d and %d undelivered events, want %d and %d", answer.typed, code, left, answer.code,
				answer.left)
		}
	}
}
