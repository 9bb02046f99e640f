package redisstream

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/redistest"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// What Redis refuses leaves no entry behind, and nothing remembered. What has nothing to do with
// streams is asked of the sink of channels, whose script and calls are the same, but for the window
// that is off.
func TestNothingHappensOnARefusingServer(t *testing.T) {
	t.Parallel()
	own := []redistest.Fault{redistest.NoRight("xadd"), redistest.NoKeys("~suite:*")}
	for window, faults := range map[time.Duration][]redistest.Fault{0: own, -1: append(redistest.Faults(), own[0])} {
		for _, fault := range faults {
			t.Run(fmt.Sprint(fault.Name, ", window ", window), func(t *testing.T) {
				t.Parallel()
				server := testenv.RedisServer(t)
				sink, admin := restricted(t, server, Config{Envelope: idEnvelope, Window: window})
				makeStreams(t, admin, "suite:1")
				arrived := redistest.Refused(t, fault, server, admin, sink, "suite:1", window == 0)
				wantEntries(t, admin, "suite:1", arrived...)
			})
		}
	}
}

// The server is killed again and again while events are published, and comes back with all it had
// answered: each is there once, in order.
func TestKilledWhilePublishing(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServerWith(t,
		testenv.RedisConfig{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	sink, admin := open(t, server, Config{Envelope: idEnvelope})
	makeStreams(t, admin, "s")
	sinktest.Killed(t, sink, "s", func() error { return errors.Join(server.Kill(), server.Restart()) },
		func(int) []string {
			eventually(t, func() bool { return admin.Ping(t.Context()).Err() == nil })
			return entries(t, admin, "s")
		})
}

// A server that saves nothing has lost stream and memory. Events fail until the stream is made
// again, and none is lost.
func TestRestartWithoutPersistence(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	sink, admin := open(t, server, Config{Envelope: idEnvelope})
	makeStreams(t, admin, "s")
	batch := []outbox.Delivery{event(t, "s", 1), event(t, "s", 1)}
	deliver(t, sink, batch...)
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return sink.Abilities().Ping(t.Context()) == nil && admin.Ping(t.Context()).Err() == nil })
	got := sink.Publish(t.Context(), batch)
	sinktest.WantClass(t, got[0].Err, outbox.ClassRetryable, "does not exist")
	sinktest.WantClass(t, got[1].Err, outbox.ClassNotAttempted)
	makeStreams(t, admin, "s")
	deliver(t, sink, batch...)
	wantEntries(t, admin, "s", ids(batch...)...)
}
