package chaos

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// stuckFaults are about one row, one lane or one statement that cannot be worked on while the
// server is well. Everything else goes on meanwhile.
var stuckFaults = []fault{
	{name: "settle-refused-by-trigger", strike: refusedByTrigger},
	{name: "settle-refused-by-policy", postgres: own, strike: refusedByPolicy},
	{name: "settle-refused", postgres: own, strike: settleRefused},
	{name: "row-locked-by-operator", strike: rowLocked(`UPDATE outbox_events SET metadata = '{}' WHERE id = $1`)},
	{name: "row-share-locked", strike: rowLocked(`SELECT FROM outbox_events WHERE id = $1 FOR SHARE`)},
	{name: "lanes-locked-by-operator", strike: lanesLocked},
	{name: "trial-beside-locked-row", strike: trialBesideLockedRow},
	{name: "postgres-away-longer-than-window", postgres: own, load: fifteenHundred, strike: awayLongerThanWindow},
	{name: "one-table-under-two-names", strike: twoNames},
	{name: "claim-runs-into-statement-timeout", postgres: own, strike: claimsTimeOut},
	{name: "occurred-at-year-294276", strike: farTimes},
}

var fifteenHundred = load{perSecond: 1500, keys: 200, events: 19}

// undelivered is the condition of rows that have not been settled for good.
const undelivered = `status IN ('NEW', 'FAILED')`

// promptly is how soon the others must be delivered on a machine with nothing else to do.
const promptly = 5 * time.Second

// stuckKey is the key of the row that cannot be worked on.
const stuckKey = "stuck"

// untroubled is how long the others take before there is trouble: what the machine does at the
// time. One that is busy gets ten times as much on top.
func (w *world) untroubled() (limit time.Duration) {
	w.t.Helper()
	began := time.Now()
	w.others("")
	return promptly + 10*time.Since(began)
}

// others waits until what other keys have written before now is delivered. Rows of the lanes in the
// condition are left out of account.
func (w *world) others(except string) {
	w.t.Helper()
	now := w.now()
	eventually(w.t, "what the other keys have written is delivered", func() bool {
		return w.number(`SELECT count(*) FROM outbox_events
			WHERE `+undelivered+` AND created_at < $1 AND aggregate_id <> $2 `+except, now, stuckKey) == 0
	})
}

// othersGoOn looks three times, while the trouble lasts, and requires each time that every other
// key has been served in time.
func (w *world) othersGoOn(limit time.Duration, except string) {
	w.t.Helper()
	for range 3 {
		time.Sleep(time.Second)
		began := time.Now()
		w.others(except)
		took := time.Since(began)
		w.recovery = max(w.recovery, took)
		if took > limit {
			w.t.Errorf("beside a row in trouble the other keys were served in %s, the limit is %s", took, limit)
		}
	}
}

// stuck writes an event of the key, to be delivered a little later: until then the test can get at
// it.
func (w *world) stuck(after time.Duration) (id string) {
	w.t.Helper()
	due := fmt.Sprintf("now() + interval '%d ms'", after.Milliseconds())
	return w.plain(stuckKey, map[string]string{"next_retry_at": due})
}

// due tells whether the row is still undelivered although its time has come: 1 or 0.
func (w *world) due(id string) int {
	w.t.Helper()
	return w.number(`SELECT count(*) FROM outbox_events WHERE id = $1 AND `+undelivered, id)
}

// settled waits until the row itself is.
func (w *world) settled() {
	w.t.Helper()
	eventually(w.t, "the row itself is settled", func() bool {
		return w.number(`SELECT count(*) FROM outbox_events WHERE aggregate_id = $1 AND `+undelivered, stuckKey) == 0
	})
}

// letGo has what waits for its cause to be removed tried at once. By itself it would come too,
// within the hour.
func (w *world) letGo() {
	w.t.Helper()
	w.exec(`UPDATE outbox_events SET next_retry_at = now() WHERE aggregate_id = $1 AND `+undelivered, stuckKey)
	w.settled()
}

