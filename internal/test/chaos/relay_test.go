package chaos

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// relay is one `outbox relay` process, or `outbox serve`.
type relayProcess struct {
	cmd    *exec.Cmd
	log    string
	exited chan struct{}
	err    error // how it ended; to be read after exited
}

// ttl is the lease time of all relays here: shorter than the default of 10 s, so that a test need not wait as long.
// What a test requires is said in terms of it.
const ttl = 3 * time.Second

// relay starts one; env is added to the environment, args to the command line.
func (w *world) relay(env []string, args ...string) *relayProcess {
	w.t.Helper()
	path, err := binary()
	if err != nil {
		w.t.Fatal(err)
	}
	return w.run(path, env, args...)
}

func (w *world) run(path string, env []string, args ...string) *relayProcess {
	w.t.Helper()
	flags := []string{"relay", "--database", w.relayDatabase, "--sink", w.relaySink, "--table", w.table,
		"--lease-ttl", ttl.String()}
	if w.settle != "" {
		flags = append(flags, "--settle", w.table+"="+string(w.settle))
	}
	return w.process(path, env, slices.Concat(flags, w.flags, args)...)
}

// process starts the command as it is told.
func (w *world) process(path string, env []string, args ...string) *relayProcess {
	w.t.Helper()
	r := &relayProcess{log: filepath.Join(w.t.TempDir(), "log"), exited: make(chan struct{})}
	log, err := os.Create(r.log)
	if err != nil {
		w.t.Fatal(err)
	}
	r.cmd = exec.Command(path, args...)
	r.cmd.Env = append(os.Environ(), env...)
	r.cmd.Stderr = log
	if err := errors.Join(r.cmd.Start(), log.Close()); err != nil {
		w.t.Fatal(err)
	}
	leash := exec.Command("/bin/sh", "-c", `read -r _; kill -9 "$1"`, "leash", itoa(r.cmd.Process.Pid))
	// Whose other end goes with this process, however it ends: a test that is killed leaves no relay behind.
	_, err = leash.StdinPipe()
	if err := errors.Join(err, leash.Start()); err != nil {
		w.t.Fatal(err)
	}
	go func() { // ends with the process, for which the cleanup waits
		r.err = r.cmd.Wait()
		_ = leash.Process.Kill()
		_ = leash.Wait() // was killed
		close(r.exited)
	}()
	w.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // fails if it has ended, as it should have
		<-r.exited
		if w.t.Failed() {
			w.t.Logf("relay %d said:\n%s", r.cmd.Process.Pid, tail(r.said()))
		}
	})
	w.relays = append(w.relays, r)
	return r
}

func tail(s string) string {
	const most = 6000
	if len(s) <= most {
		return s
	}
	return s[:most/2] + "\n…\n" + s[len(s)-most/2:]
}

func (r *relayProcess) said() string {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (r *relayProcess) running() bool {
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

func (r *relayProcess) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// terminate stops it politely; anything but exit code 0 is an error.
func (r *relayProcess) terminate(t *testing.T) {
	t.Helper()
	if !r.running() {
		t.Fatalf("relay %d has ended already: %v", r.cmd.Process.Pid, r.err)
	}
	eventually(t, "the process is up, so that it knows what to do about a signal", func() bool {
		said := r.said()
		return strings.Contains(said, `"relaying"`) || strings.Contains(said, `"serving the API"`) ||
			strings.Contains(said, `"crawling runs"`)
	})
	r.signal(t, syscall.SIGTERM)
	select {
	case <-r.exited:
		if r.err != nil {
			t.Errorf("relay %d ended with %v, want exit code 0", r.cmd.Process.Pid, r.err)
		}
	case <-time.After(testenv.Patience):
		t.Fatalf("relay %d did not end after SIGTERM", r.cmd.Process.Pid)
	}
}

func (r *relayProcess) kill(t *testing.T) {
	t.Helper()
	r.signal(t, syscall.SIGKILL)
	<-r.exited
}

// killed waits until it was killed by its fault point.
func (r *relayProcess) killed(t *testing.T) {
	t.Helper()
	select {
	case <-r.exited:
	case <-time.After(testenv.Patience):
		t.Fatal("the fault point did not strike")
	}
	var exit *exec.ExitError
	if !errors.As(r.err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL ||
		!strings.Contains(r.said(), "struck") {
		t.Fatalf("the relay ended with %v, not by its fault point", r.err)
	}
}

// stopped waits until it stands still (SIGSTOP).
func (r *relayProcess) stopped(t *testing.T) {
	t.Helper()
	eventually(t, "the fault point stops the relay", func() bool {
		status, err := os.ReadFile("/proc/" + itoa(r.cmd.Process.Pid) + "/stat")
		if err != nil {
			return false
		}
		_, after, _ := strings.Cut(string(status), ") ")
		return strings.HasPrefix(after, "T")
	})
}

// said counts in the logs of all relays.
func (w *world) said(text string) (n int) {
	for _, r := range w.relays {
		n += strings.Count(r.said(), text)
	}
	return n
}
