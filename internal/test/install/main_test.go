package install

import (
	"bytes"
	"os/exec"
	"sync"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestMain(m *testing.M) {
	testenv.AtOnce(4)
	testenv.Main(m)
}

const stamped = "v9.8.7-test"

// binary builds the command once, with the version of a release.
var binary = sync.OnceValues(func() (string, error) {
	return testenv.BuildCommand("-ldflags=-s -w -X github.com/outboxrelay/outbox/internal/version.stamped=" + stamped)
})

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// process is the command in the background.
type process struct {
	*exec.Cmd
	mu    sync.Mutex
	said  bytes.Buffer
	ended chan struct{}
}

func (p *process) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.Write(text)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said.String()
}

// start runs a program until the test ends.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p, p
	noError(t, cmd.Start())
	go func() {
		defer close(p.ended)
		_ = cmd.Wait() // its code is asked of ProcessState
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // unless it has ended
		<-p.ended
		if t.Failed() {
			t.Logf("%s\n%s", cmd, p.log())
		}
	})
	return p
}
