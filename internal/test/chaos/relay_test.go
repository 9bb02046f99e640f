package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// relayProcess is one `outbox relay` process, or `outbox serve`.
type relayProcess = process

// ttl is the lease time of all relays here: shorter than the default of 10 s, so that a test need
// not wait as long. What a test requires is said in terms of it.
const ttl = 3 * time.Second

// relay starts one; env is added to the environment, args to the command line.
func (w *world) relay(env []string, args ...string) *relayProcess {
	w.t.Helper()
	path, err := binary()
	w.must(err)
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
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	r := start(w.t, cmd, nil)
	w.relays = append(w.relays, r)
	return r
}

// terminate stops it politely, once it is up and knows what to do about a signal.
func (r *relayProcess) terminate(t *testing.T) {
	t.Helper()
	if !r.running() {
		t.Fatalf("relay %d has ended already: %v", r.cmd.Process.Pid, r.err)
	}
	eventually(t, "the process is up", func() bool {
		said := r.said()
		return strings.Contains(said, `"relaying"`) || strings.Contains(said, `"serving the API"`) ||
			strings.Contains(said, `"crawling runs"`)
	})
	r.end(t, syscall.SIGTERM)
	r.endedWell(t)
}

// killed waits until it was killed by its fault point.
func (r *relayProcess) killed(t *testing.T) {
	t.Helper()
	select {
	case <-r.exited:
	case <-time.After(tier.Patience()):
		t.Fatal("the fault point did not strike")
	}
	if !r.wasKilled() || !strings.Contains(r.said(), "struck") {
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

// outboxOn runs the command to its end on a database. Nobody answers at its Redis: nothing that is
// run so needs one.
func outboxOn(t *testing.T, database string, args ...string) (stdout, stderr string, code int, err error) {
	path, err := binary()
	if err != nil {
		return "", "", 0, err
	}
	var out, said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "OUTBOX_DATABASE_URL="+database, "OUTBOX_SINK=redis://127.0.0.1:1")
	cmd.Stdout, cmd.Stderr = &out, &said
	var exit *exec.ExitError
	if err = cmd.Run(); errors.As(err, &exit) {
		err = nil
	}
	return out.String(), said.String(), cmd.ProcessState.ExitCode(), err
}

// outbox runs the command to its end, on this world's database, and returns what it said.
func (w *world) outbox(args ...string) (said string, err error) {
	out, said, code, err := outboxOn(w.t, w.relayDatabase, args...)
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d", code)
	}
	return out + said, err
}

// ask makes a request, and returns the answer's status, header and body. The header goes by pairs.
func ask(t *testing.T, method, url, bearer, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	must(t, err)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	for pair := range slices.Chunk(header, 2) {
		if pair[0] == "Host" {
			request.Host = pair[1]
		} else {
			request.Header.Set(pair[0], pair[1])
		}
	}
	answer, err := perRequest.Do(request)
	if err != nil {
		t.Error(err)
		return 0, http.Header{}, ""
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Error(err)
	}
	return answer.StatusCode, answer.Header, string(text)
}
