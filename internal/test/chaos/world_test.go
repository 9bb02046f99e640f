package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/internal/test/tracetest"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

// world is what one fault has to itself: a migrated database, Redis with a subscriber, producers,
// relays.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	pg   *testenv.Postgres // nil where the server is shared with other tests
	pool *pgxpool.Pool     // for the test and the producers

	redis      *testenv.Redis
	admin      *redis.Client // for the test
	heard      *subscriber
	reconnects int // of the subscriber that the fault brings with it

	broker *broker // which takes the place of Redis and its subscriber; nil where they are there

	relayDatabase, relaySink string   // what relays connect to: perhaps a proxy
	flags                    []string // of relays, further ones
	relays                   []*relayProcess
	table                    string            // in which the producers write (outbox_events)
	settle                   outbox.SettleMode // the relays'; "" is their default

	*producers
	maxAge   time.Duration // an event may take so long, on a machine that nobody else uses
	slow     testenv.Slow
	recovery time.Duration             // the longest that healed has waited
	dead     int                       // dead letters that there must be
	copies   struct{ least, most int } // that a sink that refuses none may get, beside those of unknown outcomes
	blamed   int                       // events that may have an attempt counted against them all the same
	plains   int64                     // events written by plain SQL
	began    time.Time
}

func newWorld(t *testing.T, f fault) *world {
	t.Helper()
	if _, err := binary(); err != nil { // now, or the first events would wait for the compiler
		t.Fatal(err)
	}
	w := &world{t: t, rng: choices(f.name), began: time.Now(), maxAge: f.maxAge, table: outbox.OutboxEvents().Table}
	url := ""
	if f.postgres == nil {
		url = testenv.Prepared(t, "all",
			func(ctx context.Context, url string) error { return pgmigrations.Up(ctx, url, pgmigrations.Sets...) })
	} else {
		server := testenv.PostgresServer(t, *f.postgres)
		t.Cleanup(func() {
			if t.Failed() {
				text, _ := server.Log()
				t.Logf("PostgreSQL said:\n%s", tail(text))
			}
		})
		w.pg, url = server, server.TCPURL("postgres")
		must(t, pgmigrations.Up(t.Context(), url, pgmigrations.Sets...))
	}
	w.connect(url)
	w.exec(aggregates)
	must(t, tracetest.Watch(t.Context(), w.pool, "", "k00", "k01", "k02"))
	w.relayDatabase = url
	if f.broker == nil {
		w.listen(f.redis)
	} else {
		w.broker = f.broker(w)
		// All events of the world go to one destination.
		w.relaySink, w.flags = w.broker.url, append(w.retrying(), "--destination", w.table+"="+destination)
	}
	writer, err := postgres.NewWriter(outbox.WriterConfig{Source: "chaos"})
	must(t, err)
	w.producers = &producers{load: f.load.withDefaults(), pool: w.pool, writer: writer}
	return w
}

// listen starts Redis with a subscriber, args being further arguments of Redis.
func (w *world) listen(args []string) {
	w.t.Helper()
	// A slow test machine must not look like a lost event: by default Redis cuts subscribers that
	// lag by 32 MB.
	args = append([]string{"--client-output-buffer-limit", "pubsub", "0", "0", "0"}, args...)
	w.redis = testenv.RedisServerWith(w.t, testenv.RedisConfig{Args: args})
	w.relaySink = w.redis.URL()
	w.admin = redis.NewClient(&redis.Options{Network: "unix", Addr: w.redis.Socket(), MaxRetries: -1, PoolSize: 1,
		ReadTimeout: time.Minute})
	w.t.Cleanup(func() { _ = w.admin.Close() })
	w.heard = subscribe(w.t, w.redis)
}

func (w *world) connect(url string) {
	w.t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	w.must(err)
	cfg.MaxConns = 12
	cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	if w.pool, err = pgxpool.NewWithConfig(w.t.Context(), cfg); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.pool.Close)
}

// produce starts the producers. They stop when the fault has been healed, or when the test ends.
func (w *world) produce() {
	w.start(context.WithoutCancel(w.t.Context()), w.rng)
	w.t.Cleanup(func() { w.end() })
}

// underway has producers write and two relays deliver, and returns when n events have arrived, if
// not 0.
func (w *world) underway(n int) {
	w.t.Helper()
	w.produce()
	w.relay(nil)
	w.relay(nil)
	if n > 0 {
		w.arrive(n)
	}
}

