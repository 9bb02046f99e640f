package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// given is an event as outbox_next gives it, by plain SQL as the guide has it.
type given struct {
	ID       uuid.UUID
	Position int64
	Token    uuid.UUID
	Attempt  int
	Key      string
	Payload  string
}

func (l *logged) subscribe(name, options string) {
	l.t.Helper()
	_, err := l.pool.Exec(l.t.Context(), fmt.Sprintf("SELECT outbox_subscribe('%s'%s)", name, options))
	ok(l.t, err)
}

func (l *logged) next(db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, name string, most int, lease string) []given {
	l.t.Helper()
	rows, err := db.Query(l.t.Context(), "SELECT id, position, token, attempt, coalesce(key, '') AS key, "+
		"payload::text FROM outbox_next($1, $2, $3::interval)", name, most, lease)
	ok(l.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[given])
	ok(l.t, err)
	return all
}

// ack returns how often each state is in the answer.
func (l *logged) ack(name string, events ...given) map[string]int {
	l.t.Helper()
	ids, tokens := make([]uuid.UUID, len(events)), make([]uuid.UUID, len(events))
	for i, e := range events {
		ids[i], tokens[i] = e.ID, e.Token
	}
	rows, err := l.pool.Query(l.t.Context(), "SELECT state FROM outbox_ack($1, $2, $3)", name, ids, tokens)
	ok(l.t, err)
	states, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(l.t, err)
	counts := map[string]int{}
	for _, s := range states {
		counts[s]++
	}
	return counts
}

// nack returns the attempt, whether it comes again and whether it is dead; 0 where the token is not
// the event's.
func (l *logged) nack(name string, e given, delay any) (attempt int, again, dead bool) {
	l.t.Helper()
	err := l.pool.QueryRow(l.t.Context(), "SELECT attempt, again_at IS NOT NULL, dead "+
		"FROM outbox_nack($1, $2, $3, 'out of stock', $4::text::interval)", name, e.ID, e.Token, delay).
		Scan(&attempt, &again, &dead)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, false
	}
	ok(l.t, err)
	return attempt, again, dead
}

func payloads(events []given) []string {
	all := make([]string, len(events))
	for i, e := range events {
		all[i] = e.Key + e.Payload
	}
	return all
}

func want(t testing.TB, what string, events []given, all ...string) {
	t.Helper()
	if got := payloads(events); !slices.Equal(got, all) {
		t.Errorf("%s: %v, want %v", what, got, all)
	}
}

const minute = "1 minute"

// What commits late stands in front of the place, and is given all the same; several late ones in a
// pass.
func TestSubscriptionGetsWhatCommitsLate(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", '-infinity'")
	late := l.begin(keyed("a", 1))
	var many []outbox.Event
	for n := range 2500 { // more than are looked at in one step
		many = append(many, keyed("m", n))
	}
	large := l.begin(many...)
	l.write(keyed("b", 1), keyed("b", 2))
	first := l.next(l.pool, "s", 10, minute)
	want(t, "in front", first, "b1", "b2")
	ok(t, late.Commit(t.Context()))
	second := l.next(l.pool, "s", 10, minute)
	want(t, "late", second, "a1")
	ok(t, large.Commit(t.Context()))
	l.write(keyed("c", 1))
	var got []string
	for len(got) < 2501 {
		some := l.next(l.pool, "s", 700, minute)
		if len(some) == 0 {
			t.Fatalf("%d events came, and then none", len(got))
		}
		got = append(got, payloads(some)...)
		if states := l.ack("s", some...); states["acknowledged"] != len(some) {
			t.Fatalf("acknowledged %v of %d", states, len(some))
		}
	}
	for n := range 2500 {
		if got[n] != fmt.Sprint("m", n) {
			t.Fatalf("event %d is %s", n, got[n])
		}
	}
	if states := l.ack("s", append(first, second...)...); states["acknowledged"] != 3 {
		t.Errorf("acknowledged %v", states)
	}
	want(t, "afterwards", l.next(l.pool, "s", 10, minute))
}

