package testenv_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// endingKey tells a re-executed test binary how to die.
const endingKey = "TESTENV_TEST_ENDING"

func TestMain(m *testing.M) {
	if ending := os.Getenv(endingKey); ending != "" {
		if err := startAndDie(ending); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	testenv.Main(m)
}

// startAndDie starts servers, prints "pid directory" of each and ends this process without stopping
// them.
func startAndDie(ending string) error {
	ctx := context.Background()
	if ending == "SIGKILL during initdb" {
		go func() { // not waited for: this process ends under it
			_, _ = testenv.StartPostgres(ctx, testenv.PostgresConfig{})
		}()
		var found []string
		for len(found) == 0 {
			found, _ = filepath.Glob(filepath.Join(os.TempDir(), "outbox-*", "data"))
		}
		dir := filepath.Dir(found[0])
		pid, err := os.ReadFile(filepath.Join(dir, "pid"))
		if err != nil {
			return err
		}
		fmt.Println(strings.TrimSpace(string(pid)), dir)
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	postgres, err := testenv.StartPostgres(ctx, testenv.PostgresConfig{})
	if err != nil {
		return err
	}
	redis, err := testenv.StartRedis(ctx, testenv.RedisConfig{})
	if err != nil {
		return err
	}
	fmt.Println(postgres.PID(), postgres.Dir())
	fmt.Println(redis.PID(), redis.Dir())
	switch ending {
	case "panic":
		panic("as a test may")
	case "exit":
		os.Exit(1)
	case "SIGKILL":
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "SIGINT to the process group": // Ctrl-C in a terminal
		if err := syscall.Kill(0, syscall.SIGINT); err != nil {
			return err
		}
		select {}
	}
	return errors.New("unknown ending " + ending)
}

// dieAs runs this test binary as a child that ends so, in a temporary directory of its own, and
// returns its output.
func dieAs(t *testing.T, ending, tmp string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), endingKey+"="+ending, "TMPDIR="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() == 3 {
		t.Fatalf("child: %v\n%s", err, stderr.String())
	}
	return string(out)
}

// serverTemp is a short directory that the server's user may enter, unlike t.TempDir().
func serverTemp(t *testing.T) string {
	t.Helper()
	tmp, err := os.MkdirTemp("", "testenv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	if err := os.Chmod(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	return tmp
}

func TestServersEndWithTheirParent(t *testing.T) {
	t.Parallel()
	testenv.Installed(t, "initdb", "redis-server")
	for ending, started := range map[string]int{
		"panic": 2, "exit": 2, "SIGKILL": 2, "SIGINT to the process group": 2, "SIGKILL during initdb": 1,
	} {
		t.Run(ending, func(t *testing.T) {
			if !strings.HasPrefix(ending, "SIGINT") { // Ctrl-C
				tier.Full(t)
			}
			t.Parallel()
			tmp := serverTemp(t)
			lines := bufio.NewScanner(strings.NewReader(dieAs(t, ending, tmp)))
			servers := 0
			for ; lines.Scan(); servers++ {
				var pid int
				var dir string
				if _, err := fmt.Sscan(lines.Text(), &pid, &dir); err != nil {
					t.Fatalf("child said %q: %v", lines.Text(), err)
				}
				if filepath.Dir(dir) != tmp {
					t.Errorf("server directory %s is not in %s", dir, tmp)
				}
				eventually(t, fmt.Sprintf("process %d gone", pid), func() bool { return !runs(pid) })
			}
			if servers != started {
				t.Errorf("%d servers reported, want %d", servers, started)
			}
			eventually(t, "nothing left behind", func() bool { return empty(t, tmp) })
		})
	}
}

func empty(t *testing.T, dir string) bool {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(left) == 0
}

// runs is false also for a process that ended but was not reaped: its new parent, process 1 of a
// container, may never do it.
func runs(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)) // not on macOS, whose process 1 reaps
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("not within %s: %s", tier.Patience(), what)
			return
		}
	}
}
