package redisstream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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

// step changes the state of a server.
type step func(t *testing.T, server *testenv.Redis, admin *redis.Client)

func command(args ...any) step {
	return func(t *testing.T, _ *testenv.Redis, admin *redis.Client) { do(t, admin, args...) }
}

func acl(rules ...any) step { return command(append([]any{"ACL", "SETUSER", "relay"}, rules...)...) }

// A server or a user that cannot take the whole script leaves nothing behind: no entry, and nothing remembered either,
// or the next attempt would be refused as a copy and the event be lost. With the window off it is the same.
func TestNothingHappensOnARefusingServer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name        string
		spoil, mend step
		says        string
	}{
		{"out of memory", command("CONFIG", "SET", "maxmemory", "1"), command("CONFIG", "SET", "maxmemory", "0"), "OOM"},
		{"too few replicas", command("CONFIG", "SET", "min-replicas-to-write", "1"),
			command("CONFIG", "SET", "min-replicas-to-write", "0"), "NOREPLICAS"},
		{"read-only replica", command("REPLICAOF", "127.0.0.1", "1"), command("REPLICAOF", "NO", "ONE"), "READONLY"},
		{"failed snapshot", failSnapshot, command("CONFIG", "SET", "stop-writes-on-bgsave-error", "no"), "MISCONF"},
		{"no right to the script", acl("-evalsha"), acl("+evalsha"), "NOPERM"},
		{"no right to append", acl("-xadd"), acl("+xadd"), "can't run this command"},
		{"no right to the memory", acl("resetkeys", "~suite:*"), acl("~outbox:seen:*"), "NOPERM"},
		{"password changed", changePassword, acl("resetpass", ">hunter2"), "WRONGPASS"},
	} {
		for window, cfg := range map[string]Config{
			"": {Envelope: idEnvelope}, ", window off": {Envelope: idEnvelope, Window: -1},
		} {
			t.Run(tt.name+window, func(t *testing.T) {
				t.Parallel()
				server := testenv.RedisServer(t)
				admin := connectAdmin(t, server)
				user := []any{"ACL", "SETUSER", "relay", "on", ">hunter2"}
				for _, right := range rights {
					user = append(user, right)
				}
				do(t, admin, user...)
				sink := openURL(t, "redis+stream://relay:hunter2@"+server.Addr(), cfg)
				makeStreams(t, admin, "suite:1")
				old := event(t, "suite:1", 1)
				deliver(t, sink, old)

				tt.spoil(t, server, admin)
				// A copy first: it writes nothing, so the server must still be asked about what follows it.
				batch := []outbox.Delivery{old, event(t, "suite:1", 1), event(t, "suite:1", 2)}
				if window != "" {
					batch = batch[1:]
				}
				for range 2 {
					refused := 0
					for i, res := range sink.Publish(t.Context(), batch) {
						if res == (outbox.Result{Duplicate: true}) && i == 0 || errors.Is(res.Err, outbox.ErrNotAttempted) {
							continue
						}
						wantUnavailable(t, res, tt.says)
						if strings.Contains(res.Err.Error(), "hunter2") {
							t.Errorf("the error has the password: %v", res.Err)
						}
						refused++
					}
					if refused == 0 {
						t.Fatal("nothing was refused: the fault was not there")
					}
				}
				tt.mend(t, server, admin)
				eventually(
					t,
					func() bool { return sink.Abilities().Ping(t.Context()) == nil },
				) // go-redis throws away a connection or two
				want := make([]outbox.Result, len(batch))
				want[0].Duplicate = window == ""
				if got := sink.Publish(t.Context(), batch); !slices.Equal(got, want) {
					t.Errorf("afterwards answered %+v, want %+v", got, want)
				}
				if window != "" {
					batch = append([]outbox.Delivery{old}, batch...)
				}
				wantEntries(t, admin, "suite:1", ids(batch...)...)
			})
		}
	}
}

func changePassword(t *testing.T, server *testenv.Redis, admin *redis.Client) {
	acl("resetpass", ">other")(t, server, admin)
	do(t, admin, "CLIENT", "KILL", "USER", "relay")
}

