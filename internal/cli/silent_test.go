package cli_test

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// silentServer returns the address of a server that accepts connections and never answers.
func silentServer(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		var open []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			open = append(open, conn)
		}
		for _, conn := range open {
			_ = conn.Close() // nothing was written
		}
	})
	t.Cleanup(func() {
		_ = listener.Close() // the connections are closed above
		accepting.Wait()
	})
	return listener.Addr().String()
}

// Each command that asks a server ends within ten seconds if the server is silent, and says why in
// one line.
func TestEachCommandEndsAtASilentServer(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	at := silentServer(t)
	e := env{t: t, database: "postgres://u@" + at + "/d", redis: "redis://" + at,
		extra: []string{"OUTBOX_SERVER=http://" + at}}
	id := uuid.NewString()
	lines := append(attacked(), "tail x", "ready --listen "+at, "runs create --app a", "runs list", "runs show "+id,
		"runs cancel "+id)
	var running sync.WaitGroup
	for _, line := range lines {
		args := strings.Fields(line)
		if slices.Contains([]string{"relay", "serve"}, args[0]) {
			continue // they wait for a server
		}
		running.Go(func() {
			began := time.Now()
			r := e.run("1", args...)
			if took := time.Since(began); took > 11*time.Second || r.code == 0 {
				t.Errorf("outbox %s: exit code %d after %s:\n%s%s", line, r.code, took, r.out, r.err)
			}
			reports := slices.Contains([]string{"status", "doctor", "verify"}, args[0])
			if said := strings.Count(r.err, "\n"); !reports && (said == 0 || said > 2) { // the error and a hint
				t.Errorf("outbox %s says:\n%s", line, r.err)
			}
		})
	}
	running.Wait()
}
