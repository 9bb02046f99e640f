package clients

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

var binary string

// TestMain builds the command, which the clients speak to, and the TypeScript client once.
func TestMain(m *testing.M) {
	var err error
	if binary, err = testenv.BuildCommand(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if out, err := exec.Command("npm", "--prefix", "typescript", "run", "build").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the TypeScript client: %v\n%s", err, out)
		os.Exit(1)
	}
	testenv.Main(m)
}

// world is a database with all tables, a Redis, and a gateway with a relay that a test's program
// can have killed.
type world struct {
	t       *testing.T
	env     []string // of the command
	address string
	token   string // of the tenant default, with all scopes
	url     string // of the database

	mu      sync.Mutex
	gateway *exec.Cmd     // nil: there is none at the moment
	ended   chan struct{} // closed when it has
}

func newWorld(t *testing.T) *world {
	t.Helper()
	url := testenv.Prepared(t, "clients", func(ctx context.Context, url string) error {
		return pgmigrations.Up(ctx, url, "core", "events", "crawl", "log")
	})
	w := &world{t: t, url: url, env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"OUTBOX_DATABASE_URL=" + url, "OUTBOX_SINK=" + testenv.RedisServer(t).URL()}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = listener.Addr().String() // the gateway comes back to it
	_ = listener.Close()
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(w.command("token", "create", "--tenant", "default", "--name", "clients",
		"--scope", "read,write,operate,consume", "-o", "json")), &made); err != nil {
		t.Fatal(err)
	}
	w.token = made.Token
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kill)
	return w
}

// command runs the command to its end and returns what it printed.
func (w *world) command(args ...string) string {
	w.t.Helper()
	command := exec.CommandContext(w.t.Context(), binary, args...)
	command.Env = w.env
	out, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		w.t.Fatalf("outbox %s: %v\n%s", strings.Join(args, " "), err, exit.Stderr)
	}
	return string(out)
}

// start starts the gateway and waits until it answers.
func (w *world) start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gateway != nil {
		return errors.New("the gateway runs")
	}
	command := exec.Command(binary, "serve", "--http", w.address, "--cors-origin", "http://127.0.0.1:*")
	var log bytes.Buffer
	command.Env, command.Stderr = w.env, &log
	if err := command.Start(); err != nil {
		return err
	}
	w.gateway, w.ended = command, make(chan struct{})
	go func() {
		_ = command.Wait()
		close(w.ended)
	}()
	for deadline := time.Now().Add(tier.Patience()); ; time.Sleep(10 * time.Millisecond) {
		answer, err := http.Get("http://" + w.address + "/openapi.json")
		if err == nil {
			return answer.Body.Close()
		}
		select {
		case <-w.ended:
			return fmt.Errorf("the gateway ended: %s", &log)
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the gateway does not answer: %w", err)
		}
	}
}

// kill ends the gateway with SIGKILL, if there is one.
func (w *world) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gateway != nil {
		_ = w.gateway.Process.Kill()
		<-w.ended
		w.gateway = nil
	}
}

// control lets a test's program kill the gateway (POST /kill) and start it (POST /start), write
// events whose payloads count from first into the log (POST
// /write?type=T&of=Order&key=K&first=1&count=10), and count a subscription's dead letters.
func (w *world) control() string {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /kill", func(http.ResponseWriter, *http.Request) { w.kill() })
	mux.HandleFunc("POST /start", func(rw http.ResponseWriter, _ *http.Request) {
		if err := w.start(); err != nil {
			http.Error(rw, err.Error(), http.StatusInternalServerError)
		}
	})
	mux.HandleFunc("POST /write", func(rw http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		_, _ = fmt.Fprint(rw, w.query(`WITH written AS (
			INSERT INTO outbox_log (event_topic, occurred_at, source_bc, aggregate_type, aggregate_id, payload)
			SELECT $1, now(), 'shop', $5, $2, to_jsonb(n) FROM generate_series($3::int, $3::int + $4::int - 1) n RETURNING 1)
			SELECT count(*) FROM written`, q.Get("type"), q.Get("key"), q.Get("first"), q.Get("count"),
			cmp.Or(q.Get("of"), "Order")))
	})
	mux.HandleFunc("POST /letters", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(rw, w.query("SELECT count(*) FROM job_dlq WHERE destination = $1", r.FormValue("subscription")))
	})
	server := httptest.NewServer(mux)
	w.t.Cleanup(server.Close)
	return server.URL
}

// program is one of a client, which is told where everything is.
func (w *world) program(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "OUTBOX_URL=http://"+w.address, "OUTBOX_TOKEN="+w.token, "DATABASE_URL="+w.url,
		"OUTBOX_CONTROL="+w.control())
	return command
}

// run runs a program of a client to its end, and fails with it.
func (w *world) run(dir, name string, args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), tier.Patience())
	defer cancel()
	out, err := w.program(ctx, dir, name, args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	w.t.Logf("%s", out)
	return string(out)
}

func (w *world) query(statement string, args ...any) (v int) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(w.t.Context())) }()
	if err := conn.QueryRow(w.t.Context(), statement, args...).Scan(&v); err != nil {
		w.t.Fatal(err)
	}
	return v
}

// tool runs a program to its end and returns what it printed.
func tool(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), name, args...)
	command.Dir = dir
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, request)
}

// do sends a request and returns the body of an answer that must be good.
func do(t *testing.T, request *http.Request) []byte {
	t.Helper()
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= http.StatusMultipleChoices {
		t.Fatalf("%s %s: %s, %v: %s", request.Method, request.URL, answer.Status, err, body)
	}
	return body
}
