package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// examples/embed does what its comment says, in two instances that share the lanes: a relay inside
// a service, woken by its own events and by those of another process, and stopped with it.
func TestEmbeddedRelay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "embed")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, "../../../examples/embed")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var said [2]bytes.Buffer
	var services [2]*exec.Cmd
	for i := range services {
		services[i] = exec.Command(path)
		services[i].Env = append(os.Environ(), "OUTBOX_DATABASE_URL="+w.url, "OUTBOX_SINK="+w.redis.URL())
		services[i].Stderr = &said[i]
		noError(t, services[i].Start())
		t.Cleanup(func() { _ = services[i].Process.Kill() }) // fails if it has ended, as it should have
		w.wait(t, i+1, 0)
	}
	for i, service := range services {
		noError(t, service.Process.Signal(syscall.SIGTERM))
		if err := service.Wait(); err != nil {
			t.Errorf("service %d ended with %v:\n%s", i, err, said[i].String())
		}
	}
	got := w.wait(t, 2, 300*time.Millisecond)
	if len(got) != 2 || got[0].Type != "order.placed" || got[0].Subject != "Order/1" || got[1].Subject != "Order/2" {
		t.Errorf("received %+v, want the events of orders 1 and 2, once each", got)
	}
	w.holds(t, "the events are settled and no lane is held", `SELECT (SELECT count(*) FROM outbox_events WHERE status = 'SENT') = 2 AND
		(SELECT count(*) FROM outbox_lanes WHERE owner IS NOT NULL) = 0`)
}