// The subscription read past both rows when their transaction was unknown to its snapshot: the
// transaction's number is the snapshot's xmax, or a higher one.
func TestSubscriptionReturnsRowsOfUnknownTransactions(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", '-infinity'")
	l.write(keyed("a", 1), keyed("b", 1))
	for _, above := range []int{0, 1} {
		_, err := l.pool.Exec(t.Context(), fmt.Sprintf("DELETE FROM outbox_subscription_events; UPDATE outbox_subscriptions "+
			"SET position = 2, snapshot = (SELECT format('%%1$s:%%1$s:', min(xid::text::bigint) - %d) FROM outbox_log)"+
			"::pg_snapshot", above))
		ok(t, err)
		want(t, fmt.Sprint("xmax + ", above), l.next(l.pool, "s", 10, minute), "a1", "b1")
	}
}

// A transaction gets its own rows once it has committed, and once only.
func TestSubscriptionInTheWritersTransaction(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", '-infinity'")
	tx := l.begin(keyed("a", 1))
	l.write(keyed("b", 1))
	want(t, "in the transaction", l.next(tx, "s", 10, minute), "b1")
	ok(t, tx.Commit(t.Context()))
	want(t, "afterwards", l.next(l.pool, "s", 10, minute), "a1")
	want(t, "then", l.next(l.pool, "s", 10, minute))
}

// A consumer in any language says why it gives an event back, and its dead letter has that reason.
func TestSubscriptionLettersHaveTheReasonGiven(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", max_attempts := 1")
	l.subscribe("patient", "")
	all := []string{"DeliveryFailed", "DeserializationFailed", "DuplicateEvent", "HandlerMissing", "HandlerTimeout"}
	for _, name := range []string{"s", "patient"} {
		for n, reason := range all {
			if name == "s" {
				l.write(keyed(reason, n))
			}
		}
		for n, e := range l.next(l.pool, name, 10, minute) {
			var dead bool
			ok(t, l.pool.QueryRow(t.Context(), "SELECT dead FROM outbox_nack($1, $2, $3, 'no', reason := $4)", name, e.ID,
				e.Token, all[n]).Scan(&dead))
			if atOnce := name == "s" || n == 1 || n == 2; dead != atOnce {
				t.Errorf("%s of %s after one attempt: dead %t, want %t", all[n], name, dead, atOnce)
			}
		}
	}
	if got := one[string](t, l.pool, "SELECT string_agg(error_reason, ' ' ORDER BY destination DESC, error_reason) "+
		"FROM job_dlq WHERE event_key IS NOT DISTINCT FROM error_reason"); got !=
		strings.Join(append(all, all[1:3]...), " ") {
		t.Errorf("letters: %s", got)
	}
}

// An event in somebody's hands, or waiting, holds up its own key and no other.
func TestSubscriptionHoldsUpAKeyAlone(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", "")
	l.write(keyed("a", 1), keyed("b", 1), keyed("a", 2), keyed("b", 2), event("keyless"))
	one1 := l.next(l.pool, "s", 1, minute)
	want(t, "one", one1, "a1")
	rest := l.next(l.pool, "s", 10, minute)
	want(t, "without the key that somebody has", rest, "b1", "b2", `{"a": 1}`)
	if n, again, dead := l.nack("s", one1[0], "1 hour"); n != 1 || !again || dead {
		t.Errorf("nack: attempt %d, again %t, dead %t", n, again, dead)
	}
	want(t, "behind one that waits", l.next(l.pool, "s", 10, minute))
	if states := l.ack("s", rest...); states["acknowledged"] != 3 {
		t.Errorf("acknowledged %v", states)
	}
	l.write(keyed("b", 3))
	b3 := l.next(l.pool, "s", 10, minute)
	want(t, "another key goes on", b3, "b3")
	_, err := l.pool.Exec(t.Context(), "UPDATE outbox_subscription_events SET next_at = now() "+
		"WHERE next_at IS NOT NULL")
	ok(t, err)
	again := l.next(l.pool, "s", 10, minute)
	want(t, "after its wait", again, "a1", "a2")
	if again[0].Attempt != 2 || again[1].Attempt != 1 {
		t.Errorf("attempts %d and %d, want 2 and 1", again[0].Attempt, again[1].Attempt)
	}
	// What is behind a failed one in the same answer is given back with it.
	if n, _, _ := l.nack("s", again[0], "0"); n != 2 {
		t.Errorf("attempt %d, want 2", n)
	}
	if states := l.ack("s", again[1]); states["lapsed"] != 1 {
		t.Errorf("an event behind a failed one of its key: %v", states)
	}
	third := l.next(l.pool, "s", 10, minute)
	want(t, "in order again", third, "a1", "a2")
	if third[1].Attempt != 1 {
		t.Errorf("the second was not tried, and counts %d attempts", third[1].Attempt)
	}
}

