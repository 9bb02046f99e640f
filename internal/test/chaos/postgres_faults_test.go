package chaos

import (
	"context"
	"net/url"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// own is a PostgreSQL server that a test may break. Its log says who failed with what, and in which
// statement.
var own = &testenv.PostgresConfig{Settings: map[string]string{"log_line_prefix": "%a %e ",
	"max_prepared_transactions": "5"}}

var postgresFaults = []fault{
	{name: "postgres-backends-terminated", strike: backendsTerminated},
	{name: "postgres-immediate-shutdown", postgres: own,
		strike: databaseDown(func(p *testenv.Postgres) error { return syscall.Kill(p.PID(), syscall.SIGQUIT) })},
	{name: "postgres-killed", postgres: own, strike: databaseDown((*testenv.Postgres).Kill)},
	{name: "postgres-restarted", postgres: own, strike: databaseDown(func(*testenv.Postgres) error { return nil })},
	{name: "postgres-disk-full", root: true,
		postgres: &testenv.PostgresConfig{SmallDisk: 96,
			Settings: map[string]string{"max_wal_size": "16MB", "min_wal_size": "2MB"}}, strike: diskFull},
	{name: "postgres-40001", postgres: own, strike: serializationFailures},
	{name: "postgres-40P01", postgres: own, strike: deadlocks},
	{name: "postgres-55P03", postgres: own, strike: lockTimeouts},
	{name: "postgres-open-transaction", postgres: own, strike: openTransaction},
	{name: "postgres-failover-to-lagging", postgres: own, strike: failover},
	{name: "postgres-failover-under-load", postgres: own, load: load{perSecond: 1000, keys: 200, events: 9},
		strike: failoverUnderLoad},
	{name: "postgres-snapshot-held", postgres: own, strike: snapshotHeld},
}

func backendsTerminated(w *world) (struck int) {
	w.underway(50)
	before := w.heard.count()
	for range 30 {
		struck += w.number(`SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'outbox relay %'`)
		time.Sleep(200 * time.Millisecond)
	}
	if meanwhile := w.heard.count() - before; meanwhile < 100 {
		w.t.Errorf("%d events arrived meanwhile: the relays stood still", meanwhile)
	}
	w.healed(takeOver)
	return struck
}

// databaseDown ends the server, several times, and starts it again. Settles that were not on disk
// are lost with it (the relay's commits are asynchronous): what is published again is for Redis to
// refuse.
func databaseDown(end func(*testenv.Postgres) error) func(*world) int {
	return func(w *world) (struck int) {
		w.underway(0)
		for range 3 {
			w.arrive(200)
			w.pause(0, 500*time.Millisecond)
			before, noticed := w.pg.PID(), w.noticed()
			w.must(end(w.pg))
			w.pause(0, time.Second)
			w.must(w.pg.Restart())
			w.healed(takeOver)
			if w.pg.PID() != before && w.noticed() > noticed {
				struck++
			}
		}
		return struck
	}
}

// noticed is how often a relay has said that something is wrong with its database.
func (w *world) noticed() int {
	return w.said("relay cannot make progress") + w.said("cannot renew lease") + w.said("cannot listen")
}

// diskFull fills the disk under the database, several times: statements fail with 53100, or the
// server cannot write its log, crashes and does not come up again until there is room.
func diskFull(w *world) int {
	w.underway(0)
	for range 2 {
		w.arrive(200)
		free, err := w.pg.Fill()
		w.must(err)
		w.pause(2*time.Second, 3*time.Second)
		w.must(free())
		w.must(w.pg.Restart())
		w.healed(takeOver)
	}
	return w.logged("No space left on device")
}

// with gives the relays' sessions, and nobody else's, a server setting of the form name=value.
func (w *world) with(setting string) {
	w.relayDatabase += "&options=-c%20" + url.QueryEscape(setting)
}

// failed counts the relays' claims and settles that failed with an SQLSTATE. A claim only reads the
// table, a settle updates it.
func (w *world) failed(state string) (claims, settles int) {
	w.t.Helper()
	log, err := w.pg.Log()
	w.must(err)
	relays := regexp.MustCompile(`\noutbox relay \S+ (\S+ )?` + state + ` STATEMENT:`) // the version, and the settings' digits
	for _, entry := range relays.Split(log, -1)[1:] {
		statement := indented.FindString(entry)
		switch table, update := strings.Contains(statement, `"outbox_events"`), strings.Contains(statement, "UPDATE"); {
		case table && update:
			settles++
		case table:
			claims++
		}
	}
	return claims, settles
}

// bothFailed tells whether a claim and a settle have failed with an SQLSTATE.
func (w *world) bothFailed(state string) func() bool {
	return func() bool {
		claims, settles := w.failed(state)
		return claims > 0 && settles > 0
	}
}

// indented is a statement in the log: its first line, and those that begin with a tab.
var indented = regexp.MustCompile(`^.*(\n\t.*)*`)

// disturb runs transactions beside the relays for five seconds, and for another five, up to three
// minutes, until hit says that they have struck. An error of one is part of the disturbance.
func (w *world) disturb(hit func() bool, transaction func(context.Context, pgx.Tx) error) {
	w.t.Helper()
	for range 36 {
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); w.pause(0, 20*time.Millisecond) {
			_ = pgx.BeginFunc(w.t.Context(), w.pool, func(tx pgx.Tx) error { return transaction(w.t.Context(), tx) })
		}
		if hit() {
			break
		}
	}
	w.healed(takeOver)
}

