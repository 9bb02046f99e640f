package chaos

import (
	"os"
	"path/filepath"
	"time"
)

// sinkKinds are the sinks beside Redis Pub/Sub, which has tables of its own.
var sinkKinds = []struct {
	name string
	open func(w *world, alone bool) *broker // alone: with a server to itself
}{
	{"redisstream", openRedisStream},
	{"natsjs", openNATS},
	{"kafka", openKafka},
	{"rabbitmq", openRabbitMQ},
	{"pgtable", openTable},
	{"webhook", openEndpoint},
}

var sinkFaults = func() (table []fault) {
	table = append(table, fault{name: "killed-unsettled-redispubsub", strike: killedUnsettled})
	for _, kind := range sinkKinds {
		table = append(table, fault{name: "killed-unsettled-" + kind.name, strike: killedUnsettled,
			broker: func(w *world) *broker { return kind.open(w, false) }})
	}
	return table
}()

// retrying is the flags of relays that try an event again for as long as a fault lasts, and all events of a world go to
// one destination.
func (w *world) retrying() []string {
	w.t.Helper()
	settings := filepath.Join(w.t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(settings, []byte(retries), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return []string{"--config", settings, "--destination", "outbox_events=" + destination, "--batch", itoa(smallBatch)}
}

// smallBatch is the most events of a batch, where copies are counted.
const smallBatch = 50

// killedUnsettled has a relay die when the sink has acknowledged a batch and nothing of the batch is settled. What had
// arrived and was not settled arrives again, but for a sink that refuses copies.
func killedUnsettled(w *world) (struck int) {
	rounds := 1
	if *all {
		rounds = 2
	}
	w.produce()
	for range rounds {
		eventually(w.t, "a backlog of several batches", func() bool { return w.acknowledged() > w.sent()+4*smallBatch })
		w.relay([]string{"OUTBOX_FAULT=after-publish:" + itoa(1+w.rng.IntN(4)) + ":kill"}, "--workers", "1",
			"--batch", itoa(smallBatch), "--lease-ttl", killTTL.String()).killed(w.t)
		inFlight := w.unsettled()
		if inFlight == 0 || inFlight > smallBatch {
			w.t.Errorf("%d events had arrived and were not settled, want 1 to %d", inFlight, smallBatch)
		}
		struck += inFlight
		successor := w.relay(nil)
		w.healed(killTTL + 2*time.Second)
		successor.terminate(w.t)
	}
	w.relay(nil)
	if w.broker != nil && !w.broker.refuses {
		w.copies.least, w.copies.most = 1, struck
	}
	return struck
}

// uncertain allows for copies of what the relays have in flight now: they may never learn what came of it.
func (w *world) uncertain() {
	if !w.broker.refuses {
		const relays, workers = 2, 2
		w.copies.most += relays * workers * smallBatch
	}
}