// An acknowledgement that comes twice, late, for another's event or for none changes nothing and
// says so.
func TestSubscriptionAcknowledgements(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", "")
	l.subscribe("other", "")
	l.write(keyed("a", 1), keyed("b", 1))
	lapsed := l.next(l.pool, "s", 10, "1 microsecond")
	again := l.next(l.pool, "s", 10, minute)
	want(t, "given again", again, "a1", "b1")
	if again[0].Attempt != 2 || again[0].Token == lapsed[0].Token {
		t.Errorf("attempt %d with token %s", again[0].Attempt, again[0].Token)
	}
	if states := l.ack("s", lapsed...); states["lapsed"] != 2 {
		t.Errorf("late: %v", states)
	}
	if n, _, _ := l.nack("s", lapsed[0], nil); n != 0 {
		t.Error("a late nack changed something")
	}
	if states := l.ack("other", again...); states["unknown"] != 2 {
		t.Errorf("of another subscription, which has given nothing: %v", states)
	}
	if states := l.ack("s", again[0], given{ID: uuid.New(), Token: again[0].Token}); states["acknowledged"] != 1 ||
		states["unknown"] != 1 {
		t.Errorf("one that was given and one that never was: %v", states)
	}
	if states := l.ack("s", again[0]); states["unknown"] != 1 {
		t.Errorf("twice: %v", states)
	}
	if states := l.ack("s", again[1]); states["acknowledged"] != 1 {
		t.Errorf("its own: %v", states)
	}
	// Late, and given to nobody since: it is done.
	l.write(keyed("c", 1))
	c := l.next(l.pool, "s", 10, "1 microsecond")
	if states := l.ack("s", c...); states["acknowledged"] != 1 {
		t.Errorf("late, and nobody has it: %v", states)
	}
	want(t, "of the other subscription", l.next(l.pool, "other", 10, minute), "a1", "b1", "c1")
	for sql, code := range map[string]string{
		"SELECT outbox_next('none')":                                                         "42704",
		"SELECT outbox_ack('none', '{}', '{}')":                                              "42704",
		"SELECT outbox_nack('none', gen_random_uuid(), NULL)":                                "42704",
		"SELECT outbox_nack('s', gen_random_uuid(), NULL, reason := 'Tired')":                "22023",
		"SELECT outbox_nack('s', gen_random_uuid(), NULL, reason := NULL)":                   "22023",
		"SELECT outbox_rewind('none', now())":                                                "42704",
		"SELECT outbox_rewind('s', NULL)":                                                    "22023",
		"SELECT outbox_next('s', 0)":                                                         "22023",
		"SELECT outbox_next('s', 10, '0 s')":                                                 "22023",
		"SELECT outbox_subscribe('S s')":                                                     "23514",
		"SELECT outbox_subscribe('t', types := '{}')":                                        "23514",
		"SELECT outbox_subscribe('s', max_attempts := 6)":                                    "23505",
		"SELECT outbox_ack('s', ARRAY[NULL, NULL, NULL]::uuid[], ARRAY[NULL, NULL]::uuid[])": "22023",
	} {
		_, err := l.pool.Exec(t.Context(), sql)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != code {
			t.Errorf("%s: %v, want %s", sql, err, code)
		}
	}
	if one[bool](t, l.pool, "SELECT outbox_subscribe('s')") {
		t.Error("made the same subscription twice")
	}
}

