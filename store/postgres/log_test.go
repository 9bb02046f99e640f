package postgres_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
)

// logged is a database with a log, and what relays have delivered from it.
type logged struct {
	t      testing.TB
	pool   *pgxpool.Pool
	writer *postgres.Writer

	relays []func() // stop those that were started

	mu   sync.Mutex
	got  []outbox.Delivery
	fail func(outbox.Delivery) error
}

func newLog(t testing.TB) *logged {
	t.Helper()
	l := &logged{t: t, pool: newPool(t, newDatabase(t, "core", "log"))}
	var err error
	l.writer, err = postgres.NewWriter(outbox.WriterConfig{Table: "outbox_log", Source: "test"})
	ok(t, err)
	return l
}

// as returns sessions of a login that has a role and nothing else.
func (l *logged) as(role string) *pgxpool.Pool {
	l.t.Helper()
	login := role + "_" + one[string](l.t, l.pool, "SELECT current_database()")
	_, err := l.pool.Exec(l.t.Context(), "CREATE ROLE "+login+" LOGIN IN ROLE "+role)
	ok(l.t, err)
	at, err := url.Parse(l.pool.Config().ConnString())
	ok(l.t, err)
	at.User = url.User(login)
	pool := newPool(l.t, at.String())
	l.t.Cleanup(func() {
		pool.Close()
		_, err := l.pool.Exec(context.Background(), "DROP OWNED BY "+login+"; DROP ROLE "+login)
		ok(l.t, err)
	})
	return pool
}

// keyed returns an event of a key whose payload is a number.
func keyed(key string, n int) outbox.Event {
	e := event("order.changed")
	e.AggregateType, e.AggregateID, e.Payload = "Order", key, json.RawMessage(fmt.Sprint(n))
	return e
}

func (l *logged) write(events ...outbox.Event) {
	l.t.Helper()
	ok(l.t, pgx.BeginFunc(l.t.Context(), l.pool, func(tx pgx.Tx) error {
		return l.writer.Write(l.t.Context(), tx, events...)
	}))
}

// begin returns an open transaction in which the events are written.
func (l *logged) begin(events ...outbox.Event) pgx.Tx {
	l.t.Helper()
	tx, err := l.pool.Begin(l.t.Context())
	ok(l.t, err)
	l.t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	ok(l.t, l.writer.Write(l.t.Context(), tx, events...))
	return tx
}

func (l *logged) publish(_ context.Context, d outbox.Delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail != nil {
		if err := l.fail(d); err != nil {
			return err
		}
	}
	l.got = append(l.got, d)
	return nil
}

func (l *logged) failing(by func(outbox.Delivery) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = by
}

// arrived are the ids of what was delivered, in its order.
func (l *logged) arrived() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	ids := make([]string, len(l.got))
	for i, d := range l.got {
		ids[i] = d.ID.String()
	}
	return ids
}

// relay runs one until stop is called or the test ends.
func (l *logged) relay(change ...func(*relay.Config)) (stop func()) {
	l.t.Helper()
	return l.relayBy(l.pool, l.publish, func() bool { return false }, change...)
}

