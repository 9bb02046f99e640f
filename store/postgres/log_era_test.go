package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/relay"
	"github.com/outboxrelay/outbox/store/postgres"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// A server that crashes forgets the last commits that did not wait for the disk: those of a relay, and those of a
// producer that does not wait either. It gives the positions and transactions of the latter out again. A relay that
// goes on may not take the new rows for the old ones, nor count on what it has settled.
func TestLogForgetsWhatTheServerForgot(t *testing.T) {
	t.Parallel()
	server, err := testenv.StartPostgres(t.Context(), testenv.PostgresConfig{Settings: map[string]string{
		"wal_writer_delay": "10s", "autovacuum": "off"}})
	ok(t, err)
	t.Cleanup(func() { _ = server.Stop() })
	ok(t, migrations.Up(t.Context(), server.URL("postgres"), "core", "log"))
	l := &logged{t: t, pool: newPool(t, server.URL("postgres"))}
	l.writer, err = postgres.NewWriter(outbox.WriterConfig{Table: "outbox_log", Source: "test"})
	ok(t, err)
	l.relay(func(c *relay.Config) {
		c.LeaseTTL = time.Minute // a renewal waits for the disk
		c.MaxAttempts = 1000
	})
	l.write(keyed("first", 1))
	eventually(t, "the relay is there", func() bool { return len(l.arrived()) == 1 })
	// The server may have written it down by chance, for another's sake.
	crash := func() {
		t.Helper()
		ok(t, server.Kill())
		ok(t, server.Restart())
		eventually(t, "the server is back", func() bool { return l.pool.Ping(t.Context()) == nil })
		l.pool.Reset()
	}
	const crashes = 20

	took, want := false, 1
	for n := 0; n < crashes && !took; n++ {
		bad := keyed(fmt.Sprint("bad", n), n)
		l.failing(func(outbox.Delivery) error { return errors.New("refused") })
		l.write(bad)
		owed := func() bool {
			return one[int](t, l.pool, "SELECT count(*) FROM outbox_deliveries WHERE event_id = $1", bad.ID) == 1
		}
		eventually(t, "the sink owes what it has refused", owed)
		crash()
		took = !owed()
		l.failing(nil)
		want++
		eventually(t, "what was refused arrives", func() bool { return slices.Contains(l.arrived(), bad.ID.String()) })
	}
	if !took {
		t.Errorf("none of %d crashes took what a sink owes", crashes)
	}

	took = false
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
		crash()
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