// finish waits for everything to drain after the fault, compares, and returns the line about it.
func (w *world) finish(name string, struck int) {
	t := w.t
	t.Helper()
	written := w.end()
	left := `SELECT count(*) = 0 FROM outbox_events WHERE status IN ('NEW', 'FAILED')`
	if w.isLog() {
		left = settledLog
	}
	w.eventually("everything is delivered or dead", left)
	for _, r := range w.relays {
		if r.running() {
			r.terminate(t)
		}
	}
	received := w.received()
	history := outboxtest.History{Written: written, Received: received, Dead: w.deadLetters(),
		MaxAge: w.slow.Stretch(w.maxAge)}
	report := outboxtest.Check(history)
	if w.heard != nil {
		w.heard.bulk.add(&report)
	}
	copies := report.Duplicated
	if w.copies.most > 0 {
		most := w.copies.most + w.retried()
		if n := copies.Count; n < w.copies.least || n > most {
			t.Errorf("%d copies arrived, want %d to %d", n, w.copies.least, most)
		}
		report.Duplicated = outboxtest.Finding{}
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	if report.Acknowledged == 0 || report.Dead != w.dead {
		t.Errorf("%d events acknowledged, want some; %d dead letters, want %d", report.Acknowledged, report.Dead, w.dead)
	}
	if n := w.number(`SELECT count(*) FROM outbox_events WHERE status = 'SENT'`); w.settle.Removes() && n > 0 {
		t.Errorf("%d delivered rows are in the table, in settle mode %s", n, w.settle)
	}
	if n := w.number(`SELECT count(*) FROM outbox_archive`); w.settle == outbox.SettleArchive && n != report.Received {
		t.Errorf("%d rows are archived, of %d events that arrived", n, report.Received)
	}
	if w.isLog() {
		w.unchangedLog()
	}
	forgets := w.pg != nil && w.logged("redo starts at") > 0 // it was killed, or is a standby that has taken over
	asked, err := tracetest.Watched(t.Context(), w.pool, false, forgets)
	if err != nil {
		t.Errorf("the model has no such run: %v", err)
	}
	recovery := w.recovery
	if recovery == 0 {
		recovery = slowest(history) // nothing to heal: an event waits for as long as it takes to notice
	}
	if n := w.number(`SELECT count(*) FROM outbox_events WHERE status = 'SENT' AND retry_count > 0`); n > w.blamed {
		t.Errorf("%d events have an attempt counted against them, though none of this was their fault", n)
	}
	line(t, name, struck, w.began, "%s  recovered in %.2f s  runs of the model %d", counts(report, copies, report.Unknown),
		recovery.Seconds(), asked)
}

// counts is what was found about the events of a world.
func counts(r outboxtest.Report, copies outboxtest.Finding, unknown int) string {
	return fmt.Sprintf("acknowledged %6d  unknown %4d  received %6d  dead %3d  lost %d  invented %d  "+
		"duplicated %d  out of order %d", r.Acknowledged, unknown, r.Received, r.Dead, r.Lost.Count,
		r.Invented.Count, copies.Count, r.OutOfOrder.Count)
}

// slowest is the longest that an acknowledged event took.
func slowest(h outboxtest.History) (most time.Duration) {
	acked := map[string]time.Time{}
	for _, e := range h.Written {
		if e.Outcome == outboxtest.Acknowledged {
			acked[e.ID] = e.At
		}
	}
	for _, r := range h.Received {
		if at, ok := acked[r.ID]; ok {
			most = max(most, r.At.Sub(at))
		}
	}
	return most
}

func (w *world) deadLetters() (dead []outboxtest.DeadLetter) {
	w.t.Helper()
	for _, id := range w.texts("SELECT original_job_id::text FROM job_dlq") {
		dead = append(dead, outboxtest.DeadLetter{ID: id})
	}
	return dead
}

// texts are the values of a query of one column.
func (w *world) texts(sql string) []string {
	w.t.Helper()
	rows, err := w.pool.Query(w.t.Context(), sql)
	w.must(err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	w.must(err)
	return all
}

// plain writes an event of the key by plain SQL. Columns other than the usual ones, and their
// expressions, may be given.
func (w *world) plain(key string, more map[string]string) (id string) {
	w.t.Helper()
	id = uuid.Must(uuid.NewV7()).String()
	row := map[string]string{
		"id": "'" + id + "'", "event_topic": "'order.changed'", "occurred_at": "now()", "source_bc": "'chaos'",
		"aggregate_type": "'Order'", "aggregate_id": "'" + key + "'", "payload": "'{}'",
	}
	maps.Copy(row, more)
	names := slices.Collect(maps.Keys(row))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = row[name]
	}
	w.exec("INSERT INTO " + w.table + " (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")")
	w.plains++
	w.note(outboxtest.Written{ID: id, Key: key, Order: w.plains, Outcome: outboxtest.Acknowledged, At: time.Now()})
	return id
}

// arrive waits for n more messages: the relays are at work.
func (w *world) arrive(n int) {
	w.t.Helper()
	before := w.heard.count()
	eventually(w.t, fmt.Sprint(n, " more messages arrive"), func() bool {
		w.slow.Look()
		return w.heard.count() >= before+n
	})
}

// healed waits until all that was written before now is delivered, which must be within limit. A
// machine that is busy gets twice what programs take longer there: a new connection waits for its
// turn more than once.
func (w *world) healed(limit time.Duration) {
	w.t.Helper()
	began := time.Now()
	var slow testenv.Slow
	var now time.Time
	eventually(w.t, "the database answers",
		func() bool { return w.pool.QueryRow(w.t.Context(), "SELECT clock_timestamp()").Scan(&now) == nil })
	delivered := func() bool {
		var left int
		err := w.pool.QueryRow(w.t.Context(),
			`SELECT count(*) FROM outbox_events WHERE status IN ('NEW', 'FAILED') AND created_at < $1`, now).Scan(&left)
		return err == nil && left == 0
	}
	if w.isLog() {
		delivered = w.delivered()
	}
	eventually(w.t, "what was written before the fault was healed is delivered", func() bool {
		slow.Look()
		return delivered()
	})
	took := time.Since(began)
	w.recovery = max(w.recovery, took)
	if allowed := 2*slow.Stretch(limit) - limit; took > allowed {
		w.t.Errorf("it took %s from the healing of the fault until its backlog was delivered, the limit is %s, on this "+
			"machine %s", took.Round(time.Millisecond), limit, allowed)
	}
}

// pause lets time pass, between least and most.
func (w *world) pause(least, most time.Duration) {
	time.Sleep(least + time.Duration(w.rng.Int64N(int64(most-least)+1)))
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.pool.Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

func (w *world) number(sql string, args ...any) (n int) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// eventually waits for a condition of the database. Errors are waited out: it may be coming back.
func (w *world) eventually(what, sql string) {
	w.t.Helper()
	eventually(w.t, what, func() bool {
		w.slow.Look()
		var ok bool
		return w.pool.QueryRow(w.t.Context(), sql).Scan(&ok) == nil && ok
	})
}

// command sends one command to Redis.
func (w *world) command(args ...any) any {
	w.t.Helper()
	reply, err := w.admin.Do(w.t.Context(), args...).Result()
	if err != nil {
		w.t.Fatalf("%v: %v", args, err)
	}
	return reply
}

// refused is how often Redis has answered with that error, such as OOM.
func (w *world) refused(code string) int {
	w.t.Helper()
	info, err := w.admin.Info(w.t.Context(), "errorstats").Result()
	w.must(err)
	return numberAfter(info, "errorstat_"+code+":count=")
}

// logged counts lines of this world's own PostgreSQL server.
func (w *world) logged(texts ...string) (n int) {
	w.t.Helper()
	log, err := w.pg.Log()
	w.must(err)
lines:
	for line := range strings.Lines(log) {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue lines
			}
		}
		n++
	}
	return n
}

// numberAfter is the number that follows prefix in text, 0 if there is none.
func numberAfter(text, prefix string) int {
	_, after, _ := strings.Cut(text, prefix)
	end := strings.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	n, _ := strconv.Atoi(after[:max(end, 0)])
	return n
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	within(t, tier.Patience(), what, holds)
}

func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("did not come to hold in %s: %s", limit, what)
		}
	}
}

// session opens one that is none of the pool's, of a database of the world's server. What it has
// begun is rolled back when it is closed.
func (w *world) session(database string) (conn *pgx.Conn, closes func()) {
	w.t.Helper()
	config := w.pool.Config().ConnConfig.Copy()
	config.Database = database
	conn, err := pgx.ConnectConfig(w.t.Context(), config)
	w.must(err)
	closes = func() { _ = conn.Close(context.Background()) }
	w.t.Cleanup(closes)
	return conn, closes
}

// database is the name of the world's own.
func (w *world) database() string { return w.pool.Config().ConnConfig.Database }

func itoa(n int) string { return strconv.Itoa(n) }

// must ends the test with an error, if there is one.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) must(err error) {
	w.t.Helper()
	must(w.t, err)
}
