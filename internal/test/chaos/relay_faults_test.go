package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

var relayFaults = []fault{
	{name: "relay-killed-after-claim", strike: killedAt("after-claim")},
	{name: "relay-killed-after-publish", strike: killedAt("after-publish")},
	// The sink sends 1000 deliveries or 4 MiB at once, so that is what a batch must exceed to have
	// a middle. What is written meanwhile a relay in quarantine must keep up with, on a busy
	// machine too.
	{name: "relay-killed-mid-batch", load: load{payload: 400_000, perSecond: 15, keys: 20}, strike: killedMidBatch},
	{name: "relay-stopped-before-publish", strike: zombie("before-publish", "relay cannot make progress")},
	{name: "relay-stopped-after-publish", strike: zombie("after-publish", `"lost":`)},
	{name: "relay-terminated-under-load", maxAge: ttl - ttl/10, strike: terminated},
	{name: "relays-joining-and-leaving", strike: joiningAndLeaving},
	{name: "relay-clocks-10-min-apart", strike: clocksApart},
	{name: "routes-changed-while-owed", strike: routesChanged},
	{name: "relays-killed-six-in-a-row", strike: crashLoop},
	{name: "settle-reply-lost", postgres: own, strike: settleReplyLost},
	{name: "relay-killed-after-publish-deleting", strike: settling(outbox.SettleDelete, killedAt("after-publish"))},
	{name: "relay-killed-mid-batch-deleting", load: load{payload: 400_000, perSecond: 15, keys: 20},
		strike: settling(outbox.SettleDelete, killedMidBatch)},
	{name: "relay-stopped-after-publish-deleting", strike: settling(outbox.SettleDelete, zombie("after-publish", `"lost":`))},
	{name: "relays-joining-and-leaving-deleting", strike: settling(outbox.SettleDelete, joiningAndLeaving)},
	{name: "settle-reply-lost-deleting", postgres: own, strike: settling(outbox.SettleDelete, settleReplyLost)},
	{name: "relay-killed-after-publish-archiving", strike: settling(outbox.SettleArchive, killedAt("after-publish"))},
	{name: "relay-stopped-after-publish-archiving",
		strike: settling(outbox.SettleArchive, zombie("after-publish", `"lost":`))},
	{name: "settle-reply-lost-archiving", postgres: own, strike: settling(outbox.SettleArchive, settleReplyLost)},
	{name: "postgres-killed-archiving", postgres: own,
		strike: settling(outbox.SettleArchive, databaseDown((*testenv.Postgres).Kill))},
}

// settling strikes a fault of relays that delete or archive what they have delivered.
func settling(mode outbox.SettleMode, strike func(*world) int) func(*world) int {
	return func(w *world) int {
		w.settle = mode
		return strike(w)
	}
}

// settleReplyLost cuts the relay's connections where replies of the database come back, again and
// again: requests arrive, so what was to be settled is settled, and the relay does not know it.
func settleReplyLost(w *world) int {
	failed := " outcomes: settle in " + w.table + ": "
	proxy := newProxy(w.t, w.pg.Addr())
	w.relayDatabase = "postgres://postgres@" + proxy.Listen + "/postgres?sslmode=disable"
	w.produce()
	w.relay(nil)
	w.arrive(50)
	eventually(w.t, "replies to three settles are lost", func() bool {
		proxy.add(w.t, "limit_data", "downstream", "bytes", 1)
		w.pause(20*time.Millisecond, 200*time.Millisecond)
		proxy.heal(w.t)
		w.arrive(1)
		return w.said(failed) >= 3
	})
	w.healed(takeOver)
	return w.said(failed)
}

// killedAt has one relay that dies at the point, again and again, beside one that lives.
func killedAt(point string) func(*world) int {
	return func(w *world) int {
		w.produce()
		for range 3 {
			doomed := w.relay([]string{"OUTBOX_FAULT=" + point + ":" + itoa(10+w.rng.IntN(30)) + ":kill"})
			if len(w.relays) == 1 {
				w.arrive(1)
				w.relay(nil)
			}
			doomed.killed(w.t)
			// One death at a time: a relay that takes over and dies in turn makes events wait for
			// two leases.
			w.healed(takeOver)
		}
		return w.said("struck")
	}
}

// routesChanged has a sink owe events under routes to two, and starts a relay that has no routes:
// what is owed arrives all the same, before what comes after it in its key.
func routesChanged(w *world) int {
	path, err := binary()
	w.must(err)
	settings := filepath.Join(w.t.TempDir(), "outbox.yaml")
	text := "database: " + w.relayDatabase + "\nlease_ttl: " + ttl.String() + "\ntable: [" + w.table + "]\n" +
		"sink: {default: '" + w.relaySink + "', other: 'redis+stream://" + w.redis.Addr() + "?create=true'}\n" +
		"routes: [{table: " + w.table + ", to: [default, other]}]\n"
	w.must(os.WriteFile(settings, []byte(text), 0o600))
	command := func(args ...string) {
		w.t.Helper()
		c := w.process(path, nil, append(args, "--config", settings)...)
		if <-c.exited; c.err != nil {
			w.t.Fatalf("%v: %v\n%s", args, c.err, c.said())
		}
		w.relays = w.relays[:len(w.relays)-1]
	}
	w.produce()
	routed := w.process(path, nil, "relay", "--config", settings)
	w.arrive(50)
	command("pause", "--table", w.table, "--sink", "default", "--reason", "a test")
	w.eventually("the sink owes some", `SELECT count(*) > 50 FROM outbox_deliveries WHERE status = 'pending' AND sink = 'default'`)
	routed.terminate(w.t)
	owed := w.number(`SELECT count(*) FROM outbox_deliveries WHERE status = 'pending' AND sink = 'default'`)
	w.relay(nil)
	command("resume", "--table", w.table, "--sink", "default")
	// What the other sink was too slow to take is owed on: nobody serves it.
	w.eventually("nothing is owed",
		`SELECT count(*) = 0 FROM outbox_deliveries WHERE status = 'pending' AND sink = 'default'`)
	w.healed(takeOver)
	return owed
}