// A letter is of one subscription, and comes back to it alone, also when its part of the log has
// gone.
func TestSubscriptionLetters(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", max_attempts := 2")
	l.subscribe("other", ", max_attempts := 1")
	l.write(keyed("a", 1), keyed("a", 2), keyed("b", 1))
	all := l.next(l.pool, "s", 10, minute)
	l.nack("s", all[0], "0")
	if states := l.ack("s", all[2]); states["acknowledged"] != 1 {
		t.Errorf("%v", states)
	}
	all = l.next(l.pool, "s", 10, minute)
	want(t, "again", all, "a1", "a2")
	if n, again, dead := l.nack("s", all[0], nil); n != 2 || again || !dead {
		t.Errorf("the last attempt: %d, again %t, dead %t", n, again, dead)
	}
	rest := l.next(l.pool, "s", 10, minute)
	want(t, "the key goes on", rest, "a2")
	l.ack("s", rest...)
	// The other one lets them lapse.
	want(t, "the other", l.next(l.pool, "other", 10, "1 microsecond"), "a1", "a2", "b1")
	want(t, "given up", l.next(l.pool, "other", 10, minute))
	const letters = "SELECT string_agg(destination || ' ' || event_key || payload::text || ' ' || error_reason || " +
		"' ' || attempts || ' ' || jsonb_array_length(error_history), ', ' ORDER BY destination, event_key, " +
		"payload::text) FROM job_dlq"
	if got, expect := one[string](t, l.pool, letters), "other a1 HandlerTimeout 1 1, other a2 HandlerTimeout 1 1, "+
		"other b1 HandlerTimeout 1 1, s a1 DeliveryFailed 2 2"; got != expect {
		t.Errorf("letters: %s\nwant %s", got, expect)
	}
	_, err := l.pool.Exec(t.Context(), "TRUNCATE outbox_log")
	ok(t, err)
	store, err := postgres.OpenDeadLetters(t.Context(), l.pool, postgres.DeadLettersConfig{})
	ok(t, err)
	sum, err := deadletter.Replay(t.Context(), store, deadletter.ReplayOptions{
		Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"}})
	ok(t, err)
	if sum.Letters != 4 {
		t.Errorf("replayed %+v", sum)
	}
	again := l.next(l.pool, "s", 10, minute)
	want(t, "the replay", again, "a1")
	want(t, "the other's", l.next(l.pool, "other", 10, minute), "a1", "a2", "b1")
	if states := l.ack("s", again...); states["acknowledged"] != 1 {
		t.Errorf("%v", states)
	}
}

// A dead letter names its subscription by an id. It is never replayed into a later subscription of
// the same name, which may be of another tenant and would read the payload.
func TestReplayDoesNotReachALaterSubscriptionOfTheName(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", max_attempts := 1")
	l.write(keyed("a", 1))
	if _, _, dead := l.nack("s", l.next(l.pool, "s", 1, minute)[0], nil); !dead {
		t.Fatal("the event is not dead")
	}
	_, err := l.pool.Exec(t.Context(), "DELETE FROM outbox_subscriptions; "+
		"SELECT outbox_subscribe('s', NULL, NULL, 'beta')")
	ok(t, err)
	store, err := postgres.OpenDeadLetters(t.Context(), l.pool, postgres.DeadLettersConfig{})
	ok(t, err)
	sum, err := deadletter.Replay(t.Context(), store, deadletter.ReplayOptions{
		Selection: deadletter.Selection{All: true}, Operator: deadletter.Operator{Actor: "test"}})
	ok(t, err)
	if sum.Letters != 0 || sum.Skipped != 1 || !strings.Contains(sum.Reasons[0].Why, "its subscription was removed") {
		t.Errorf("replayed %+v, want one skipped", sum)
	}
	want(t, "the later subscription", l.next(l.pool, "s", 10, minute))
}

// A start in the future is the end of the log, so that it does not read the whole log.
func TestSubscribeFromTheFutureBeginsAtTheEnd(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.write(keyed("a", 1))
	_, err := l.pool.Exec(t.Context(), "UPDATE outbox_log SET created_at = now() + interval '2 hours'")
	ok(t, err)
	l.subscribe("s", ", begins := now() + interval '1 hour'")
	l.write(keyed("a", 2))
	want(t, "after the end", l.next(l.pool, "s", 10, minute), "a2")
}

