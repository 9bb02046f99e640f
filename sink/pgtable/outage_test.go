package pgtable

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func wantUnavailable(t testing.TB, res outbox.Result, says string) {
	t.Helper()
	if class, _ := outbox.Classify(res.Err); res.Err == nil || class != outbox.ClassUnavailable ||
		!strings.Contains(res.Err.Error(), says) {
		t.Fatalf("answered %+v, want unavailable: %s", res, says)
	}
}

func startPostgres(t *testing.T) *testenv.Postgres {
	server, err := testenv.StartPostgres(t.Context(), testenv.PostgresConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// The server dies while batches are sent one after another, and comes back. What is sent again is a copy or new, and
// every event is there once and in order.
func TestKilledWhilePublishing(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	admin := connectAdmin(t, server.URL("postgres"))
	makeTables(t, admin, "inbox")
	sink := openURL(t, server.TCPURL("postgres"), Config{})
	var sent []outbox.Delivery
	copies, failures := 0, 0
	killed := make(chan error, 1)
	for n := 0; n < 40 || failures == 0; n++ {
		batch := make([]outbox.Delivery, 200)
		for i := range batch {
			batch[i] = event(t, "inbox", 1)
		}
		if n == 20 {
			go func() { killed <- server.Kill() }()
		}
		for {
			got := sink.Publish(t.Context(), batch)
			if got[0].Err == nil {
				for i, res := range got {
					if res.Err != nil {
						t.Fatalf("delivery %d is answered %+v, the first is delivered", i, res)
					}
					if res.Duplicate {
						copies++
					}
				}
				break
			}
			wantUnavailable(t, got[0], "")
			if failures++; failures == 1 {
				if err := sink.Abilities().Ping(t.Context()); err == nil {
					t.Log("backends outlive the postmaster")
				}
				if err := errors.Join(<-killed, server.Restart()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Millisecond) // as a relay's breaker does
		}
		sent = append(sent, batch...)
	}
	t.Logf("%d failures, %d copies were refused", failures, copies)
	eventually(t, func() bool { return admin.Ping(t.Context()) == nil })
	if got := received(t, admin, "inbox"); !slices.Equal(got, ids(sent...)) {
		t.Errorf("%d rows, want the %d events once and in order", len(got), len(sent))
	}
}

// The reply to a committed batch is lost: nothing is sent again by itself, and then all of it is a copy.
func TestLostReply(t *testing.T) {
	t.Parallel()
	server := startPostgres(t)
	admin := connectAdmin(t, server.URL("postgres"))
	makeTables(t, admin, "inbox", "other")
	proxy := startProxy(t, server.Addr())
	sink := openURL(t, strings.Replace(server.TCPURL("postgres"), server.Addr(), proxy.Addr().String(), 1), Config{})
	deliver(t, sink, event(t, "other", 1))
	proxy.cut.Store(true)
	batch := []outbox.Delivery{event(t, "inbox", 1), event(t, "inbox", 1), event(t, "other", 2)}
	wantUnavailable(t, sink.Publish(t.Context(), batch)[0], "")
	if proxy.cut.Load() {
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
		"too slow":     {"&statement_timeout=50ms", "statement timeout"},
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

// A table whose triggers are too slow for a whole batch gets done all the same: transactions become smaller.
func TestSlowTable(t *testing.T) {
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
	if attempts == 1 || sink.limit.get() >= 60 {
		t.Errorf("done after %d attempts with transactions of %d rows: nothing was too slow", attempts, sink.limit.get())
	}
	if got := received(t, admin, "inbox"); !slices.Equal(got, ids(batch...)) {
		t.Errorf("%d rows, want all in order", len(got))
	}
	sink.limit.since = time.Now().Add(-2 * growAfter)
	if before := sink.limit.rows; sink.limit.get() != 2*before {
		t.Errorf("a minute later it is %d, want twice %d", sink.limit.rows, before)
	}
}

// A pooler in transaction mode does not matter.
func TestThroughAPooler(t *testing.T) {
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

// proxy passes on what comes. When cut is set, it closes the connection instead of passing on the next reply, once.
type proxy struct {
	net.Listener
	cut atomic.Bool
}

func startProxy(t *testing.T, server string) *proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: listener}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			running.Go(func() { p.serve(t, client, server) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); running.Wait() })
	return p
}

func (p *proxy) serve(t *testing.T, client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		t.Error(err)
		return
	}
	stop := context.AfterFunc(t.Context(), func() { _ = client.Close() })
	defer stop()
	var requests sync.WaitGroup
	requests.Go(func() {
		_, _ = io.Copy(server, client) // until either side closes
		_ = server.Close()
	})
	defer requests.Wait()
	reply := make([]byte, 64<<10)
	for {
		n, err := server.Read(reply)
		if err != nil || p.cut.CompareAndSwap(true, false) {
			_ = client.Close()
			return
		}
		if _, err := client.Write(reply[:n]); err != nil {
			return
		}
	}
}

// poolerURL is a PgBouncer before the server that has two connections to it.
func poolerURL(t *testing.T, server *testenv.Postgres) string {
	pooler, err := testenv.StartPgBouncer(t.Context(), server,
		map[string]string{"pool_mode": "transaction", "default_pool_size": "2"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pooler.Stop(); err != nil {
			t.Error(err)
		}
	})
	return pooler.URL("postgres")
}