// crashLoop kills six relays in a row at a backlog, each before it has published anything. The
// seventh must not take its time over finding out that nothing is wrong with the events: batches
// are counted, because time says nothing here.
func crashLoop(w *world) int {
	b := w.bulk(size(60_000, 20_000), 1000)
	for range 6 {
		w.relay([]string{"OUTBOX_FAULT=after-claim:1:kill"}).killed(w.t)
	}
	began := time.Now()
	last := w.relay(nil, "--listen", "127.0.0.1:0")
	w.drained(b)
	eventually(w.t, "all batches are settled", func() bool {
		return w.number(`SELECT count(*) FROM outbox_events WHERE status = 'NEW'`) == 0
	})
	batches := metric(last, `outbox_batches_total{table="outbox_events"}`)
	figure("%d events in %d batches, %.0f events/s, the last lease of those killed included", b.size, batches,
		float64(b.size)/time.Since(began).Seconds())
	if batches == 0 || batches > b.size/200 {
		w.t.Errorf("%d events went out in %d batches after six relays were killed, want some, and %d at most", b.size,
			batches, b.size/200)
	}
	w.produce()
	w.arrive(10)
	w.healed(outage)
	return w.said("struck")
}

func killedMidBatch(w *world) int {
	w.produce()
	for range 3 {
		eventually(w.t, "a backlog of several batches", func() bool { return w.acknowledged() >= w.heard.count()+60 })
		w.relay([]string{"OUTBOX_FAULT=mid-batch:1:kill"}).killed(w.t)
	}
	w.relay(nil)
	w.healed(takeOver)
	return w.said("struck")
}

// zombie stops a relay in the middle of a batch for three lease times, while another takes its
// lanes over, and lets it go on. What it must then have said proves that it went on in its batch.
func zombie(point, says string) func(*world) int {
	return func(w *world) int {
		w.produce()
		stopped := w.relay([]string{"OUTBOX_FAULT=" + point + ":" + itoa(20+w.rng.IntN(20)) + ":stop"})
		w.arrive(1)
		w.relay(nil)
		stopped.stopped(w.t)
		w.healed(takeOver)
		time.Sleep(3*ttl - w.recovery)
		stopped.signal(w.t, syscall.SIGCONT)
		time.Sleep(ttl)
		if !strings.Contains(stopped.said(), says) {
			w.t.Errorf("the zombie did not say %s: did it go on in its batch?", says)
		}
		return w.said("struck")
	}
}

// terminated stops the busier of two relays politely, again and again.
func terminated(w *world) (struck int) {
	w.produce()
	first, second := w.relay(nil), w.relay(nil)
	w.arrive(50)
	for range 3 {
		w.pause(0, time.Second)
		first.terminate(w.t)
		struck++
		first, second = second, w.relay(nil)
		w.arrive(200)
	}
	return struck
}

// joiningAndLeaving has up to five relays, of which at random one joins, is stopped or is killed.
func joiningAndLeaving(w *world) (struck int) {
	w.produce()
	duration := 20 * time.Second
	if *long {
		duration = time.Minute
	}
	running := []*relayProcess{w.relay(nil)}
	w.arrive(1)
	for end := time.Now().Add(duration); time.Now().Before(end); w.pause(100*time.Millisecond, 1500*time.Millisecond) {
		struck++
		if len(running) == 0 || len(running) < 5 && w.rng.IntN(2) == 0 {
			running = append(running, w.relay(nil))
			continue
		}
		i := w.rng.IntN(len(running))
		if w.rng.IntN(4) == 0 {
			running[i].kill(w.t)
		} else {
			running[i].terminate(w.t)
		}
		running = append(running[:i], running[i+1:]...)
	}
	if len(running) == 0 {
		w.relay(nil)
	}
	return struck
}

// clocksApart has one relay ten minutes ahead and one ten minutes behind, which take over from each
// other.
func clocksApart(w *world) int {
	path, err := skewed()
	w.must(err)
	w.produce()
	ahead, behind := []string{"OUTBOX_CLOCK_SECONDS=600"}, []string{"OUTBOX_CLOCK_SECONDS=-600"}
	first := w.run(path, ahead)
	w.arrive(1)
	second := w.run(path, behind)
	for _, env := range [][]string{ahead, behind} {
		w.arrive(100)
		first.kill(w.t)
		w.healed(takeOver)
		first, second = second, w.run(path, env)
	}
	w.arrive(100)
	second.terminate(w.t)
	return w.linesFrom(10*time.Minute) + w.linesFrom(-10*time.Minute)
}

// linesFrom counts lines of log whose time is off by about so much.
func (w *world) linesFrom(off time.Duration) (n int) {
	w.t.Helper()
	for _, r := range w.relays {
		for line := range strings.Lines(r.said()) {
			_, after, _ := strings.Cut(line, `"time":"`)
			text, _, _ := strings.Cut(after, `"`)
			at, err := time.Parse(time.RFC3339Nano, text)
			if err == nil && time.Until(at.Add(-off)).Abs() < 2*time.Minute {
				n++
			}
		}
	}
	if n == 0 {
		w.t.Errorf("no relay had a clock that was %s off", off)
	}
	return n
}
