package chaos

import (
	"fmt"
	"syscall"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// crowd is a server that takes the connections of 50 relays, 5 each.
var crowd = &testenv.PostgresConfig{Settings: map[string]string{"max_connections": "400"}}

// twoThousand is a load of 2000 events a second, in transactions as large as it takes for producers
// that share two processors with everything else.
var twoThousand = load{producers: 6, perSecond: 2000, keys: 500, events: 39}

var scaleFaults = []fault{
	{name: "relays-8-rolling-restart", postgres: crowd, load: twoThousand, strike: rolling(8)},
	{name: "relays-50-rolling-restart", postgres: crowd, load: twoThousand, strike: rolling(50)},
	{name: "keys-1000000", strike: manyKeys},
	{name: "key-of-1000000-events", strike: oneKey},
	{name: "payload-200-mb", heavy: true, strike: oneHugePayload},
	{name: "relay-starved", strike: starved},
}

// size is n in `make chaos LONG=1`, and few otherwise.
func size(n, few int) int {
	if *long {
		return n
	}
	return few
}

// figure prints a line below that of its fault, in `make chaos LONG=1`.
func figure(format string, args ...any) {
	if *long {
		fmt.Printf("%-28s "+format+"\n", append([]any{""}, args...)...)
	}
}

// rolling restarts every relay of n in turn, as a deployment does. Every fifth is killed and not
// stopped.
func rolling(n int) func(*world) int {
	return func(w *world) (struck int) {
		n := size(n, max(4, n/8))
		relays := make([]*relayProcess, n)
		for i := range relays {
			relays[i] = w.relay(nil)
		}
		within(w.t, 2*time.Minute, "every relay has lanes", func() bool {
			return w.number(`SELECT count(DISTINCT owner) FROM outbox_lanes l LEFT JOIN outbox_relays r USING (table_name, owner)
				WHERE greatest(l.expires_at, r.expires_at) > clock_timestamp()`) == n
		})
		w.produce()
		w.arrive(2000)
		before, began := w.acknowledged(), time.Now()
		for i := range relays {
			if i%5 == 4 {
				relays[i].kill(w.t)
			} else {
				relays[i].terminate(w.t)
			}
			relays[i] = w.relay(nil)
			struck++
		}
		w.arrive(2000)
		rate := float64(w.acknowledged()-before) / time.Since(began).Seconds()
		figure("%d relays, %.0f events/s acknowledged during the restarts", n, rate)
		return struck
	}
}

// drained waits until all of the bulk has come.
func (w *world) drained(b *bulk) {
	w.t.Helper()
	within(w.t, 5*time.Minute, "the bulk arrives", func() bool { return w.came() >= b.size })
}

// manyKeys delivers events of a million keys, of which every twentieth has a second event, and has
// a relay die meanwhile.
func manyKeys(w *world) int {
	keys := size(1_000_000, 50_000)
	return w.backlog(w.bulk(keys+keys/20, keys))
}

// oneKey delivers a million events of one key: one lane, one worker, one after the other.
func oneKey(w *world) int {
	return w.backlog(w.bulk(size(1_000_000, 50_000), 1))
}

// backlog delivers the bulk while others write. The relay that has its lanes dies when a third has
// come.
func (w *world) backlog(b *bulk) int {
	first := w.relay(nil)
	within(w.t, 2*time.Minute, "a third of the bulk arrives", func() bool { return w.came() > b.size/3 })
	w.produce()
	first.kill(w.t)
	before, began := w.came(), time.Now()
	w.relay(nil)
	w.relay(nil)
	w.drained(b)
	figure("%.0f events/s, the lease of the one that died included", float64(b.size-before)/time.Since(began).Seconds())
	w.healed(outage)
	return w.said(`"lanes held"`)
}

// oneHugePayload writes an event of 200 MB by plain SQL, which has no limit, between small ones.
// (The largest string that jsonb takes is of 256 MB.)
func oneHugePayload(w *world) int {
	w.underway(50)
	payload := fmt.Sprintf("to_jsonb(repeat('x', %d))", size(200_000_000, 20_000_000))
	id := w.plain("huge", map[string]string{"payload": payload})
	written := time.Now()
	within(w.t, 3*time.Minute, "the large event arrives", func() bool { return w.heard.has(id) })
	figure("arrived after %.1f s", time.Since(written).Seconds())
	w.arrive(50)
	return 1
}

// starved has a relay that gets a twentieth of a processor, with pauses long enough that its lease
// lapses now and then, beside one that gets all it wants.
func starved(w *world) (struck int) {
	w.produce()
	poor := w.relay([]string{"GOMAXPROCS=1"}, "--dedup-window", "30s")
	w.relay(nil, "--dedup-window", "30s")
	w.arrive(50)
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); struck++ {
		poor.signal(w.t, syscall.SIGSTOP)
		w.pause(50*time.Millisecond, 300*time.Millisecond)
		if struck%20 == 10 {
			time.Sleep(ttl)
		}
		poor.signal(w.t, syscall.SIGCONT)
		time.Sleep(10 * time.Millisecond)
	}
	w.healed(takeOver)
	return struck
}
