package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// served is `outbox serve` with authentication, as a process, on a database of its own: what
// somebody with a token, or without, has before him.
type served struct {
	*world   // without producers and subscriber
	address  string
	database string
	process  *relayProcess
}

func serveWithTokens(t *testing.T, name string, sqlite bool, flags ...string) *served {
	t.Helper()
	s := &served{world: &world{t: t, rng: choices(name), began: time.Now()}, address: freeAddress(t)}
	args := []string{"serve", "--http", s.address, "--parts=gateway,relay", "--log-level", "debug"}
	if sqlite {
		s.database = "sqlite:" + filepath.Join(t.TempDir(), "outbox.db")
		args = append(args, "--sink", "memory:")
	} else {
		s.database = testenv.Database(t)
		s.redis = testenv.RedisServer(t)
		s.connect(s.database)
		args = append(args, "--sink", s.redis.URL())
	}
	path, err := binary()
	must(t, err)
	s.outbox("migrate", "up", "--set", "core,crawl")
	s.process = s.world.process(path, nil, append(append(args, "--database", s.database), flags...)...)
	eventually(t, "the API is served", func() bool { return strings.Contains(s.process.said(), `"serving the API"`) })
	return s
}

// outbox runs a command on the database and returns what it prints.
func (s *served) outbox(args ...string) string {
	s.t.Helper()
	out, said, code, err := outboxOn(s.t, s.database, args...)
	if s.must(err); code != 0 {
		s.t.Fatalf("outbox %s: exit code %d: %s", strings.Join(args, " "), code, said)
	}
	return out
}

// token makes one of a tenant.
func (s *served) token(tenant, scope string, more ...string) (id, text string) {
	s.t.Helper()
	var made struct{ ID, Token string }
	args := append([]string{"token", "create", "-o", "json", "--tenant", tenant, "--scope", scope}, more...)
	decode(s.t, s.outbox(args...), &made)
	return made.ID, made.Token
}

// ask makes a request and returns the answer.
func (s *served) ask(token, method, path, body string) (status int, answer string) {
	s.t.Helper()
	status, _, answer = ask(s.t, method, "http://"+s.address+path, token, body)
	return status, answer
}

// expect is ask with the only status that is right.
func (s *served) expect(want int, token, method, path, body string) (answer string) {
	s.t.Helper()
	status, answer := s.ask(token, method, path, body)
	if status != want {
		s.t.Fatalf("%s %s: %d %s, want %d", method, path, status, answer, want)
	}
	return answer
}

// run makes a RUNNING run of the token's tenant.
func (s *served) run(token, body string) (id string) {
	s.t.Helper()
	var made struct{ RunID string }
	decode(s.t, s.expect(201, token, "POST", "/v1/runs", body), &made)
	s.expect(200, token, "POST", "/v1/runs/"+made.RunID+"/start", "")
	return made.RunID
}

func decode(t *testing.T, text string, to any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), to); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
}

// open opens a stream; the caller reads and closes its body.
func (s *served) open(token, path string) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.address+path, nil)
	s.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := perRequest.Do(req)
	s.must(err)
	return resp
}

// raw sends bytes over a connection of its own, with a small window to answer into, and does not
// read.
func (s *served) raw(text string) net.Conn {
	s.t.Helper()
	conn, err := new(net.Dialer).DialContext(s.t.Context(), "tcp", s.address)
	if err == nil {
		err = conn.(*net.TCPConn).SetReadBuffer(4096)
	}
	if err == nil {
		_, err = io.WriteString(conn, text)
	}
	s.must(err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// exchange is raw with the answer: its status, and what came of it within a moment. 0: none.
func (s *served) exchange(text string) (status int, answer string) {
	s.t.Helper()
	conn := s.raw(text)
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the connection is closed
	if err != nil {
		return 0, ""
	}
	if resp.Header.Get("Content-Type") == "text/event-stream" {
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // it would last
	}
	head := &strings.Builder{}
	_ = resp.Header.Write(head)
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<20)) // what was cut off is judged by what came
	return resp.StatusCode, head.String() + string(body)
}

// peak is the most memory that the process has had resident, in MB.
func (s *served) peak() int {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.cmd.Process.Pid))
	s.must(err)
	return numberAfter(strings.ReplaceAll(strings.ReplaceAll(string(status), "\t", ""), " ", ""), "VmHWM:") >> 10
}
