package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// forgetful is a server that forgets commits that did not wait for the disk, when it is killed.
func forgetful(t *testing.T) *testenv.Postgres {
	t.Helper()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{Settings: map[string]string{
		"wal_writer_delay": "10s", "autovacuum": "off"}})
	ok(t, migrations.Up(t.Context(), server.URL("postgres"), "core", "log"))
	return server
}

func crash(t *testing.T, server *testenv.Postgres, pool *pgxpool.Pool) {
	t.Helper()
	ok(t, server.Kill())
	ok(t, server.Restart())
	eventually(t, "the server is back", func() bool { return pool.Ping(t.Context()) == nil })
	pool.Reset()
}

// A server that crashes forgets the last commits that did not wait for the disk: those of a relay,
// and those of a producer that does not wait either. It gives the positions and transactions of the
// latter out again. A relay that goes on may not take the new rows for the old ones, nor count on
// what it has settled.
func TestLogForgetsWhatTheServerForgot(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := forgetful(t)
	l := &logged{t: t, pool: newPool(t, server.URL("postgres"))}
	var err error
	l.writer, err = postgres.NewWriter(outbox.WriterConfig{Table: "outbox_log", Source: "test"})
	ok(t, err)
	l.relay(func(c *relay.Config) {
		c.LeaseTTL = time.Minute // a renewal waits for the disk
		c.MaxAttempts = 1000
	})
	l.write(keyed("first", 1))
	eventually(t, "the relay is there", func() bool { return len(l.arrived()) == 1 })

	want := 1
	for n := range 3 {
		bad := keyed(fmt.Sprint("bad", n), n)
		l.failing(func(outbox.Delivery) error { return errors.New("refused") })
		l.write(bad)
		owed := func() bool {
			return one[int](t, l.pool, "SELECT count(*) FROM outbox_deliveries WHERE event_id = $1", bad.ID) == 1
		}
		eventually(t, "the sink owes what it has refused", owed)
		crash(t, server, l.pool)
		if !owed() {
			t.Error("a crash took what a sink owes")
		}
		l.failing(nil)
		want++
		eventually(t, "what was refused arrives", func() bool { return slices.Contains(l.arrived(), bad.ID.String()) })
	}

	// The server may have written it down by chance, for another's sake.
	const crashes = 20
	took := false
	drawn := func() int64 { return one[int64](t, l.pool, "SELECT last_value FROM outbox_log_position_seq") }
	for n := 0; n < crashes && !took; n++ {
		for i := range 20 {
			ok(t, pgx.BeginFunc(t.Context(), l.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "SET LOCAL synchronous_commit = off"); err != nil {
					return err
				}
				return l.writer.Write(t.Context(), tx, keyed(fmt.Sprint("old", n), i))
			}))
		}
		want += 20
		eventually(t, "they arrive", func() bool { return len(l.arrived()) >= want })
		before := drawn()
		crash(t, server, l.pool)
		took = drawn() < before // it writes down 32 at once
	}
	if !took {
		t.Errorf("none of %d crashes took a producer's positions", crashes)
	}
	var after []outbox.Event
	for n := range 20 {
		after = append(after, keyed(fmt.Sprint("new", n), n))
		l.write(after[n])
	}
	want += 20
	eventually(t, "what has their positions arrives", func() bool { return len(l.arrived()) >= want })
	got := l.arrived()
	if last := got[len(got)-20:]; len(got) != want || !slices.Equal(sorted(last), sorted(ids(after))) {
		t.Errorf("%d deliveries, want %d", len(got), want)
	}
}

// ower is a relay's way to a table of a server that is killed.
type ower struct {
	t      *testing.T
	server *testenv.Postgres
	pool   *pgxpool.Pool
	store  outbox.Store
	owner  uuid.UUID
	lanes  []outbox.Lane
}

