package pgtable

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/sink/rounds"
	"github.com/outboxrelay/outbox/internal/test/sinktest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func startPostgres(t *testing.T) *testenv.Postgres {
	server := testenv.PostgresServer(t, testenv.PostgresConfig{})
	return server
}

// The server is killed again and again while events are published: each is there once, in order.
func TestKilledWhilePublishing(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := startPostgres(t)
	admin := connectAdmin(t, server.URL("postgres"))
	makeTables(t, admin, "inbox")
	sinktest.Killed(t, openURL(t, server.TCPURL("postgres"), Config{}), "inbox",
		func() error { return errors.Join(server.Kill(), server.Restart()) },
		func(int) []string {
			eventually(t, func() bool { return admin.Ping(t.Context()) == nil })
			return received(t, admin, "inbox")
		})
}

// The reply to a committed batch is lost: nothing is sent again by itself, and then all of it is a
// copy.
func TestLostReply(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := startPostgres(t)
	admin := connectAdmin(t, server.URL("postgres"))
	makeTables(t, admin, "inbox", "other")
	proxy := sinktest.NewProxy(t, server.Addr())
	sink := openURL(t, strings.Replace(server.TCPURL("postgres"), server.Addr(), proxy.Addr, 1), Config{})
	deliver(t, sink, event(t, "other", 1))
	proxy.LoseReply.Store(true)
	batch := []outbox.Delivery{event(t, "inbox", 1), event(t, "inbox", 1), event(t, "other", 2)}
	wantUnavailable(t, sink.Publish(t.Context(), batch)[0], "")
	if proxy.LoseReply.Load() {
		t.Error("no reply was lost")
	}
	eventually(t, func() bool { return len(received(t, admin, "inbox")) == 2 })
	wantCopies(t, sink, batch...)
	if got := received(t, admin, "inbox"); !slices.Equal(got, ids(batch[:2]...)) {
		t.Errorf("the rows are %v", got)
	}
}

// What the server's own state refuses counts against no event, and is over when the server is well.
func TestServerTakesNothing(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	admin := connectAdmin(t, url)
	makeTables(t, admin, "inbox")
	for name, tt := range map[string]struct{ parameter, says string }{
		"read-only":    {"&default_transaction_read_only=on", "read-only"},
		"lock timeout": {"&lock_timeout=10ms", "lock timeout"},
		"too slow":     {"&statement_timeout=500ms", "statement timeout"},
	} {
		sink := openURL(t, url+tt.parameter, Config{})
		tx, err := admin.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if name != "read-only" { // which is found out behind the lock
			if _, err := tx.Exec(t.Context(), "LOCK TABLE inbox"); err != nil {
				t.Fatal(err)
			}
		}
		batch := []outbox.Delivery{event(t, "inbox", 1), event(t, "inbox", 2)}
		for _, res := range sink.Publish(t.Context(), batch) {
			wantUnavailable(t, res, tt.says)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if name != "read-only" {
			deliver(t, sink, batch...)
		}
	}
	// A session that is ended from outside.
	sink := openURL(t, url+"&application_name=ended", Config{})
	deliver(t, sink, event(t, "inbox", 1))
	exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'ended'")
	d := event(t, "inbox", 1)
	eventually(t, func() bool {
		res := sink.Publish(t.Context(), []outbox.Delivery{d})[0]
		if res.Err != nil {
			wantUnavailable(t, res, "")
		}
		return res.Err == nil
	})
}

// A table whose triggers are too slow for a whole batch gets done all the same: transactions become
// smaller.
func TestSlowTable(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := testenv.Database(t)
	admin := connectAdmin(t, url)
	makeTables(t, admin, "inbox")
	exec(t, admin, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_sleep(0.02); RETURN NEW; END $$;
		CREATE TRIGGER slow BEFORE INSERT ON inbox FOR EACH ROW EXECUTE FUNCTION slow()`)
	sink := openURL(t, url+"&statement_timeout=400ms", Config{})
	var batch []outbox.Delivery
	for range 60 {
		batch = append(batch, event(t, "inbox", 1))
	}
	attempts := 0
	eventually(t, func() bool {
		attempts++
		got := sink.Publish(t.Context(), batch)
		if got[len(got)-1].Err == nil {
			return true
		}
		for _, res := range got {
			if class, _ := outbox.Classify(res.Err); res.Err != nil && class != outbox.ClassUnavailable &&
				class != outbox.ClassNotAttempted {
				t.Fatalf("answered %+v", res)
			}
		}
		return false
	})
	if attempts == 1 || sink.limit.Get() >= 60 {
		t.Errorf("done after %d attempts with transactions of %d rows: nothing was too slow", attempts, sink.limit.Get())
	}
	if got := received(t, admin, "inbox"); !slices.Equal(got, ids(batch...)) {
		t.Errorf("%d rows, want all in order", len(got))
	}
	before := sink.limit.Get()
	sink.limit.Since = time.Now().Add(-2 * rounds.GrowAfter)
	if after := sink.limit.Get(); after != 2*before {
		t.Errorf("a minute later it is %d, want twice %d", after, before)
	}
}

// A pooler in transaction mode does not matter.
func TestThroughAPooler(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	server := startPostgres(t)
	admin := connectAdmin(t, server.URL("postgres"))
	makeTables(t, admin, "a", "b")
	sink := openURL(t, poolerURL(t, server), Config{})
	var all sync.WaitGroup
	for n := range 4 {
		var batch []outbox.Delivery
		for i := range 400 {
			batch = append(batch, event(t, []string{"a", "b"}[i%2], n))
		}
		all.Go(func() {
			for part := range slices.Chunk(batch, 50) {
				deliver(t, sink, part...)
			}
			wantCopies(t, sink, batch...)
		})
	}
	all.Wait()
	if n := len(received(t, admin, "a")) + len(received(t, admin, "b")); n != 1600 {
		t.Errorf("%d rows, want 1600", n)
	}
}

// poolerURL is a PgBouncer before the server that has two connections to it.
func poolerURL(t *testing.T, server *testenv.Postgres) string {
	pooler := testenv.PgBouncerServer(t, server,
		map[string]string{"pool_mode": "transaction", "default_pool_size": "2"})
	return pooler.URL("postgres")
}
