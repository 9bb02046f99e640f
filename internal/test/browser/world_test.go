package browser_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// world is a database with all tables, a Redis whose user relay may publish where the test lets
// him, and processes of the command.
type world struct {
	t        *testing.T
	database string
	redis    *testenv.Redis
	pool     *pgxpool.Pool
	server   string // the address of the API and the page
}

// policies keep an event of topic invoice.* waiting for long after a failure, and give others up at
// once.
const policies = `
retry:
  - {destination: "invoice.*", max_attempts: 9, backoff_base: 30m}
  - {destination: "*", max_attempts: 1}
`

// newWorld has a database of its own on the server that all tests share.
func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOf(t, testenv.Prepared(t, "all", prepare))
}

// newWorldAlone has a server of its own, which may be killed.
func newWorldAlone(t *testing.T) (*world, *testenv.Postgres) {
	t.Helper()
	server := testenv.PostgresServer(t, testenv.PostgresConfig{})
	if err := prepare(t.Context(), server.URL("postgres")); err != nil {
		t.Fatal(err)
	}
	return worldOf(t, server.URL("postgres")), server
}

// worldOf is a world around a database that is prepared.
func worldOf(t *testing.T, database string) *world {
	t.Helper()
	w := &world{t: t, database: database, redis: testenv.RedisServer(t)}
	w.relayUser()
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { // the server may have been killed
		return conn.Ping(ctx) == nil, nil
	}
	if w.pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.pool.Close)
	return w
}

// prepare makes the tables, and the login of the servers with no more rights than they need.
func prepare(ctx context.Context, url string) error {
	program, err := binary()
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"migrate", "up", "--set", "core,events,crawl"}, {"migrate", "roles"}} {
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = append(os.Environ(), "OUTBOX_DATABASE_URL="+url)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, `REASSIGN OWNED BY outbox_owner TO CURRENT_USER; REVOKE CREATE ON SCHEMA public FROM outbox_owner;
		CREATE ROLE shop LOGIN;
		GRANT outbox_gateway, outbox_relay, outbox_operator, outbox_worker TO shop`)
	return errors.Join(err, conn.Close(ctx))
}

// relayUser makes the user of the relay, who may publish to no channel. A Redis that was killed has
// forgotten him.
func (w *world) relayUser() { w.tell("ACL SETUSER relay on >secret ~* +@all resetchannels") }

// tell gives Redis a command.
func (w *world) tell(command string) {
	w.t.Helper()
	conn, err := net.Dial("unix", w.redis.Socket())
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\n", command)
	if reply, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(reply, "+OK") {
		w.t.Fatalf("%s: %q, error %v", command, reply, err)
	}
}

// allow lets the relay publish to the channels of a pattern.
func (w *world) allow(channels string) { w.tell("ACL SETUSER relay &" + channels) }

func (w *world) command(ctx context.Context, args ...string) *exec.Cmd {
	program, err := binary()
	if err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.t.TempDir(), "OUTBOX_DATABASE_URL=" + w.database,
		"OUTBOX_SINK=redis://relay:secret@" + w.redis.Addr()}
	if w.server != "" {
		cmd.Env = append(cmd.Env, "OUTBOX_SERVER="+w.server)
	}
	return cmd
}

// ok runs the command, which must succeed, and returns what it printed.
func (w *world) ok(stdin string, args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), tier.Patience())
	defer cancel()
	cmd := w.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("outbox %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errs)
	}
	return out.String()
}

// event is one to write.
type event struct {
	Topic   string         `json:"topic"`
	Key     string         `json:"key,omitempty"`
	Tenant  string         `json:"tenant,omitempty"`
	Payload map[string]any `json:"payload"`
}

func (w *world) write(events ...event) {
	w.t.Helper()
	var lines bytes.Buffer
	for _, e := range events {
		if err := json.NewEncoder(&lines).Encode(e); err != nil {
			w.t.Fatal(err)
		}
	}
	w.ok(lines.String(), "write", "--jsonl", "--aggregate-type", "Order")
}

// query returns the single value of a statement.
func query[T any](w *world, statement string, args ...any) (v T) {
	w.t.Helper()
	if err := w.pool.QueryRow(w.t.Context(), statement, args...).Scan(&v); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
	return v
}

// count counts the rows of a table that a condition takes.
func (w *world) count(where string, args ...any) int {
	w.t.Helper()
	return query[int](w, "SELECT count(*) FROM "+where, args...)
}

// eventually waits until something holds.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > tier.Patience() {
			w.t.Fatalf("never: %s", what)
		}
	}
}

// becomes waits until a table has so many rows.
func (w *world) becomes(n int, where string, args ...any) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d of %s", n, where), func() bool { return w.count(where, args...) == n })
}

// serve starts outbox serve with an API on a free port, and takes it for the world's. The test ends
// it.
func (w *world) serve(args ...string) {
	w.t.Helper()
	log, ended := w.start(append([]string{"serve", "--http", "127.0.0.1:0", "--environment", "staging=#0f766e"},
		args...)...)
	var said struct{ Address string }
	deadline := time.After(tier.Patience())
	for said.Address == "" {
		select {
		case <-log.more:
		case <-ended:
			w.t.Fatal("outbox serve ended")
		case <-deadline:
			w.t.Fatal("outbox serve does not serve")
		}
		for line := range strings.SplitSeq(log.String(), "\n") {
			if strings.Contains(line, `"serving the API"`) && strings.HasSuffix(line, "}") {
				if err := json.Unmarshal([]byte(line), &said); err != nil {
					w.t.Fatalf("%s: %v", line, err)
				}
			}
		}
	}
	w.server = "http://" + said.Address
}

// start starts a server of the command, with the rights that it needs. The test ends it.
func (w *world) start(args ...string) (log *lines, ended chan struct{}) {
	w.t.Helper()
	file := filepath.Join(w.t.TempDir(), "outbox.yml")
	if err := os.WriteFile(file, []byte(policies), 0o600); err != nil {
		w.t.Fatal(err)
	}
	args = append(args, "--config", file, "--envelope", "payload")
	cmd := w.command(context.Background(), args...)
	cmd.Env = append(cmd.Env, "OUTBOX_DATABASE_URL="+strings.Replace(w.database, "postgres@", "shop@", 1))
	log, ended = &lines{more: make(chan struct{}, 1)}, make(chan struct{})
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // it is killed in the end
		close(ended)
	}()
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if w.t.Failed() {
			w.t.Logf("outbox %s wrote:\n%s", strings.Join(args, " "), log)
		}
	})
	return log, ended
}

// lines is what a process has logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