// serializationFailures has the relays' transactions serializable, and others that change the rows
// they work on. A settle fails when it would change what another has changed since. A claim changes
// nothing, so it takes three to make it fail: it reads what a second is about to commit, which has
// read what a third has changed and committed. The second is prepared (two-phase commit), or it
// would be the one that is ended.
func serializationFailures(w *world) int {
	w.with("default_transaction_isolation=serializable")
	w.exec("CREATE TABLE third (n int); INSERT INTO third VALUES (0)")
	w.underway(50)
	w.disturb(w.bothFailed("40001"), func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL SERIALIZABLE`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT n FROM third`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `UPDATE outbox_events SET metadata = '{}' WHERE status = 'NEW'`); err != nil {
			return err
		}
		if w.rng.IntN(2) == 0 {
			time.Sleep(10 * time.Millisecond)
			return nil
		}
		if _, err := w.pool.Exec(ctx, `BEGIN ISOLATION LEVEL SERIALIZABLE; UPDATE third SET n = n + 1; COMMIT`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `PREPARE TRANSACTION 'second'`); err != nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
		_, err := tx.Exec(ctx, `COMMIT PREPARED 'second'`)
		return err
	})
	claims, settles := w.failed("40001")
	if claims == 0 || settles == 0 {
		w.t.Errorf("%d claims and %d settles failed, want some of both", claims, settles)
	}
	return claims + settles
}

// deadlocks has another transaction lock the rows of a batch from its end, while the settle locks
// them from its beginning. The relay looks for deadlocks first, so it is the one that is ended. (A
// claim is a plain read of one table: it waits for nothing that could wait for it.)
func deadlocks(w *world) int {
	w.with("deadlock_timeout=10ms")
	w.underway(50)
	settleFailed := func() bool { _, settles := w.failed("40P01"); return settles > 0 }
	w.disturb(settleFailed, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT position FROM outbox_events WHERE status = 'NEW' ORDER BY position DESC LIMIT 20`)
		if err != nil {
			return err
		}
		positions, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		for _, position := range positions {
			if _, err := tx.Exec(ctx, `SELECT FROM outbox_events WHERE position = $1 FOR UPDATE`, position); err != nil {
				return err
			}
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	_, settles := w.failed("40P01")
	return settles
}

// lockTimeouts has rows locked for longer than the relays wait, and the whole table now and then,
// which is what makes a claim wait.
func lockTimeouts(w *world) int {
	w.underway(50)
	turn := 0
	w.disturb(w.bothFailed("55P03"), func(ctx context.Context, tx pgx.Tx) error {
		lock := `SELECT FROM outbox_events WHERE status = 'NEW' FOR UPDATE`
		if turn++; turn%2 == 0 {
			lock = `LOCK TABLE outbox_events IN ACCESS EXCLUSIVE MODE`
		}
		if _, err := tx.Exec(ctx, lock); err != nil {
			return err
		}
		time.Sleep(700 * time.Millisecond) // a relay waits for 500
		return nil
	})
	claims, settles := w.failed("55P03")
	if claims == 0 || settles == 0 {
		w.t.Errorf("%d claims and %d settles failed, want some of both", claims, settles)
	}
	return claims + settles
}

// openTransaction leaves a transaction open for the whole run, in this database and in another one,
// each with a snapshot and an id: no dead row version of the queue can be removed meanwhile.
func openTransaction(w *world) (struck int) {
	w.exec("CREATE DATABASE neighbour")
	for _, database := range []string{w.database(), "neighbour"} {
		conn, _ := w.session(database)
		_, err := conn.Exec(w.t.Context(),
			`BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id(); SET application_name = 'left open'`)
		w.must(err)
	}
	w.underway(0)
	time.Sleep(8 * time.Second)
	w.exec("VACUUM outbox_events")
	if kept := w.number(`SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'outbox_events'`); kept == 0 {
		w.t.Error("VACUUM removed every dead row version: the transactions held nothing back")
	}
	return w.number(`SELECT count(*) FROM pg_stat_activity WHERE application_name = 'left open' AND state = 'idle in transaction' AND backend_xid IS NOT NULL`)
}
