package chaos

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// anyServer are the faults of every server, and brokenQueue those of RabbitMQ, which has one more
// way to be full.
var (
	anyServer   = []string{"killed", "paused", "full", "denied", "half-open", "slow"}
	brokenQueue = append([]string{"alarm"}, anyServer...)
)

// sinkKinds are the sinks beside Redis Pub/Sub, which has tables of its own, with what befalls
// their servers.
var sinkKinds = []struct {
	name   string
	open   func(w *world, fault string) *broker // with a server to itself, if the fault takes that; "" takes none
	faults []string
	blamed []string // of these, those that are the events' own: attempts are counted
	load   load
}{
	{name: "redisstream", open: openRedisStream, faults: anyServer},
	{name: "natsjs", open: openNATS, faults: anyServer, blamed: []string{"denied"}},
	{name: "kafka", open: openKafka, faults: anyServer, blamed: []string{"denied"}},
	// On a busy machine a queue that syncs to disk takes no more.
	{name: "rabbitmq", open: openRabbitMQ, faults: brokenQueue, blamed: []string{"full", "denied"},
		load: load{perSecond: 100}},
	{name: "pgtable", open: openTable, faults: anyServer, blamed: []string{"denied"}},
	// An endpoint that is down is its own failure, of any kind (docs/adr/0010).
	{name: "webhook", open: openEndpoint, faults: anyServer, blamed: anyServer},
}

var sinkFaults = func() (table []fault) {
	table = append(table, fault{name: "killed-unsettled-redispubsub", strike: killedUnsettled})
	for _, kind := range sinkKinds {
		table = append(table, fault{name: "killed-unsettled-" + kind.name, strike: killedUnsettled,
			broker: func(w *world) *broker { return kind.open(w, "") }})
		for _, name := range kind.faults {
			f := fault{name: kind.name + "-" + name, strike: outageOf(name, slices.Contains(kind.blamed, name)),
				broker: func(w *world) *broker { return kind.open(w, name) }}
			f.load = kind.load
			f.root = f.name == "pgtable-full" // a small disk
			table = append(table, f)
		}
	}
	return table
}()

// outages are what can befall any server: each begins one, and returns what ends it.
var outages = map[string]func(*world) (end func()){
	"killed": func(w *world) func() {
		w.uncertain()
		w.must(w.broker.server.Kill())
		return func() { w.must(w.broker.server.Restart()) }
	},
	"paused": func(w *world) func() {
		w.uncertain()
		processes := family(w.t, w.broker.server.PID())
		signal := func(s syscall.Signal) {
			for _, pid := range processes {
				_ = syscall.Kill(pid, s) // fails for a worker that has ended
			}
		}
		signal(syscall.SIGSTOP)
		return func() { signal(syscall.SIGCONT) }
	},
	// Nothing gets through any more, in neither direction, and nobody is told.
	"half-open": func(w *world) func() {
		w.uncertain()
		w.broker.proxy.add(w.t, "timeout", "upstream", "timeout", 0)
		w.broker.proxy.add(w.t, "timeout", "downstream", "timeout", 0)
		return func() { w.broker.proxy.heal(w.t) }
	},
	"slow": func(w *world) func() {
		w.uncertain()
		w.broker.proxy.add(w.t, "latency", "downstream", "latency", int(slowness.Milliseconds()))
		return func() { w.broker.proxy.heal(w.t) }
	},
}

// slowness is by how much each answer of a slow server comes late.
const slowness = 300 * time.Millisecond

// outageOf has the server go away, in the way of that name, twice. Two relays go on by themselves
// when it is back.
func outageOf(name string, blamed bool) func(*world) int {
	return func(w *world) (struck int) {
		if blamed {
			w.blamed = math.MaxInt
		}
		begin, common := outages[name]
		if !common {
			begin = func(w *world) func() { return w.broker.faults[name]() }
		}
		w.underway(0)
		for range 2 {
			w.settles(200)
			end := begin(w)
			if name == "slow" {
				struck += w.delayed()
			} else {
				struck += w.stalled()
			}
			w.pause(0, 2*time.Second)
			end()
			w.healed(outage)
		}
		return struck
	}
}