// failSnapshot makes the server refuse writes because its last snapshot failed: a directory is in the file's place.
func failSnapshot(t *testing.T, server *testenv.Redis, admin *redis.Client) {
	if err := os.MkdirAll(filepath.Join(server.Dir(), "dump.rdb", "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	do(t, admin, "CONFIG", "SET", "save", "3600 1")
	do(t, admin, "BGSAVE")
	eventually(t, func() bool {
		return strings.Contains(admin.Info(t.Context(), "persistence").Val(), "rdb_last_bgsave_status:err")
	})
}

// The server dies while batches are sent one after another, and comes back with all it had answered. What is sent again
// is a copy or new, and every event is there once.
func TestKilledWhilePublishing(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServerWith(t,
		testenv.RedisConfig{Args: []string{"--appendonly", "yes", "--appendfsync", "always"}})
	sink, admin := open(t, server, Config{Envelope: idEnvelope})
	makeStreams(t, admin, "s")
	var sent []outbox.Delivery
	copies, failures := 0, 0
	killed := make(chan error, 1)
	for n := 0; n < 60 || failures == 0; n++ {
		batch := make([]outbox.Delivery, 100)
		for i := range batch {
			batch[i] = event(t, "s", 1)
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
				if err := errors.Join(<-killed, server.Restart()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Millisecond) // as a relay's breaker does
		}
		sent = append(sent, batch...)
	}
	t.Logf("%d failures, %d copies were refused", failures, copies)
	eventually(t, func() bool { return admin.Ping(t.Context()).Err() == nil })
	wantEntries(t, admin, "s", ids(sent...)...)
}

// A server that saves nothing has lost stream and memory. Events fail until the stream is made again, and none is lost.
func TestRestartWithoutPersistence(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	sink, admin := open(t, server, Config{Envelope: idEnvelope})
	makeStreams(t, admin, "s")
	batch := []outbox.Delivery{event(t, "s", 1), event(t, "s", 1)}
	deliver(t, sink, batch...)
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return sink.Abilities().Ping(t.Context()) == nil && admin.Ping(t.Context()).Err() == nil })
	got := sink.Publish(t.Context(), batch)
	if class, _ := outbox.Classify(got[0].Err); class != outbox.ClassRetryable || got[0].Err == nil ||
		!errors.Is(got[1].Err, outbox.ErrNotAttempted) {
		t.Fatalf("answered %+v, want a missing stream and an event behind it", got)
	}
	makeStreams(t, admin, "s")
	deliver(t, sink, batch...)
	wantEntries(t, admin, "s", ids(batch...)...)
}

// The server forgets the script: it is brought again within the call.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	sink, admin := open(t, testenv.RedisServer(t), Config{Envelope: idEnvelope})
	makeStreams(t, admin, "s")
	var sent []outbox.Delivery
	for range 3 {
		batch := []outbox.Delivery{event(t, "s", 1), event(t, "s", 2)}
		deliver(t, sink, batch...)
		sent = append(sent, batch...)
		do(t, admin, "SCRIPT", "FLUSH")
	}
	wantEntries(t, admin, "s", ids(sent...)...)
}

// The server appends the batch but is too busy to say so in time. Sent again, all of it is a copy.
func TestTimeout(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServerWith(t, testenv.RedisConfig{Args: []string{"--enable-debug-command", "local"}})
	sink, admin := open(t, server, Config{Envelope: idEnvelope})
	makeStreams(t, admin, "s", "other")
	deliver(t, sink, event(t, "other", 1)) // connected, script loaded

	ctx, cancel := context.WithCancel(t.Context())
	asleep := make(chan error, 1)
	go func() { asleep <- admin.Do(context.WithoutCancel(ctx), "DEBUG", "SLEEP", "1").Err() }()
	eventually(t, func() bool { // it sleeps
		asking, done := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer done()
		return sink.Abilities().Ping(asking) != nil
	})
	time.AfterFunc(100*time.Millisecond, cancel)
	batch := []outbox.Delivery{event(t, "s", 1), event(t, "s", 1), event(t, "s", 2)}
	for _, res := range sink.Publish(ctx, batch) {
		wantUnavailable(t, res, "")
	}
	if err := <-asleep; err != nil {
		t.Fatal(err)
	}
	for i, res := range sink.Publish(t.Context(), batch) {
		if res.Err != nil { // a copy, or new if the request had not left
			t.Errorf("delivery %d is answered %+v", i, res)
		}
	}
	wantEntries(t, admin, "s", ids(batch...)...)
}

// The reply is lost with its connection, whatever client the sink is given: the entries are there once.
func TestLostReply(t *testing.T) {
	t.Parallel()
	server := testenv.RedisServer(t)
	admin := connectAdmin(t, server)
	makeStreams(t, admin, "s", "other")
	proxy := startProxy(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr().String()}) // 3 retries
	t.Cleanup(func() { _ = client.Close() })
	sink, err := New(client, Config{Envelope: idEnvelope})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, sink, event(t, "other", 1))
	proxy.cut.Store(true)
	batch := []outbox.Delivery{event(t, "s", 1), event(t, "s", 1), event(t, "s", 2)}
	for i, res := range sink.Publish(t.Context(), batch) {
		if res != (outbox.Result{Duplicate: true}) {
			t.Errorf("delivery %d is answered %+v, want a copy: the first one went through", i, res)
		}
	}
	if proxy.cut.Load() {
		t.Error("no reply was lost")
	}
	wantEntries(t, admin, "s", ids(batch...)...)
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