func newOwer(t *testing.T, layout outbox.Layout) *ower {
	t.Helper()
	server := forgetful(t)
	db, err := postgres.Connect(t.Context(), server.URL("postgres"), postgres.Config{})
	ok(t, err)
	t.Cleanup(db.Close)
	o := &ower{t: t, server: server, pool: newPool(t, server.URL("postgres")), owner: uuid.New()}
	o.store, err = db.OpenTable(t.Context(), layout)
	ok(t, err)
	leased, err := o.store.Lease(t.Context(), outbox.LeaseRequest{Owner: o.owner, Name: "test", TTL: time.Hour})
	ok(t, err)
	o.lanes = leased.Lanes
	w, err := postgres.NewWriter(outbox.WriterConfig{Table: layout.Table, Source: "test"})
	ok(t, err)
	ok(t, pgx.BeginFunc(t.Context(), o.pool, func(tx pgx.Tx) error { return w.Write(t.Context(), tx, keyed("a", 1)) }))
	return o
}

func (o *ower) claim() (rec *outbox.Record) {
	o.t.Helper()
	eventually(o.t, "the event is claimed", func() bool {
		records, err := o.store.Claim(o.t.Context(), o.lanes, outbox.ClaimLimit{Records: 10, Bytes: 1 << 20})
		if len(records) == 1 {
			rec = records[0]
		}
		return err == nil && len(records) == 1
	})
	return rec
}

// settle settles a record, for which connections from before a crash may have to be tried again.
func (o *ower) settle(out outbox.Outcome) {
	o.t.Helper()
	eventually(o.t, "the settle is answered", func() bool {
		_, err := o.store.Settle(o.t.Context(), o.owner, o.lanes, []outbox.Outcome{out})
		return err == nil
	})
}

// owe is an outcome that a sink owes.
func owe(rec *outbox.Record) outbox.Outcome {
	return outbox.Outcome{Record: rec, State: outbox.Delivered,
		Owed: []outbox.Owed{{Sink: "default", Destination: "a"}}}
}

func (o *ower) owed() int {
	o.t.Helper()
	return one[int](o.t, o.pool, "SELECT (SELECT count(*) FROM outbox_deliveries) + (SELECT count(*) FROM job_dlq)")
}

// What follows an owed delivery in its key is owed behind it, and what follows a dead event goes
// out: a server may not forget the former and know the latter.
func TestACrashForgetsNothingThatIsOwedOrDead(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	dead := func(rec *outbox.Record) outbox.Outcome {
		return outbox.Outcome{Record: rec, State: outbox.Dead, Attempts: 1,
			Failures: []outbox.Failure{{Destination: "a", Reason: outbox.ReasonDeliveryFailed, Error: "refused"}}}
	}
	for name, becomes := range map[string]func(*outbox.Record) outbox.Outcome{"owed": owe, "dead": dead} {
		for _, layout := range []outbox.Layout{outbox.OutboxEvents(), outbox.OutboxLog()} {
			t.Run(name+" "+layout.Table, func(t *testing.T) {
				t.Parallel()
				o := newOwer(t, layout)
				o.settle(becomes(o.claim()))
				if n := o.owed(); n != 1 {
					t.Fatalf("there are %d", n)
				}
				crash(t, o.server, o.pool)
				if n := o.owed(); n != 1 {
					t.Errorf("after a crash there are %d", n)
				}
			})
		}
	}
}

// A settle that a server did not answer is made again. A standby that is promoted may lack those
// before it, and then owes nothing of it: all of it is claimed again, in order.
func TestALogOwesNothingOfAForgottenEra(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	o := newOwer(t, outbox.OutboxLog())
	rec := o.claim()
	crash(t, o.server, o.pool)
	if o.settle(owe(rec)); o.owed() != 0 {
		t.Errorf("the sink owes %d of an era that is over", o.owed())
	}
	if o.settle(owe(o.claim())); o.owed() != 1 {
		t.Errorf("the sink owes %d of what was claimed again", o.owed())
	}
}