// A subscription without a consumer for longer than keep does not keep the log. Its consumer is told
// that events may be missing, until the subscription is moved back.
func TestSubscriptionWithoutAConsumerLetsGoOfTheLog(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", "")
	l.write(keyed("a", 1))
	want(t, "in time", l.next(l.pool, "s", 1, "1 microsecond"), "a1")
	_, err := l.pool.Exec(t.Context(), "UPDATE outbox_subscriptions SET seen_at = now() - interval '31 days'; "+
		"TRUNCATE outbox_log")
	ok(t, err)
	l.write(keyed("a", 2))
	_, err = l.pool.Exec(t.Context(), "SELECT outbox_next('s')")
	if answer := new(pgconn.PgError); !errors.As(err, &answer) || answer.Code != "55000" {
		t.Errorf("the consumer that returns gets %v, want error 55000", err)
	}
	_, err = l.pool.Exec(t.Context(), "SELECT outbox_rewind('s', '-infinity')")
	ok(t, err)
	want(t, "after the rewind", l.next(l.pool, "s", 10, minute), "a2")
}

// Two consumers at once get each event once, a key in order; a consumer that is away gets all when
// it comes.
func TestSubscriptionOfTwoConsumersAfterLong(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", "")
	_, err := l.pool.Exec(t.Context(), "UPDATE outbox_subscriptions SET most = 3000")
	ok(t, err)
	const events, keys = 20_000, 50
	_, err = l.pool.Exec(t.Context(), "INSERT INTO outbox_log (event_topic, occurred_at, aggregate_id, source_bc, "+
		"payload) "+
		"SELECT 'a', now(), (i % $2::int)::text, 'test', to_jsonb(i) FROM generate_series(1, $1::int) i", events, keys)
	ok(t, err)
	var mu sync.Mutex
	last, total := map[string]int{}, 0
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				some := l.next(l.pool, "s", 200, minute)
				mu.Lock()
				for _, e := range some {
					var n int
					_, _ = fmt.Sscan(e.Payload, &n)
					if n <= last[e.Key] {
						t.Errorf("event %d of key %s came after %d", n, e.Key, last[e.Key])
					}
					last[e.Key] = n
				}
				total += len(some)
				done := total >= events
				mu.Unlock()
				if states := l.ack("s", some...); states["acknowledged"] != len(some) {
					t.Errorf("acknowledged %v of %d", states, len(some))
				}
				if done {
					return
				}
			}
		})
	}
	wg.Wait()
	if total != events {
		t.Errorf("%d events came, want %d", total, events)
	}
}

