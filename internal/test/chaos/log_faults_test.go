package chaos

import (
	"math"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

// logFaults are those of a log that go by what it has of its own: positions, and what is copied
// into outbox_deliveries.
var logFaults = []fault{
	{name: "relay-killed-after-publish-log", strike: inLog(killedAt("after-publish"))},
	{name: "relay-killed-mid-batch-log", load: load{payload: 400_000, perSecond: 15, keys: 20},
		strike: inLog(killedMidBatch)},
	{name: "relay-stopped-after-publish-log", strike: inLog(zombie("after-publish", `"lost":`))},
	{name: "relays-joining-and-leaving-log", strike: inLog(joiningAndLeaving)},
	{name: "settle-reply-lost-log", postgres: own, strike: inLog(settleReplyLost)},
	// A log refuses no copy of an event that is written twice: the sink does.
	{name: "commit-reply-lost-log", postgres: own, strike: inLog(commitReplyLost(false))},
	{name: "postgres-killed-log", postgres: own, strike: inLog(databaseDown((*testenv.Postgres).Kill))},
	{name: "postgres-failover-to-lagging-log", postgres: own, strike: inLog(failover)},
	{name: "redis-unreachable-log", strike: inLog(unreachable)},
	{name: "sink-refuses-keys-log", strike: inLog(keysRefused(func(*world) {}))},
	{name: "postgres-killed-sink-refuses-log", postgres: own, strike: inLog(keysRefused(func(w *world) {
		w.must(w.pg.Kill())
		w.must(w.pg.Restart())
	}))},
}

// inLog strikes a fault of relays and producers of a log.
func inLog(strike func(*world) int) func(*world) int {
	return func(w *world) int {
		w.must(pgmigrations.Up(w.t.Context(), w.relayDatabase, "log"))
		w.exec(blaming)
		w.table = outbox.OutboxLog().Table
		writer, err := postgres.NewWriter(outbox.WriterConfig{Table: w.table, Source: "chaos"})
		w.must(err)
		w.writer = writer
		return strike(w)
	}
}

// blaming has the database note the events of which an attempt is counted: what is delivered at
// last leaves outbox_deliveries.
const blaming = `CREATE TABLE blamed (event UUID PRIMARY KEY);
	CREATE FUNCTION blame() RETURNS trigger LANGUAGE plpgsql AS
		$$BEGIN INSERT INTO blamed VALUES (NEW.event_id) ON CONFLICT DO NOTHING; RETURN NULL; END$$;
	CREATE TRIGGER blame AFTER INSERT OR UPDATE ON outbox_deliveries FOR EACH ROW WHEN (NEW.attempts > 0)
		EXECUTE FUNCTION blame()`

// isLog tells whether the world's events are in a log.
func (w *world) isLog() bool { return w.table == outbox.OutboxLog().Table }

// keysRefused has Redis refuse the events of some keys, several times, and something else befall
// the relays meanwhile. What is refused goes by outbox_deliveries, and what is behind it in its key
// follows it there.
func keysRefused(meanwhile func(*world)) func(*world) int {
	return func(w *world) (struck int) {
		allow := func(channels ...any) {
			w.command(append([]any{"ACL", "SETUSER", "relay", "resetchannels"}, channels...)...)
		}
		w.command("ACL", "SETUSER", "relay", "on", ">hunter2", "allkeys", "allcommands", "allchannels")
		w.relaySink = "redis://relay:hunter2@" + w.redis.Addr()
		w.flags = append(w.retrying(), "--destination", w.table+"={key}")
		w.blamed = math.MaxInt
		w.underway(0)
		for range 3 {
			w.arrive(200)
			before := w.copied()
			allow("&k1*", "&k2*", "&k3*") // two of five
			eventually(w.t, "what is refused is copied", func() bool { return w.copied() > before+20 })
			meanwhile(w)
			w.pause(0, time.Second)
			struck = w.number(`SELECT count(*) FROM blamed`)
			allow("allchannels")
			w.healed(outage)
		}
		return struck
	}
}

// copied is how many deliveries have been copied into outbox_deliveries. A server that has crashed
// may have counted up to 32 more.
func (w *world) copied() (n int) {
	w.t.Helper()
	w.eventually("the database answers", "SELECT true")
	return w.number(`SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM outbox_deliveries_position_seq`)
}

// settledLog is a query that tells whether everything in a log is settled: every lane has come to
// its end and sees all of it, and no sink owes anything.
const settledLog = `SELECT NOT EXISTS (SELECT FROM outbox_deliveries WHERE status = 'pending') AND NOT EXISTS (
	SELECT FROM generate_series(0, 63) lane WHERE NOT EXISTS (
		SELECT FROM outbox_log_positions p
		 WHERE p.lanes & (1::bigint << lane) <> 0 AND p.late_position IS NULL
		   AND p.position >= (SELECT max(position) FROM outbox_log)
		   AND NOT EXISTS (SELECT FROM outbox_log WHERE NOT pg_visible_in_snapshot(xid, p.snapshot))))`

// unchangedLog checks that a log was only inserted into, and that no event is blamed for what was
// not its fault.
func (w *world) unchangedLog() {
	w.t.Helper()
	if n := w.number(`SELECT count(*) FROM outbox_events`); n > 0 {
		w.t.Errorf("%d events are in outbox_events, and not in the log", n)
	}
	const changed = `SELECT sum(n_tup_upd + n_tup_del)::int FROM pg_stat_user_tables
		WHERE relname ~ '^outbox_log_[0-3]$'`
	if n := w.number(changed); n > 0 {
		w.t.Errorf("%d rows of the log were updated or deleted", n)
	}
	if n := w.number(`SELECT count(*) FROM blamed`); n > w.blamed {
		w.t.Errorf("%d events have an attempt counted against them, though none of this was their fault", n)
	}
}

// delivered waits until all that is acknowledged now has arrived or is dead, of which no row of a
// log tells.
func (w *world) delivered() func() bool {
	w.mu.Lock()
	waiting := map[string]bool{}
	for _, e := range w.written {
		waiting[e.ID] = e.Outcome == outboxtest.Acknowledged
	}
	w.mu.Unlock()
	for id, acknowledged := range waiting {
		if !acknowledged {
			delete(waiting, id)
		}
	}
	heard := 0
	return func() bool {
		w.heard.mu.Lock()
		more := slices.Clone(w.heard.received[heard:])
		w.heard.mu.Unlock()
		heard += len(more)
		for _, r := range more {
			delete(waiting, r.ID)
		}
		if len(waiting) > 0 && w.dead > 0 {
			for _, d := range w.deadLetters() {
				delete(waiting, d.ID)
			}
		}
		return len(waiting) == 0
	}
}
