package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func TestMain(m *testing.M) {
	testenv.AtOnce(4)
	testenv.Main(m)
}

// binary builds the command once, with the fault points compiled in.
var binary = sync.OnceValues(func() (string, error) { return testenv.BuildCommand("-tags=fault") })

// world is a migrated database, a Redis server, and everything published on it.
type world struct {
	url   string
	pool  *pgxpool.Pool
	redis *testenv.Redis
	*subscriber
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{url: migrated(t), redis: testenv.RedisServer(t)}
	var err error
	w.pool, err = pgxpool.New(t.Context(), w.url)
	noError(t, err)
	t.Cleanup(w.pool.Close)
	w.subscriber = subscribe(t, w.redis)
	return w
}

// migrated is a new database with all tables.
func migrated(t *testing.T) string {
	t.Helper()
	return testenv.Prepared(t, "all", func(ctx context.Context, url string) error {
		return pgmigrations.Up(ctx, url, pgmigrations.Sets...)
	})
}

// relay starts the relay as a process of its own.
func (w *world) relay(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := binary()
	noError(t, err)
	return w.relayOf(t, path, env, args...)
}

// relayOf is relay, by the command at a path.
func (w *world) relayOf(t *testing.T, path string, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, append([]string{"relay", "--database", w.url}, args...)...)
	cmd.Env = append(append(os.Environ(), "OUTBOX_SINK="+w.redis.URL()), env...)
	log, err := os.Create(filepath.Join(t.TempDir(), "relay.log"))
	noError(t, err)
	cmd.Stdout, cmd.Stderr = log, log
	noError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails if it has ended, as it should have
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("relay said:\n%s", text)
		}
	})
	return cmd
}

// message is one CloudEvent as a subscriber received it.
type message struct {
	Channel  string          `json:"-"`
	Version  string          `json:"specversion"`
	ID       string          `json:"id"`
	Type     string          `json:"type"`
	Subject  string          `json:"subject"`
	Key      string          `json:"partitionkey"`
	Sequence string          `json:"sequence"`
	Time     string          `json:"time"`
	Tenant   string          `json:"tenantid"`
	Data     json.RawMessage `json:"data"`
	At       time.Time       `json:"-"`
	Text     string          `json:"-"` // all of it
}

// subscriber records every message of every channel, in the order of arrival.
type subscriber struct {
	mu       sync.Mutex
	messages []message
}

func subscribe(t *testing.T, server *testenv.Redis) *subscriber {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	// A slow test machine must not look like a lost event: Redis cuts subscribers that lag by 32
	// MB.
	noError(t, client.ConfigSet(t.Context(), "client-output-buffer-limit", "pubsub 0 0 0").Err())
	ps := client.PSubscribe(t.Context(), "*")
	if _, err := ps.Receive(t.Context()); err != nil { // the acknowledgement
		t.Fatal(err)
	}
	s := &subscriber{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			got, err := ps.Receive(context.Background())
			if err != nil {
				return // closed below
			}
			m, ok := got.(*redis.Message)
			if !ok {
				continue
			}
			event := message{Channel: m.Channel, At: time.Now(), Text: m.Payload}
			if err := json.Unmarshal([]byte(m.Payload), &event); err != nil || event.Version == "" {
				event.Data = json.RawMessage(m.Payload) // the bare payload
			} else if err := conforms(m.Payload); err != nil {
				t.Errorf("message %s: %v", m.Payload, err)
			}
			s.mu.Lock()
			s.messages = append(s.messages, event)
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = ps.Close()
		<-done
		_ = client.Close()
	})
	return s
}

// wait returns the messages once there are at least n of them and nothing more has come for settle.
func (s *subscriber) wait(t *testing.T, n int, settle time.Duration) []message {
	t.Helper()
	deadline := time.Now().Add(tier.Patience())
	last, since := -1, time.Now()
	for {
		s.mu.Lock()
		got := len(s.messages)
		s.mu.Unlock()
		if got != last {
			last, since = got, time.Now()
		}
		if got >= n && time.Since(since) >= settle {
			s.mu.Lock()
			defer s.mu.Unlock()
			return append([]message(nil), s.messages...)
		}
		if time.Now().After(deadline) {
			t.Fatalf("received %d messages, want %d", got, n)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (w *world) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	if _, err := w.pool.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// holds checks a condition, an SQL query for one boolean.
func (w *world) holds(t *testing.T, what, sql string) {
	t.Helper()
	var ok bool
	if err := w.pool.QueryRow(t.Context(), sql).Scan(&ok); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if !ok {
		t.Errorf("does not hold: %s", what)
	}
}

// eventually waits for a condition to hold.
func (w *world) eventually(t *testing.T, what, sql string) {
	t.Helper()
	deadline := time.Now().Add(tier.Patience())
	for {
		var ok *bool
		if err := w.pool.QueryRow(t.Context(), sql).Scan(&ok); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if ok != nil && *ok {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("did not come to hold in %s: %s", tier.Patience(), what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// command sends one command to Redis.
func (w *world) command(t *testing.T, args ...any) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr(), MaxRetries: -1})
	defer func() { _ = client.Close() }()
	if err := client.Do(t.Context(), args...).Err(); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
}

func stdin(format string, args ...any) io.Reader {
	return strings.NewReader(fmt.Sprintf(format, args...))
}

// backlog writes n events over 50 keys, numbered.
func (w *world) backlog(t *testing.T, n int) {
	t.Helper()
	w.exec(t, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_id, source_bc, payload)
		SELECT 'e', now(), (i % 50)::text, 's', to_jsonb(i) FROM generate_series(1, $1::int) i`, n)
}

// processState is a letter as ps prints it: T for stopped, Z for dead and not waited for; "" if
// nobody knows.
func processState(cmd *exec.Cmd) string {
	state, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(cmd.Process.Pid)).Output()
	if err != nil || len(state) == 0 {
		return ""
	}
	return string(state[:1])
}

// noError ends the test with an error, if there is one.
func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