// What is asked for 100 events reads some hundred rows, whatever the statistics are and however
// many the log has.
func TestSubscriptionPlans(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", '-infinity'")
	cfg, err := pgx.ParseConfig(l.pool.Config().ConnString())
	ok(t, err)
	var plans []string
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { plans = append(plans, n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	ok(t, err)
	defer conn.Close(context.Background())
	if _, err = conn.Exec(t.Context(), "LOAD 'auto_explain'"); err != nil {
		t.Skipf("this server's programs come without auto_explain: %v", err)
	}
	_, err = conn.Exec(t.Context(), "SET auto_explain.log_nested_statements = on; SET auto_explain.log_analyze = on; "+
		"SET auto_explain.log_timing = off; SET auto_explain.log_min_duration = 0; SET client_min_messages = log")
	ok(t, err)
	const rows, most = 20_000, 100
	for _, statistics := range []string{"of an empty log", "of a full one"} {
		_, err = l.pool.Exec(t.Context(), "INSERT INTO outbox_log (event_topic, occurred_at, aggregate_id, source_bc, "+
			"payload) SELECT 'a', now(), i::text, 'test', to_jsonb(i) FROM generate_series(1, $1::int) i", rows)
		ok(t, err)
		for range 5 { // the first fetches what the others give
			plans = nil
			some := l.next(conn, "s", most, minute)
			if len(some) != most || len(plans) < 5 {
				t.Fatalf("%d events and %d plans", len(some), len(plans))
			}
			for _, plan := range plans {
				if n := rowsRead(t, plan); n > 100*most || strings.Contains(plan, "Seq Scan on outbox_") {
					t.Errorf("statistics %s: %d rows are read:\n%s", statistics, n, plan)
				}
			}
			if states := l.ack("s", some...); states["acknowledged"] != most {
				t.Errorf("acknowledged %v", states)
			}
		}
		_, err = l.pool.Exec(t.Context(), "ANALYZE")
		ok(t, err)
	}
}

var readRows = regexp.MustCompile(`Scan.* on outbox_.*actual rows=([0-9.]+) loops=(\d+)\)|Rows Removed by Filter: (\d+)`)

// rowsRead is how many rows of tables the scans of a plan have read.
func rowsRead(t *testing.T, plan string) (n int) {
	t.Helper()
	for _, found := range readRows.FindAllStringSubmatch(plan, -1) {
		if found[3] != "" {
			removed, err := strconv.Atoi(found[3])
			ok(t, err)
			n += removed
			continue
		}
		each, err := strconv.ParseFloat(found[1], 64)
		ok(t, err)
		loops, err := strconv.Atoi(found[2])
		ok(t, err)
		n += int(each * float64(loops))
	}
	return n
}

// No more is fetched than may be outstanding; and a time brings back what was acknowledged.
func TestSubscriptionBackPressureAndRewind(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", types := '{order.changed}', tenant := 'default'")
	_, err := l.pool.Exec(t.Context(), "UPDATE outbox_subscriptions SET most = 3")
	ok(t, err)
	l.write(event("another"), keyed("a", 1), keyed("b", 1), keyed("c", 1), keyed("d", 1))
	foreign := keyed("e", 1)
	foreign.TenantID = "acme"
	l.write(foreign)
	first := l.next(l.pool, "s", 10, minute)
	for i := 0; i < 5 && len(first) < 3; i++ {
		first = append(first, l.next(l.pool, "s", 10, minute)...)
	}
	want(t, "as many as may be outstanding", first, "a1", "b1", "c1")
	want(t, "no more", l.next(l.pool, "s", 10, minute))
	l.ack("s", first...)
	fourth := l.next(l.pool, "s", 10, minute)
	want(t, "then the next", fourth, "d1")
	_, err = l.pool.Exec(t.Context(), "UPDATE outbox_subscriptions SET most = 100; "+
		"SELECT outbox_rewind('s', '-infinity')")
	ok(t, err)
	want(t, "moved back, without what is outstanding", l.next(l.pool, "s", 10, minute), "a1", "b1", "c1")
}

// A subscription that is moved back loses nothing that commits late.
func TestSubscriptionRewindKeepsLateOnes(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", ", '-infinity'")
	late := l.begin(keyed("a", 1))
	l.write(keyed("b", 1))
	began := one[time.Time](t, l.pool, "SELECT clock_timestamp()")
	l.write(keyed("c", 1))
	first := l.next(l.pool, "s", 10, minute)
	want(t, "first", first, "b1", "c1")
	l.ack("s", first...)
	ok(t, late.Commit(t.Context()))
	_, err := l.pool.Exec(t.Context(), "SELECT outbox_rewind('s', $1)", began)
	ok(t, err)
	want(t, "late ones and those again", l.next(l.pool, "s", 10, minute), "a1", "c1")
}

// A part of the log stays until each subscription has fetched it and had it acknowledged.
func TestTruncationWaitsForSubscriptions(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.subscribe("s", "")
	l.write(keyed("a", 1), keyed("a", 2))
	l.relay(func(c *relay.Config) {
		c.Tables[0].Retention = outbox.Retention{After: time.Nanosecond, Every: 10 * time.Millisecond, Archive: "none"}
	})
	// The part that is filled moves on, and the relay has everything.
	filled := func() int64 {
		return one[int64](t, l.pool, "SELECT coalesce(pg_sequence_last_value('outbox_log_part'), 0)")
	}
	rows := func() int { return one[int](t, l.pool, "SELECT count(*) FROM outbox_log") }
	eventually(t, "the part is full", func() bool { return len(l.arrived()) == 2 && filled() > 0 })
	looked := func() {
		t.Helper()
		sweeps := func() int {
			return one[int](t, l.pool, "SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0)::int "+
				"FROM pg_stat_user_tables WHERE relname = 'outbox_subscriptions'")
		}
		before := sweeps()
		eventually(t, "retention looks again", func() bool { return sweeps() > before+2 })
	}
	looked()
	if n := rows(); n != 2 {
		t.Fatalf("%d rows are left that the subscription has not fetched", n)
	}
	all := l.next(l.pool, "s", 10, minute)
	want(t, "all", all, "a1", "a2")
	l.ack("s", all[0])
	looked()
	if n := rows(); n != 2 {
		t.Fatalf("%d rows are left while one is not acknowledged", n)
	}
	l.ack("s", all[1])
	eventually(t, "the part is emptied", func() bool { return rows() == 0 })
}

