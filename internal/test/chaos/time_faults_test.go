package chaos

import (
	"math"
	"syscall"
	"time"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

var timeFaults = []fault{
	{name: "postgres-clock-jumps", postgres: &testenv.PostgresConfig{Clock: true}, strike: clockJumps},
	{name: "postgres-clock-set-back-as-relay-dies", postgres: &testenv.PostgresConfig{Clock: true},
		strike: setBackAsRelayDies},
	{name: "relays-stopped-past-window", strike: stoppedPastWindow},
	{name: "relays-in-several-zones", strike: severalZones},
}

// severalZones has relays whose sessions are in zones 23 hours apart serve a table of times without
// a zone, and kills them in turn while Redis refuses some keys: each retry is written by one relay,
// and due for another.
func severalZones(w *world) (struck int) {
	var zone string
	w.must(w.pool.QueryRow(w.t.Context(), "SHOW timezone").Scan(&zone))
	w.exec(`ALTER TABLE outbox_events ALTER created_at TYPE timestamp, ALTER occurred_at TYPE timestamp,
		ALTER processed_at TYPE timestamp, ALTER next_retry_at TYPE timestamp`)
	w.must(pgmigrations.UpIn(w.t.Context(), w.pool.Config().ConnString(), zone))
	w.command("ACL", "SETUSER", "relay", "on", ">hunter2", "allkeys", "allcommands", "allchannels")
	w.relaySink = "redis://relay:hunter2@" + w.redis.Addr()
	w.flags = append(w.retrying(), "--destination", w.table+"={key}")
	w.blamed = math.MaxInt
	w.produce()
	var last *relayProcess
	for _, zone := range []string{"Pacific/Auckland", "Pacific/Pago_Pago", "UTC", "America/New_York"} {
		r := w.relay([]string{"PGTZ=" + zone})
		w.arrive(100)
		w.command("ACL", "SETUSER", "relay", "resetchannels", "&k1*", "&k2*", "&k3*")
		failed := func() int { return w.number(`SELECT count(*) FROM outbox_events WHERE status = 'FAILED'`) }
		eventually(w.t, "retries wait", func() bool { return failed() > 0 })
		if last != nil {
			last.kill(w.t)
		}
		last = r
		struck += failed()
		if off := w.number(`SELECT count(*) FROM outbox_events
			WHERE abs(extract(epoch FROM next_retry_at - now()::timestamp)) > 120`); off > 0 {
			w.t.Errorf("%d retries are due hours early or late", off)
		}
		w.command("ACL", "SETUSER", "relay", "resetchannels", "allchannels")
		w.healed(outage)
	}
	return struck
}

// clockJumps sets the clock of the database's machine forward and back, by more and by less than a
// lease. Leases lapse at once, or would hold for an hour.
func clockJumps(w *world) (struck int) {
	w.underway(100)
	const m, s = time.Minute, time.Second
	for _, ahead := range []time.Duration{10 * m, 0, -60 * m, 2 * s, -2 * s, 24 * 60 * m, 0} {
		before := w.now()
		w.must(w.pg.SetClock(ahead))
		if jump := w.now().Sub(before); jump.Abs() > time.Second {
			struck++
		}
		w.caughtUp(takeOver)
		w.pause(0, ttl)
	}
	return struck
}

// now is what the database's clock says.
func (w *world) now() (at time.Time) {
	w.t.Helper()
	w.must(w.pool.QueryRow(w.t.Context(), "SELECT clock_timestamp()").Scan(&at))
	return at
}

// caughtUp is healed, for a database whose times say nothing: it counts.
func (w *world) caughtUp(limit time.Duration) {
	w.t.Helper()
	began, written := time.Now(), w.acknowledged()
	eventually(w.t, "what was acknowledged before now has arrived", func() bool { return w.heard.count() >= written })
	took := time.Since(began)
	w.recovery = max(w.recovery, took)
	if took > limit {
		w.t.Errorf("it took %s until what was acknowledged had arrived, the limit is %s", took.Round(time.Millisecond), limit)
	}
}

// stoppedPastWindow stops relays at every point of a turn, and at one that chance chooses, for so
// long that Redis has forgotten what they published. When they wake up, the lease alone is between
// them and a second copy: each must see that its time is over before it sends anything.
func stoppedPastWindow(w *world) (struck int) {
	const window = 3 * ttl // longer than a take-over; remembered for two at most
	flags := []string{"--dedup-window", window.String()}
	w.produce()
	w.relay(nil, flags...)
	w.arrive(50)
	var stopped []*relayProcess
	for _, point := range []string{"after-claim", "before-publish", "after-publish", "before-settle", ""} {
		var env []string
		if point != "" {
			env = []string{"OUTBOX_FAULT=" + point + ":" + itoa(5+w.rng.IntN(20)) + ":stop"}
		}
		r := w.relay(env, flags...)
		stopped = append(stopped, r)
		if point == "" {
			w.arrive(200)
			w.pause(0, time.Second)
			r.signal(w.t, syscall.SIGSTOP)
		}
		r.stopped(w.t)
		w.healed(takeOver) // one at a time: what two of them had published would wait for two leases
	}
	time.Sleep(2 * window)
	for _, r := range stopped {
		r.signal(w.t, syscall.SIGCONT)
		w.arrive(100)
		r.terminate(w.t)
		struck++
	}
	return struck
}

// setBackAsRelayDies is a machine with the database and a relay on it that dies, and comes back
// with a clock that is an hour behind. Nobody is left to renew the lease of the relay that died,
// which ends an hour from now by that clock. An end within ten minutes is believed
// (lease_sweep.sql).
func setBackAsRelayDies(w *world) int {
	w.produce()
	first := w.relay(nil)
	w.arrive(100)
	first.kill(w.t)
	w.must(w.pg.SetClock(-time.Hour))
	w.relay(nil)
	w.caughtUp(outage)
	return 1
}