// refusedByTrigger has a trigger of the application's raise an error for one row, whatever is to
// become of it.
func refusedByTrigger(w *world) int {
	w.underway(100)
	limit := w.untroubled()
	w.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql
			AS $$ BEGIN RAISE EXCEPTION 'this row is not to be changed'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON outbox_events
			FOR EACH ROW WHEN (OLD.aggregate_id = '` + stuckKey + `') EXECUTE FUNCTION refuse()`)
	id := w.plain(stuckKey, nil)
	w.plain(stuckKey, nil)
	w.othersGoOn(limit, "")
	struck := w.due(id)
	w.exec(`DROP TRIGGER refuse ON outbox_events`)
	w.letGo()
	w.healed(outage)
	return struck
}

// refusedByPolicy has a policy refuse one dead letter to the relay's role, under row-level
// security.
func refusedByPolicy(w *world) int {
	w.must(migrations.ApplyRoles(w.t.Context(), w.pool.Config().ConnString()))
	w.exec(`CREATE ROLE daemon LOGIN IN ROLE outbox_relay;
		CREATE POLICY refuse ON job_dlq AS RESTRICTIVE
			FOR INSERT TO outbox_relay WITH CHECK (event_key <> '` + stuckKey + `')`)
	w.relayDatabase = strings.Replace(w.relayDatabase, "//postgres@", "//daemon@", 1)
	w.underway(100)
	limit := w.untroubled()
	w.exec(`ALTER TABLE outbox_events DISABLE TRIGGER outbox_events_refuse`) // as of a table without that trigger
	id := w.plain(stuckKey, map[string]string{"destination_topics": `'["fine", ""]'`})
	w.exec(`ALTER TABLE outbox_events ENABLE TRIGGER outbox_events_refuse`)
	w.dead++
	w.othersGoOn(limit, "")
	struck := w.due(id)
	w.exec(`DROP POLICY refuse ON job_dlq`)
	w.letGo()
	w.healed(outage)
	return struck
}

// settleRefused takes the right to settle away from the relay's role, under load, and gives it
// back.
func settleRefused(w *world) int {
	w.must(migrations.ApplyRoles(w.t.Context(), w.pool.Config().ConnString()))
	w.exec(`CREATE ROLE daemon LOGIN IN ROLE outbox_relay`)
	w.relayDatabase = strings.Replace(w.relayDatabase, "//postgres@", "//daemon@", 1)
	const workers, batch = 2, 100 // the relay's loops, and what each may publish at a time
	listen := freeAddress(w.t)
	w.produce()
	w.relay(nil, "--batch", itoa(batch), "--listen", listen)
	w.arrive(100)
	readiness := func() (int, string) {
		response, err := http.Get("http://" + listen + "/readyz")
		w.must(err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		w.must(err)
		return response.StatusCode, string(body)
	}
	eventually(w.t, "the relay is ready", func() bool { status, _ := readiness(); return status == http.StatusOK })

	w.exec(`REVOKE UPDATE (status) ON outbox_events FROM outbox_relay`)
	b := w.bulk(3000, 500)
	eventually(w.t, "/readyz says what is missing", func() bool {
		status, body := readiness()
		return status == http.StatusServiceUnavailable && strings.Contains(body, "UPDATE (status") &&
			strings.Contains(body, "outbox migrate roles")
	})
	time.Sleep(5 * time.Second) // with the right gone, another batch would go out in each of them
	struck := w.said("nothing is published") + w.said("lacks privileges")
	if n := w.came(); n > workers*batch {
		w.t.Errorf("%d events were published while none could be settled, want a batch a worker, %d", n, workers*batch)
	}

	w.exec(`GRANT UPDATE (status) ON outbox_events TO outbox_relay`)
	w.healed(outage)
	w.drained(b)
	eventually(w.t, "the relay is ready again", func() bool { status, _ := readiness(); return status == http.StatusOK })
	if n := w.number(`SELECT count(*) FROM outbox_events WHERE next_retry_at IS NOT NULL`); n > 0 {
		w.t.Errorf("%d rows were told to wait by what the role had no right to", n)
	}
	return struck
}

// lock opens a session that keeps a lock on the row until it is released.
func (w *world) lock(sql string, args ...any) (release func()) {
	w.t.Helper()
	conn, release := w.session(w.database())
	_, err := conn.Exec(w.t.Context(), "BEGIN")
	w.must(err)
	locked, err := conn.Exec(w.t.Context(), sql, args...)
	w.must(err)
	if locked.RowsAffected() == 0 {
		w.t.Fatalf("%s locked nothing", sql)
	}
	return release
}

// heldBack writes two events of the key, and locks the row of the first by a statement, before it
// is delivered.
func (w *world) heldBack(sql string) (id string, release func()) {
	w.t.Helper()
	for range 10 {
		id = w.stuck(time.Second)
		w.stuck(time.Second)
		release = w.lock(sql, id)
		if w.due(id) == 1 {
			return id, release
		}
		release() // on a busy machine it may have been delivered meanwhile
	}
	w.t.Fatal("no row could be locked within a second")
	return "", nil
}

// rowLocked has an operator's transaction hold a row that is due.
func rowLocked(sql string) func(*world) int {
	return func(w *world) int {
		w.underway(100)
		limit := w.untroubled()
		id, release := w.heldBack(sql)
		time.Sleep(time.Second)
		w.othersGoOn(limit, "")
		struck := w.due(id)
		release()
		w.settled()
		w.healed(outage)
		return struck
	}
}

// lanesLocked has an operator lock the rows of all lanes for less than a lease, which nobody may
// notice, and then those of an eighth for several leases: events of the other lanes go on.
func lanesLocked(w *world) (struck int) {
	w.underway(100)
	limit := w.untroubled()
	// A lane that one relay has given up, and the other has not taken yet, would be nobody's for as
	// long as it is locked.
	w.eventually("both relays have their lanes", `SELECT count(DISTINCT owner) = 2 AND count(owner) = 64
		FROM outbox_lanes WHERE table_name = 'outbox_events'`)
	release := w.lock(`SELECT FROM outbox_lanes FOR UPDATE`)
	time.Sleep(ttl / 2)
	began := time.Now()
	w.others("")
	if took := time.Since(began); took > limit {
		w.t.Errorf("while the lanes were locked all keys were served in %s, the limit is %s", took, limit)
	}
	release()
	release = w.lock(`SELECT FROM outbox_lanes WHERE lane % 8 = 0 FOR UPDATE`)
	for end := time.Now().Add(3 * ttl); time.Now().Before(end); struck++ {
		w.othersGoOn(limit, "AND trace.lane(outbox_events) % 8 <> 0")
	}
	release()
	w.healed(takeOver)
	return struck
}

// trialBesideLockedRow has one process serve two tables. In one a row is locked; of the other
// relays have died, so that its events are tried in small batches, at which no other worker of the
// process may be busy.
func trialBesideLockedRow(w *world) int {
	first := w.relay(nil, "--table", "event_outbox") // which makes the rows of the lanes
	w.eventually("the lanes are there", `SELECT count(*) = 64 FROM outbox_lanes WHERE table_name = 'event_outbox'`)
	first.terminate(w.t)
	w.exec(`UPDATE outbox_lanes SET trial_size = 4 WHERE table_name = 'event_outbox'`)
	w.produce()
	w.relay(nil, "--table", "event_outbox")
	w.arrive(100)
	limit := w.untroubled()
	id, release := w.heldBack(`SELECT FROM outbox_events WHERE id = $1 FOR UPDATE`)
	time.Sleep(time.Second)
	for n := range 20 {
		id, key := uuid.NewString(), fmt.Sprint("bus", n)
		w.exec(`INSERT INTO event_outbox (app_id, event_id, event_type, payload, event_key)
			SELECT id, $1, 'bus.offered', '{}', $2 FROM apps WHERE namespace = 'default'`, id, key)
		w.note(outboxtest.Written{ID: id, Key: key, Outcome: outboxtest.Acknowledged, At: time.Now()})
	}
	w.eventually("the other table's events are published",
		`SELECT count(*) = 0 FROM event_outbox WHERE status <> 'published'`)
	w.othersGoOn(limit, "")
	struck := w.due(id) * w.said("like it in small batches")
	release()
	w.settled()
	w.healed(outage)
	return struck
}

// awayLongerThanWindow crashes the database and keeps it away until Redis has forgotten what was
// published before. Two relays are alive all the time. What they had published and settled last may
// be gone with the crash.
func awayLongerThanWindow(w *world) (struck int) {
	window, away := 2*time.Second, 3*2*time.Second // remembered for two windows at most
	if *long {
		window, away = 2*time.Minute, 5*time.Minute
	}
	flags := []string{"--dedup-window", window.String(), "--lease-ttl", "2s"}
	w.produce()
	w.relay(nil, flags...)
	w.relay(nil, flags...)
	w.arrive(3000)
	for range size(1, 2) {
		w.must(syscall.Kill(w.pg.PID(), syscall.SIGQUIT))
		time.Sleep(away)
		w.must(w.pg.Restart())
		w.healed(outage)
		w.arrive(1500)
		struck++
	}
	return struck
}

// twoNames has two relays serve one table under two names. Nothing refuses a copy: what keeps them
// apart is the lease, a longer one than that of others: a batch whose answer is not waited for, as
// the lease ends, may come again.
func twoNames(w *world) int {
	layout := filepath.Join(w.t.TempDir(), "layout.yaml")
	const name = "public.outbox_events"
	w.must(os.WriteFile(layout, []byte("- table: "+name+"\n  like: outbox_events\n"), 0o600))
	path, err := binary()
	w.must(err)
	w.produce()
	rules := []string{"--lease-ttl", "10s", "--dedup-window", "0"}
	w.relay(nil, rules...)
	second := w.process(path, nil, slices.Concat([]string{"relay", "--database", w.relayDatabase, "--sink", w.relaySink,
		"--layouts", layout, "--table", name}, rules)...)
	w.arrive(2000)
	w.healed(takeOver)
	w.copies.most = w.retried()
	return strings.Count(second.said(), `"lanes held"`)
}

// claimsTimeOut gives the relays' sessions a statement_timeout that a claim of thousands of large
// rows exceeds, and one of a hundred does not.
func claimsTimeOut(w *world) int {
	w.exec(`CREATE TABLE large AS SELECT jsonb_agg(n) AS payload FROM generate_series(1, 3000) n`)
	rows, err := w.pool.Query(w.t.Context(), `
		INSERT INTO outbox_events (occurred_at, source_bc, aggregate_type, aggregate_id, event_topic, payload)
		SELECT now(), 'chaos', 'Order', 'large' || n, 'order.imported', payload FROM large, generate_series(1, 4000) n
		RETURNING id::text, aggregate_id`)
	w.must(err)
	var id, key string
	_, err = pgx.ForEachRow(rows, []any{&id, &key}, func() error {
		w.note(outboxtest.Written{ID: id, Key: key, Outcome: outboxtest.Acknowledged, At: time.Now()})
		return nil
	})
	w.must(err)
	began := time.Now()
	w.exec(`SELECT sum(length(payload::text)) FROM outbox_events`)
	w.with("statement_timeout=" + itoa(int(max(time.Since(began)/4, 100*time.Millisecond).Milliseconds())))
	w.produce()
	w.relay(nil)
	w.eventually("the large rows are delivered",
		`SELECT count(*) = 0 FROM outbox_events WHERE aggregate_id LIKE 'large%' AND `+undelivered)
	w.healed(outage)
	claims, _ := w.failed("57014")
	return claims
}

// farTimes writes events with times that RFC 3339 cannot say. Whatever is made of them, a message
// has a time that its reader understands.
func farTimes(w *world) int {
	w.produce()
	w.relay(nil)
	for n, at := range []string{"294276-12-31 23:59:59Z", "10000-01-01", "4713-01-01 BC", "infinity", "-infinity"} {
		w.plain(fmt.Sprint("far", n), map[string]string{"occurred_at": "timestamptz '" + at + "'"})
	}
	w.arrive(200)
	w.healed(outage)
	w.dead = w.number(`SELECT count(*) FROM job_dlq`)
	return w.number(`SELECT count(*) FROM outbox_events WHERE aggregate_id LIKE 'far%' AND NOT ` + undelivered)
}