// uncertain allows for copies of what the relays have in flight now: they may never learn what came
// of it.
func (w *world) uncertain() {
	if !w.broker.refuses {
		const relays, workers = 2, 2
		w.copies.most += relays * workers * smallBatch
	}
}

// stalled waits until nothing is delivered for a second in which events are written, and returns
// how many wait then.
func (w *world) stalled() int {
	w.t.Helper()
	eventually(w.t, "nothing is delivered any more", func() bool {
		sent, written := w.sent(), w.acknowledged()
		time.Sleep(time.Second)
		return w.sent() == sent && w.acknowledged() > written
	})
	return w.acknowledged() - w.sent()
}

// delayed waits until so many events that are written from now on have been delivered late.
func (w *world) delayed() int {
	w.t.Helper()
	var since time.Time
	w.must(w.pool.QueryRow(w.t.Context(), "SELECT clock_timestamp()").Scan(&since))
	late := 0
	eventually(w.t, "events are delivered late", func() bool {
		late = w.number(`SELECT count(*) FROM outbox_events WHERE status = 'SENT' AND created_at > $1 AND processed_at > created_at + $2`,
			since, slowness)
		return late >= 200
	})
	return late
}

// family is a process and its children: the server of PostgreSQL has one for each connection.
func family(t *testing.T, pid int) []int {
	t.Helper()
	all := []int{pid}
	entries, err := os.ReadDir("/proc")
	must(t, err)
	for _, e := range entries {
		text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "stat")) // no process, or none any more
		_, after, _ := strings.Cut(string(text), ") ")                   // state, parent
		child, _ := strconv.Atoi(e.Name())
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			all = append(all, child)
		}
	}
	return all
}

// retrying is the flags of relays that try an event again for as long as a fault lasts.
func (w *world) retrying() []string {
	w.t.Helper()
	settings := filepath.Join(w.t.TempDir(), "outbox.yaml")
	w.must(os.WriteFile(settings, []byte(retries), 0o600))
	return []string{"--config", settings, "--batch", itoa(smallBatch)}
}

// smallBatch is the most events that the two loops of a relay have in flight, where copies are
// counted.
const smallBatch = 50

// killedUnsettled has a relay die when the sink has acknowledged a batch and nothing of the batch
// is settled. What had arrived and was not settled arrives again, but for a sink that refuses
// copies.
func killedUnsettled(w *world) (struck int) {
	rounds, deaths, most := 1, 0, smallBatch
	if tier.AllSelected() {
		rounds = 2
	}
	if w.broker != nil {
		most += w.broker.unawaited
	}
	w.produce()
	behind := func() bool { return w.acknowledged() > w.sent()+4*smallBatch }
	for range rounds {
		inFlight := 0
		for try := 0; inFlight == 0 && try < 5; try++ { // one may die before anything has arrived
			eventually(w.t, "a backlog of several batches", behind)
			w.relay([]string{"OUTBOX_FAULT=after-publish:" + itoa(1+w.rng.IntN(4)) + ":kill"},
				"--batch", itoa(smallBatch/2), "--lease-ttl", killTTL.String()).killed(w.t)
			deaths++
			inFlight = w.unsettled()
		}
		if inFlight == 0 || inFlight > most {
			w.t.Errorf("%d events had arrived and were not settled, want 1 to %d", inFlight, most)
		}
		struck += inFlight
		successor := w.relay(nil)
		w.healed(killTTL + 2*time.Second)
		successor.terminate(w.t)
	}
	w.relay(nil)
	if w.broker != nil && !w.broker.refuses {
		w.copies.least, w.copies.most = 1, deaths*most // not struck: some arrives after the death of the relay
	}
	return struck
}
