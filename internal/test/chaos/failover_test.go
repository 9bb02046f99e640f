package chaos

import (
	"errors"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
)

// standby gives the primary a replica, and whoever connects from now on both addresses. The pool is
// one to the replica itself.
func (w *world) standby() *pgxpool.Pool {
	w.t.Helper()
	standby, err := w.pg.Standby(w.t.Context())
	if errors.Is(err, testenv.ErrNoBackup) {
		w.t.Skip(err)
	}
	w.must(err)
	w.t.Cleanup(func() { _ = standby.Stop() })
	both, err := url.Parse(w.relayDatabase)
	w.must(err)
	second, err := url.Parse(standby.TCPURL("postgres"))
	w.must(err)
	both.Host += "," + second.Host
	both.RawQuery += "&target_session_attrs=read-write"
	w.relayDatabase = both.String()
	on, err := pgxpool.New(w.t.Context(), second.String())
	w.must(err)
	w.t.Cleanup(on.Close)
	return on
}

// cutOff has the replica receive nothing any more.
func (w *world) cutOff(standby *pgxpool.Pool) {
	w.t.Helper()
	for _, sql := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		if _, err := standby.Exec(w.t.Context(), sql); err != nil {
			w.t.Fatal(err)
		}
	}
}

// forgive takes back the acknowledgements of events that the new primary does not have: they are
// lost with the old one, as with any asynchronous replication, and may have arrived or not. Those
// of the new primary's era are not forgiven.
func (w *world) forgive(before []outboxtest.Written) {
	w.t.Helper()
	survived := map[string]bool{}
	for _, id := range w.texts("SELECT id::text FROM " + w.table) {
		survived[id] = true
	}
	lost := 0
	for i := range before {
		if e := &before[i]; e.Outcome == outboxtest.Acknowledged && e.Order < 1<<40 && !survived[e.ID] {
			e.Outcome = outboxtest.Unknown
			lost++
		}
	}
	if lost == 0 {
		w.t.Error("the standby had everything: it did not lag")
	}
}

// failover loses the primary while its standby lags. The new primary gives the positions that were
// lost out again, to other events, and none of those may be taken for the old ones.
func failover(w *world) int {
	standby := w.standby()
	w.underway(300)
	w.cutOff(standby)
	w.arrive(600) // the standby has none of it
	last := w.number("SELECT max(position) FROM " + w.table)
	before := w.end()
	w.must(w.pg.Kill())
	if _, err := standby.Exec(w.t.Context(), "SELECT pg_promote()"); err != nil {
		w.t.Fatal(err)
	}
	w.connect(w.relayDatabase)
	w.forgive(before)
	top := w.number("SELECT max(position) FROM " + w.table)
	w.producers = &producers{load: w.load, pool: w.pool, writer: w.writer, written: before}
	w.era.Store(1)
	w.produce()
	w.arrive(900)
	return w.number("SELECT count(*) FROM "+w.table+" WHERE position > $1 AND position <= $2", top, last)
}

// failoverUnderLoad is the same while producers go on: they and the relays find the new primary by
// themselves. Settles that the standby did not have are published again, and refused.
func failoverUnderLoad(w *world) int {
	standby := w.standby()
	w.connect(w.relayDatabase)
	w.producers.pool = w.pool
	w.underway(500)
	w.cutOff(standby)
	w.arrive(1000)
	w.must(w.pg.Kill())
	time.Sleep(200 * time.Millisecond) // what was acknowledged is recorded
	w.era.Store(1)
	if _, err := standby.Exec(w.t.Context(), "SELECT pg_promote()"); err != nil {
		w.t.Fatal(err)
	}
	promoted := w.acknowledged()
	eventually(w.t, "producers have found the new primary", func() bool { return w.acknowledged() > promoted+1000 })
	w.healed(takeOver)
	w.forgive(w.end())
	return w.number("SELECT count(*) FROM outbox_events WHERE status = 'SENT'")
}
