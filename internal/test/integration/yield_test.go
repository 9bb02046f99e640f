package integration

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// One of two relays loses its way to Redis. The other one gets all lanes within the lease time and a
// margin, and the first one takes its share again once Redis answers it. No event arrives twice or
// out of order.
func TestRelayWithoutItsSinkYieldsItsLanes(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const ttl = 3 * time.Second
	w := newWorld(t)
	proxy := sinktest.NewProxy(t, w.redis.Addr())
	flags := []string{"--table", "outbox_events", "--lease-ttl", ttl.String()}
	cutOff := w.relay(t, []string{"OUTBOX_SINK=redis://" + proxy.Addr}, flags...)
	fine := w.relay(t, nil, flags...)
	w.split(t, 2)
	holds := func(lanes int, relay *exec.Cmd) string {
		return fmt.Sprintf(`SELECT count(*) = %d FROM outbox_lanes JOIN outbox_relays USING (table_name, owner)
			WHERE name LIKE '%%process %d'`, lanes, relay.Process.Pid)
	}

	resume := proxy.Stall()
	proxy.Cut()
	cut := time.Now()
	var slow testenv.Slow
	done := make(chan *history)
	go func() { done <- writeConcurrently(t, w, 1000) }()
	for all := false; !all && time.Since(cut) < tier.Patience(); time.Sleep(20 * time.Millisecond) {
		slow.Look()
		noError(t, w.pool.QueryRow(t.Context(), holds(64, fine)).Scan(&all))
	}
	if took := slow.Shrink(time.Since(cut)); took > ttl+15*time.Second {
		t.Errorf("the other relay had the lanes after %s", took)
	}
	h := <-done
	h.check(t, w, w.wait(t, len(h.committed), time.Second))
	w.holds(t, "the relay that is cut off holds no lanes", holds(0, cutOff))
	resume()
	w.eventually(t, "both share the lanes again", holds(32, cutOff))
	w.holds(t, "nothing was counted as a crash", "SELECT max(crashes) = 0 FROM outbox_lanes")
}
