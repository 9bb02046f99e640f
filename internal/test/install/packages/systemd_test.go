package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// manager is a systemd of the test's own: that of a user, since a machine has one of its own or
// none. It is told that the machine was booted by one, in a file system that nobody else sees.
type manager struct {
	*daemon
	env []string
}

func newManager(t *testing.T, home string) *manager {
	t.Helper()
	runtime := filepath.Join(home, "run")
	noError(t, os.MkdirAll(runtime, 0o700))
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-ec", `
mkdir -p /run/systemd
mount -t tmpfs tmpfs /run/systemd
mkdir /run/systemd/system
exec /lib/systemd/systemd --user --log-target=console`)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+runtime)
	m := &manager{background(t, cmd), cmd.Env}
	testenv.Eventually(t, "systemd is there", func() bool { return exists(filepath.Join(runtime, "systemd/private")) })
	t.Cleanup(func() {
		_ = m.command("exit").Run() // stops its units too
		<-m.ended
	})
	return m
}

func (m *manager) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"--target", strconv.Itoa(m.Process.Pid), "--mount", "systemctl",
		"--user"}, args...)...)
	cmd.Env = m.env
	return cmd
}

// is what systemd says of the service.
func (m *manager) is(t *testing.T, property string) string {
	t.Helper()
	return strings.TrimSpace(testenv.Run(t, m.command("show", "outbox", "--value", "--property", property)))
}

// systemd starts the service of the archive, and starts it again when it is killed and when it
// stands still. The unit is the archive's, without what only the manager of a machine may do: its
// user, its credentials and its walls.
func TestUnderSystemd(t *testing.T) {
	tier.All(t)
	there, home, redis := unpack(t), t.TempDir(), redisServer(t)
	program, database := filepath.Join(there, "outbox"), "sqlite:"+filepath.Join(home, "outbox.db")
	text, err := os.ReadFile(filepath.Join(there, "outbox.service"))
	noError(t, err)
	unit := regexp.MustCompile(`(?m)^(User|Group|LoadCredential|Environment|Private\w+|Protect\w+)=.*\n`).
		ReplaceAllString(string(text), "")
	for _, change := range [][2]string{{"ExecStart=outbox", "ExecStart=" + program}, {"/etc/outbox", home},
		{"/var/lib/outbox", home}, {"WatchdogSec=2min", "WatchdogSec=4s"}, {"RestartSec=5", "RestartSec=1"}} {
		if !strings.Contains(unit, change[0]) {
			t.Fatalf("the unit has no %s", change[0])
		}
		unit = strings.ReplaceAll(unit, change[0], change[1])
	}
	units := filepath.Join(home, ".config/systemd/user")
	noError(t, os.MkdirAll(units, 0o700))
	noError(t, os.WriteFile(filepath.Join(units, "outbox.service"), []byte(unit), 0o600))
	noError(t, os.WriteFile(filepath.Join(home, "env"), []byte("OUTBOX_DATABASE_URL="+database+
		"\nOUTBOX_SINK=redis+stream://"+redis.addr+"?create=true\n"), 0o600))
	testenv.Run(t, exec.Command("cp", filepath.Join(there, "outbox.yaml"), home))
	testenv.Run(t, exec.Command(program, "migrate", "up", "--database", database))
	m := newManager(t, home)
	written := 0
	delivers := func(when string) {
		t.Helper()
		write := exec.Command(program, "write", "--topic", "orders", "--database", database)
		write.Stdin = strings.NewReader("{}")
		testenv.Run(t, write)
		written++
		testenv.Eventually(t, "an event arrives "+when, func() bool { return len(redis.events(t, "orders")) >= written })
	}
	strike := func(signal syscall.Signal, restarts string) {
		t.Helper()
		pid, err := strconv.Atoi(m.is(t, "MainPID"))
		noError(t, err)
		if pid <= 1 {
			t.Fatalf("MainPID is %d", pid)
		}
		noError(t, syscall.Kill(pid, signal))
		testenv.Eventually(t, "it is started again", func() bool {
			return m.is(t, "NRestarts") == restarts && m.is(t, "ActiveState") == "active"
		})
	}

	testenv.Run(t, m.command("start", "outbox")) // which returns when the service is ready
	if state, status := m.is(t, "ActiveState"), m.is(t, "StatusText"); state != "active" || status != "serving" {
		t.Errorf("started, it is %s and says %q", state, status)
	}
	delivers("at first")
	strike(syscall.SIGKILL, "1")
	delivers("after a crash")
	strike(syscall.SIGSTOP, "2")
	delivers("after a standstill")
	testenv.Run(t, m.command("stop", "outbox"))
	if result := m.is(t, "Result"); result != "success" {
		t.Errorf("stopped, its result is %s", result)
	}
	if got := len(redis.events(t, "orders")); got != written {
		t.Errorf("%d events arrived, %d were written", got, written)
	}
}

// A place that cannot be written to is named, with what is wrong with it.
func TestReadOnlyPlace(t *testing.T) {
	tier.All(t)
	program, place := filepath.Join(unpack(t), "outbox"), t.TempDir()
	testenv.Run(t, exec.Command("mount", "-t", "tmpfs", "-o", "ro", "tmpfs", place))
	t.Cleanup(func() { testenv.Run(t, exec.Command("umount", place)) })
	for want, args := range map[string][]string{
		"outbox.yaml: read-only file system":       {"init", "--file", place + "/outbox.yaml"},
		"Hint: the file and its folder must exist": {"migrate", "up", "--database", "sqlite:" + place + "/outbox.db"},
	} {
		cmd := exec.Command(program, args...)
		said, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(said), want) {
			t.Errorf("%v: %v\n%s", args, err, said)
		}
	}
}
