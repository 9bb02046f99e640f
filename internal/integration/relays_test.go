package integration

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A relay that is stopped for three lease times in the middle of a batch, while another takes its lanes over and events go on being written,
// is a zombie when it continues: what it still publishes is refused or was due anyway, what it settles changes nothing. Every event
// arrives once and in order.
func TestZombieRelay(t *testing.T) {
	t.Parallel()
	for _, point := range []string{"before-publish", "after-publish"} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			flags := []string{"--table", "outbox_events", "--lease-ttl", "1s", "--batch", "100"}
			zombie := w.relay(t, []string{"OUTBOX_FAULT=" + point + ":20:stop"}, flags...)
			w.eventually(t, "the first relay holds the lanes", `SELECT count(*) = 64 FROM outbox_lanes WHERE table_name = 'outbox_events' AND owner IS NOT NULL`)
			w.relay(t, nil, flags...)
			done := make(chan *history)
			go func() { done <- writeConcurrently(t, w) }()
			untilStopped(t, zombie)
			w.eventually(t, "the other relay took every lane over", `SELECT min(epoch) >= 2 FROM outbox_lanes WHERE table_name = 'outbox_events'`)
			time.Sleep(2 * time.Second) // the other works on the zombie's batch and beyond
			if err := zombie.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			h := <-done
			h.check(t, w, w.wait(t, len(h.committed), time.Second))
			w.eventually(t, "everything is settled", `SELECT count(*) = 0 FROM outbox_events WHERE status <> 'SENT'`)
			log, ok := zombie.Stderr.(*os.File)
			if !ok {
				t.Fatal("the relay has no log")
			}
			said, err := os.ReadFile(log.Name())
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"before-publish": "relay cannot make progress", "after-publish": `"lost":`}[point]
			if !strings.Contains(string(said), want) {
				t.Errorf("the zombie did not say %s: did it continue in its batch?\n%s", want, said)
			}
		})
	}
}

// untilStopped waits for a process to stand still.
func untilStopped(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		state, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(cmd.Process.Pid)).Output()
		if err == nil && strings.HasPrefix(string(state), "T") {
			return
		}
	}
	t.Fatal("the fault point did not strike in half a minute")
}