// A consumer's login needs outbox_consumer and no more; a gateway's sees the subscriptions of the
// tenant it names.
func TestRolesOfSubscriptions(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	ok(t, migrations.ApplyRoles(t.Context(), l.pool.Config().ConnString()))
	l.subscribe("s", ", tenant := 'acme', max_attempts := 1")
	l.subscribe("all", ", max_attempts := 1")
	a := keyed("a", 1)
	a.TenantID = "acme"
	l.write(a)
	consumer, gateway := l.as("outbox_consumer"), l.as("outbox_gateway")
	want(t, "a consumer", l.next(consumer, "all", 10, "1 microsecond"), "a1")
	want(t, "given up", l.next(consumer, "all", 10, minute))
	speak := func(tenant string) pgx.Tx {
		tx, err := gateway.Begin(t.Context())
		ok(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		_, err = tx.Exec(t.Context(), "SELECT set_config('app.current_namespace', $1, true)", tenant)
		ok(t, err)
		return tx
	}
	mine := speak("acme")
	want(t, "a gateway", l.next(mine, "s", 10, "1 microsecond"), "a1")
	want(t, "given up", l.next(mine, "s", 10, minute))
	ok(t, mine.Commit(t.Context()))
	if n := one[int](t, l.pool, "SELECT count(*) FROM job_dlq WHERE app_id = "+
		"(SELECT id FROM apps WHERE namespace = 'acme')"); n != 2 {
		t.Errorf("%d letters of the tenant, want 2", n)
	}
	b := keyed("b", 1)
	b.TenantID = "acme"
	l.write(b)
	want(t, "outstanding", append(l.next(l.pool, "s", 10, minute), l.next(l.pool, "all", 10, minute)...), "b1", "b1")
	for tenant, visible := range map[string]string{"acme": "s s", "other": "", "": ""} {
		tx := speak(tenant)
		if got := one[string](t, tx, "SELECT concat_ws(' ', (SELECT string_agg(name, ',') FROM outbox_subscriptions), "+
			"(SELECT string_agg(subscription, ',') FROM outbox_subscription_events))"); got != visible {
			t.Errorf("tenant %q sees the subscriptions and events of %q, want %q", tenant, got, visible)
		}
		ok(t, tx.Rollback(t.Context()))
	}
	for tenant, sql := range map[string]string{
		"other": "SELECT outbox_next('s')", "": "SELECT outbox_next('s')", "acme": "SELECT outbox_next('all')"} {
		tx := speak(tenant)
		_, err := tx.Exec(t.Context(), sql)
		if answer := new(pgconn.PgError); !errors.As(err, &answer) || answer.Code != "42704" {
			t.Errorf("tenant %q, %s: %v", tenant, sql, err)
		}
		ok(t, tx.Rollback(t.Context())) // if the call succeeded, the next one would wait for its lock
	}
	for role, pool := range map[string]*pgxpool.Pool{"producer": l.as("outbox_producer"), "reader": l.as("outbox_reader"),
		"consumer": consumer} {
		_, err := pool.Exec(t.Context(), "SELECT outbox_subscribe('new')")
		if answer := new(pgconn.PgError); !errors.As(err, &answer) || answer.Code != "42501" {
			t.Errorf("a %s subscribes: %v", role, err)
		}
	}
	_, err := l.as("outbox_operator").Exec(t.Context(), "SELECT outbox_subscribe('new'); "+
		"SELECT outbox_rewind('new', '-infinity')")
	ok(t, err)
	for _, verb := range []string{"SELECT payload FROM job_dlq", "DELETE FROM outbox_subscriptions",
		"UPDATE outbox_log SET payload = '1'"} {
		_, err := consumer.Exec(t.Context(), verb)
		if answer := new(pgconn.PgError); !errors.As(err, &answer) || answer.Code != "42501" {
			t.Errorf("a consumer: %s: %v", verb, err)
		}
	}
}