// relayBy is relay with a pool and a sink of its own. One that is dead need not end well.
func (l *logged) relayBy(
	pool *pgxpool.Pool, sink outbox.SinkFunc, dead func() bool, change ...func(*relay.Config),
) (stop func()) {
	l.t.Helper()
	cfg := relay.Config{
		Tables:  []relay.Table{{Layout: outbox.OutboxLog()}},
		PollMin: time.Millisecond, PollMax: 10 * time.Millisecond, LeaseTTL: 2 * time.Second,
		Backoff: relay.Backoff{Base: 10 * time.Millisecond},
		Logger:  slog.New(slog.NewTextHandler(l.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	cfg.Retention.After, cfg.LetterRetention.After = -1, -1
	for _, f := range change {
		f(&cfg)
	}
	r, err := relay.New(postgres.NewDB(pool), sink, cfg)
	ok(l.t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(l.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !dead() {
			l.t.Errorf("the relay: %v", err)
		}
	})
	l.t.Cleanup(stop)
	l.relays = append(l.relays, stop)
	return stop
}

// unchanged stops the relays and checks that no row of the log was updated or deleted.
func (l *logged) unchanged(rolledBack int) {
	l.t.Helper()
	for _, stop := range l.relays { // until PostgreSQL 14 a session that listens does not tell what it has done before
		stop()
	}
	rows := one[int](l.t, l.pool, "SELECT count(*) FROM outbox_log")
	l.pool.Reset() // a session that ends tells what it has done
	const of = " FROM pg_stat_user_tables WHERE relname ~ '^outbox_log(_[0-3])?$'"
	eventually(l.t, "the statistics know the rows", func() bool {
		return one[int](l.t, l.pool, "SELECT sum(n_tup_ins)::int"+of) >= rows
	})
	if n := one[int](l.t, l.pool, "SELECT sum(n_tup_upd + n_tup_del)::int"+of); n != 0 {
		l.t.Errorf("%d rows of the log were updated or deleted", n)
	}
	if n := one[int](l.t, l.pool, "SELECT sum(n_dead_tup)::int"+of); n > rolledBack {
		l.t.Errorf("%d dead rows in the log, %d were rolled back", n, rolledBack)
	}
}

func TestLogDelivers(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	var all []outbox.Event
	for i := range 2500 { // more than one claim
		all = append(all, keyed(fmt.Sprint(i%7), i))
	}
	l.write(all[:2000]...)
	stop := l.relay()
	eventually(t, "the backlog arrives", func() bool { return len(l.arrived()) >= 2000 })
	l.write(all[2000:]...)
	eventually(t, "the rest arrives", func() bool { return len(l.arrived()) >= 2500 })
	stop()
	l.relay() // begins where the other has ended
	last := keyed("last", 1)
	l.write(last)
	eventually(t, "what came later arrives", func() bool { return slices.Contains(l.arrived(), last.ID.String()) })
	if got := l.arrived(); len(got) != 2501 {
		t.Errorf("%d deliveries of 2501 events", len(got))
	}
	next := map[string]int{}
	for _, d := range l.got {
		var n int
		ok(t, json.Unmarshal(d.Payload, &n))
		if n < next[d.AggregateID] {
			t.Errorf("key %s: %d after %d", d.AggregateID, n, next[d.AggregateID])
		}
		next[d.AggregateID] = n
	}
	l.unchanged(0)
}

// settles counts what a relay has settled, how often, and what it has claimed though it had
// published it.
type settles struct {
	outbox.Observer            // of what else a relay does: nothing calls it
	times, delivered, recalled atomic.Int64
}

func (c *settles) ObserveBatch(b outbox.BatchReport) {
	if b.Table == outbox.OutboxLog().Table {
		c.times.Add(1)
		c.delivered.Add(int64(b.Settled.Delivered))
		c.recalled.Add(int64(b.Recalled))
	}
}

// Each event is written while the one before it is published, so that they are gathered before a
// settle.
func TestLogSettlesTogetherWhatComesOneByOne(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	const events = 40
	l := newLog(t)
	written := 1
	l.failing(func(outbox.Delivery) error {
		if written < events {
			l.write(keyed("a", written))
			written++
		}
		return nil
	})
	var settled settles
	stop := l.relayBy(l.pool, l.publish, func() bool { return false },
		func(c *relay.Config) { c.Observer = &settled })
	l.write(keyed("a", 0))
	eventually(t, "they arrive", func() bool { return len(l.arrived()) >= events })
	stop()
	if n := settled.delivered.Load(); n != events {
		t.Errorf("%d records were settled, want %d", n, events)
	}
	if n := settled.recalled.Load(); n != 0 {
		t.Errorf("%d deliveries were claimed again while they waited to be settled", n)
	}
	if n := settled.times.Load(); n >= events {
		t.Errorf("%d events were settled %d times, want several at once", events, n)
	}
	l.unchanged(0)
}

// A row's position is drawn before its transaction commits, so a lower one may come to be seen
// after a higher one.
func TestLogDeliversWhatCommitsLate(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.relay()
	first := keyed("a", 1)
	late := keyed("b", 1)
	l.write(first)
	open := l.begin(late)
	var after []outbox.Event
	for i := range 20 {
		after = append(after, keyed("c", i))
		l.write(after[i])
		eventually(t, "what is behind an open transaction arrives",
			func() bool { return slices.Contains(l.arrived(), after[i].ID.String()) })
	}
	if slices.Contains(l.arrived(), late.ID.String()) {
		t.Fatal("an uncommitted event was delivered")
	}
	ok(t, open.Commit(t.Context()))
	eventually(t, "the late event arrives", func() bool { return slices.Contains(l.arrived(), late.ID.String()) })
	last := keyed("d", 1)
	l.write(last)
	eventually(t, "the last event arrives", func() bool { return slices.Contains(l.arrived(), last.ID.String()) })
	want := slices.Concat(ids([]outbox.Event{first}), ids(after), ids([]outbox.Event{late, last}))
	if got := l.arrived(); !slices.Equal(got, want) {
		t.Errorf("delivered %v, want %v", got, want)
	}
	l.unchanged(0)
}

// More late rows than a claim takes, from several transactions that commit one after the other
// while the first ones are gone through.
func TestLogDeliversManyThatCommitLate(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	l := newLog(t)
	l.relay(func(c *relay.Config) { c.BatchRecords = 10 })
	var open []pgx.Tx
	var want []string
	for i := range 5 {
		var events []outbox.Event
		for n := range 150 {
			events = append(events, keyed(fmt.Sprint("late", i, n%3), n))
		}
		open = append(open, l.begin(events...))
		want = append(want, ids(events)...)
		between := keyed("between", i)
		l.write(between)
		want = append(want, between.ID.String())
		eventually(t, "what is between arrives", func() bool { return slices.Contains(l.arrived(), between.ID.String()) })
	}
	for i := range open {
		ok(t, open[len(open)-1-i].Commit(t.Context()))
		if i == 1 {
			time.Sleep(20 * time.Millisecond) // in the middle of a pass, mostly
		}
	}
	eventually(t, "all late events arrive", func() bool { return len(l.arrived()) >= len(want) })
	got := l.arrived()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d deliveries of %d events", len(got), len(want))
	}
	last := map[string]int{}
	for _, d := range l.got {
		var n int
		ok(t, json.Unmarshal(d.Payload, &n))
		if before, seen := last[d.AggregateID]; seen && n <= before {
			t.Errorf("key %s: %d after %d", d.AggregateID, n, before)
		}
		last[d.AggregateID] = n
	}
	l.unchanged(0)
}

// A transaction that stays open, also in another database of the server, holds nothing up.
func TestLogWaitsForNobody(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	l := newLog(t)
	for _, url := range []string{newDatabase(t, "core", "log"), newDatabase(t)} {
		tx, err := newPool(t, url).Begin(t.Context())
		ok(t, err)
		defer func() { _ = tx.Rollback(context.Background()) }()
		_, err = tx.Exec(t.Context(), "SELECT pg_current_xact_id()")
		ok(t, err)
	}
	held, err := l.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	ok(t, err)
	defer func() { _ = held.Rollback(context.Background()) }()
	_, err = held.Exec(t.Context(), "SELECT count(*) FROM outbox_log")
	ok(t, err)
	l.relay()
	for i := range 50 {
		e := keyed("a", i)
		l.write(e)
		eventually(t, "it arrives", func() bool { return slices.Contains(l.arrived(), e.ID.String()) })
	}
	if got := l.arrived(); len(got) != 50 {
		t.Errorf("%d deliveries of 50 events", len(got))
	}
}

// An idle relay notes where it is once, and nothing after that.
func TestLogOfAnIdleRelayIsNotWritten(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	l := newLog(t)
	l.relay()
	for i := range 20 {
		l.write(keyed(fmt.Sprint(i), i))
	}
	eventually(t, "they arrive", func() bool { return len(l.arrived()) == 20 })
	notes := func() int64 {
		return one[int64](t, l.pool, "SELECT last_value FROM "+
			one[string](t, l.pool, "SELECT pg_get_serial_sequence('outbox_log_positions', 'id')"))
	}
	// Both workers have noted the last row's position, or a later one.
	eventually(t, "every lane is there", func() bool {
		return one[bool](t, l.pool, "SELECT coalesce(bit_or(lanes) = -1, false) FROM outbox_log_positions "+
			"WHERE position = (SELECT max(position) FROM outbox_log)")
	})
	before := notes()
	_, err := l.pool.Exec(t.Context(), "SELECT pg_current_xact_id()") // others go on
	ok(t, err)
	time.Sleep(2500 * time.Millisecond) // notes are a second apart
	if after := notes(); after > before+1 {
		t.Errorf("%d positions were noted while nothing happened", after-before)
	}
}

var errDown = outbox.Unavailable(errors.New("the broker is down"))

// While the only sink is down nothing is copied: the log keeps it.
func TestLogCopiesNothingWhileItsSinkIsDown(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	l := newLog(t)
	var refused int
	l.failing(func(outbox.Delivery) error { refused++; return errDown })
	l.relay()
	var all []outbox.Event
	for i := range 500 {
		all = append(all, keyed(fmt.Sprint(i%5), i))
	}
	for part := range slices.Chunk(all, 100) {
		l.write(part...)
	}
	eventually(t, "the sink was tried", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return refused > 20 })
	if n := one[int](t, l.pool, "SELECT count(*) FROM outbox_deliveries"); n != 0 {
		t.Errorf("%d deliveries were copied while the sink was down", n)
	}
	l.failing(nil)
	eventually(t, "all arrive", func() bool { return len(l.arrived()) >= 500 })
	if got := l.arrived(); !slices.Equal(sorted(got), sorted(ids(all))) {
		t.Errorf("%d deliveries of 500 events", len(got))
	}
	if n := one[int](t, l.pool, "SELECT last_value::int FROM outbox_deliveries_position_seq"); n != 1 {
		t.Errorf("%d deliveries were copied", n)
	}
	l.unchanged(0)
}

func sorted(s []string) []string { slices.Sort(s); return s }

// What a sink refuses goes by outbox_deliveries, with its retries, its dead letter, and what is
// behind it in its key.
func TestLogRetriesAndBuries(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	bad, once := keyed("bad", 1), keyed("once", 1)
	tries := map[string]int{}
	l.failing(func(d outbox.Delivery) error {
		tries[d.ID.String()]++
		if d.ID == bad.ID || d.ID == once.ID && tries[d.ID.String()] == 1 {
			return errors.New("refused")
		}
		return nil
	})
	l.relay(func(c *relay.Config) { c.MaxAttempts = 3 })
	behind := []outbox.Event{keyed("once", 2), keyed("bad", 2)}
	others := []outbox.Event{keyed("x", 1), keyed("y", 1)}
	l.write(slices.Concat([]outbox.Event{bad, once}, behind, others)...)
	eventually(t, "all but one arrive", func() bool { return len(l.arrived()) >= 5 })
	eventually(t, "it is a dead letter", func() bool {
		return one[int](t, l.pool, "SELECT count(*) FROM job_dlq WHERE original_job_id = $1", bad.ID) == 1
	})
	got := l.arrived()
	if slices.Index(got, once.ID.String()) > slices.Index(got, behind[0].ID.String()) {
		t.Error("an event passed an earlier one of its key that was being retried")
	}
	l.failing(nil)
	l.unchanged(0)
}

// What no sink is asked for dies in the log, and its replay is a new row.
func TestLogBuriesWhatItCannotRoute(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	routed := func(c *relay.Config) {
		c.Tables[0].Routes = []relay.Route{{Topic: "known", To: []relay.Target{{Sink: relay.DefaultSink}}}}
	}
	stop := l.relay(routed)
	lost, fine := keyed("a", 1), keyed("a", 2)
	fine.Topic = "known"
	l.write(lost, fine)
	eventually(t, "the other arrives", func() bool { return slices.Contains(l.arrived(), fine.ID.String()) })
	eventually(t, "it is a dead letter", func() bool {
		return one[int](t, l.pool, "SELECT count(*) FROM job_dlq WHERE original_job_id = $1 AND outbox_table = 'outbox_log'",
			lost.ID) == 1
	})
	stop()
	letters, err := postgres.OpenDeadLetters(t.Context(), l.pool, postgres.DeadLettersConfig{
		Layouts: []outbox.Layout{outbox.OutboxLog()}})
	ok(t, err)
	selection := deadletter.Selection{Filter: deadletter.Filter{Table: "outbox_log"}}
	preview, err := letters.Preview(t.Context(), selection, time.Hour)
	ok(t, err)
	if preview.Letters != 1 {
		t.Errorf("a replay would be of %d letters, want 1", preview.Letters)
	}
	sum, err := deadletter.Replay(t.Context(), letters, deadletter.ReplayOptions{Selection: selection,
		Operator: deadletter.Operator{Actor: "test"}})
	ok(t, err)
	if sum.Letters != 1 || sum.Skipped != 0 {
		t.Errorf("replayed %+v", sum)
	}
	l.relay()
	eventually(t, "the replayed event arrives", func() bool { return slices.Contains(l.arrived(), lost.ID.String()) })
	if d := l.got[len(l.got)-1]; d.Generation != 1 || d.AggregateID != "a" || string(d.Payload) != "1" {
		t.Errorf("the replay delivered %+v", d)
	}
	if got := l.arrived(); len(got) != 2 {
		t.Errorf("%d deliveries, want 2", len(got))
	}
	l.unchanged(0)
}

// A part is emptied once it is old and all of it is settled; never while a lane or an open
// transaction is behind.
func TestLogTruncatesWhatIsSettled(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	l := newLog(t)
	soon := func(c *relay.Config) {
		c.Tables[0].Retention = outbox.Retention{After: time.Nanosecond, Every: 20 * time.Millisecond, Archive: "none"}
	}
	rows := func() int { return one[int](t, l.pool, "SELECT count(*) FROM outbox_log") }
	stop := l.relay(soon)
	open := l.begin(keyed("late", 1))
	var all []outbox.Event
	for i := range 200 {
		all = append(all, keyed(fmt.Sprint(i%9), i))
		l.write(all[i])
		eventually(t, "it arrives", func() bool { return slices.Contains(l.arrived(), all[i].ID.String()) })
	}
	eventually(t, "parts are used in turn", func() bool {
		return one[int64](t, l.pool, "SELECT last_value FROM outbox_log_part") > 2
	})
	ok(t, open.Commit(t.Context()))
	eventually(t, "the late event arrives", func() bool { return len(l.arrived()) == 201 })
	l.write(keyed("z", 1)) // into a later part
	eventually(t, "all that is settled goes, but for the part that is filled", func() bool { return rows() <= 1 })
	stop()
	if got := l.arrived(); len(got) != 202 {
		t.Errorf("%d deliveries of 202 events", len(got))
	}

	// Nothing goes while nothing is settled.
	l.write(all[0], all[1])
	before := rows()
	filled := func() int64 { return one[int64](t, l.pool, "SELECT last_value FROM outbox_log_part") }
	first := filled()
	l.failing(func(outbox.Delivery) error { return errDown })
	stop = l.relay(soon)
	for range 20 {
		l.write(keyed("w", 1))
		time.Sleep(20 * time.Millisecond)
	}
	eventually(t, "what is not settled is in parts that nobody fills", func() bool { return filled() >= first+2 })
	time.Sleep(100 * time.Millisecond) // some runs of retention
	if n := rows(); n != before+20 {
		t.Errorf("%d rows of %d that are not settled", n, before+20)
	}
	stop()
	l.unchanged(0)
}
