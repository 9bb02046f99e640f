package chaos

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// process is a program that the test has started. It does not outlive the test.
type process struct {
	cmd    *exec.Cmd
	log    string        // the file of what it has said to its standard error
	exited chan struct{} // closed once it has, and its output is read
	err    error         // how it ended; to be read after exited
}

// start starts a program, and hands on the whole lines of its output, if anybody wants them.
func start(t *testing.T, cmd *exec.Cmd, line func([]byte)) *process {
	t.Helper()
	p := &process{cmd: cmd, log: filepath.Join(t.TempDir(), "log"), exited: make(chan struct{})}
	log, err := os.Create(p.log)
	must(t, err)
	cmd.Stderr = log
	var stdout io.Reader
	if line != nil {
		stdout, err = cmd.StdoutPipe()
		must(t, err)
	}
	must(t, errors.Join(cmd.Start(), log.Close()))
	leash := exec.Command("/bin/sh", "-c", `read -r _; kill -9 "$1"`, "leash", itoa(cmd.Process.Pid))
	// Whose other end goes with this process, however it ends: a test that is killed leaves nothing
	// behind.
	_, err = leash.StdinPipe()
	must(t, errors.Join(err, leash.Start()))
	go func() { // ends with the process, for which the cleanup waits
		defer close(p.exited)
		if line != nil {
			for lines := bufio.NewReader(stdout); ; {
				text, err := lines.ReadBytes('\n') // what has no end was cut off by the kill
				if err != nil {
					break
				}
				line(text[:len(text)-1])
			}
		}
		p.err = cmd.Wait()
		_ = leash.Process.Kill()
		_ = leash.Wait() // was killed
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended, as it should have
		<-p.exited
		if said := p.said(); t.Failed() && said != "" {
			t.Logf("process %d said:\n%s", cmd.Process.Pid, tail(said))
		}
	})
	return p
}

func tail(s string) string {
	const most = 6000
	if len(s) <= most {
		return s
	}
	return s[:most/2] + "\n…\n" + s[len(s)-most/2:]
}

func (p *process) said() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (p *process) running() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %v: %v", s, err)
	}
}

// end waits until the process has ended, after a signal. If it had ended before, how it did tells.
func (p *process) end(t *testing.T, s syscall.Signal) {
	t.Helper()
	_ = p.cmd.Process.Signal(s)
	select {
	case <-p.exited:
	case <-time.After(tier.Patience()):
		t.Fatalf("process %d did not end after %v", p.cmd.Process.Pid, s)
	}
}

func (p *process) endedWell(t *testing.T) {
	t.Helper()
	if p.err != nil {
		t.Errorf("process %d ended with %v, want exit code 0\n%s", p.cmd.Process.Pid, p.err, tail(p.said()))
	}
}

// kill ends it with SIGKILL, before it has ended by itself.
func (p *process) kill(t *testing.T) {
	t.Helper()
	p.end(t, syscall.SIGKILL)
	if !p.wasKilled() {
		t.Fatalf("process %d had ended by itself: %v\n%s", p.cmd.Process.Pid, p.err, tail(p.said()))
	}
}

// wasKilled tells of a process that has ended whether SIGKILL did it.
func (p *process) wasKilled() bool {
	var exit *exec.ExitError
	return errors.As(p.err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
}
