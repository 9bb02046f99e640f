package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink"
)

// linesDriver opens sinks that append each message to a file, a line each: lines:/var/log/events.jsonl. This file is
// all that knows of it.
func linesDriver() sink.Driver {
	return sink.Driver{
		Schemes: []string{"lines"}, Example: "lines:FILE appends to a file",
		Open: func(_ context.Context, url string, _ sink.Options) (sink.Sink, error) {
			f, err := os.OpenFile(strings.TrimPrefix(url, "lines:"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
			if err != nil {
				return nil, fmt.Errorf("open lines: %w", err) // of no class: a folder that is not there does not come by itself
			}
			publish := func(_ context.Context, d outbox.Delivery) error {
				_, err := f.Write(append(d.AppendMessage(nil, outbox.CloudEvent), '\n'))
				return err
			}
			return lines{outbox.SinkFunc(publish), f}, nil
		},
	}
}

type lines struct {
	outbox.SinkFunc
	file *os.File
}

func (l lines) Abilities() outbox.Abilities { return outbox.Abilities{Ping: l.ping} }

func (l lines) ping(context.Context) error {
	_, err := l.file.Stat()
	return err
}

func (l lines) Close() error { return l.file.Close() }

// said collects what a command writes.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A sink is one folder and one line: a driver that is handed to the command is known to its settings, its help, its log
// and its readiness, and events arrive there.
func TestSinkOfADriver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	run := func(ctx context.Context, stdin string, out, errs io.Writer, args ...string) int {
		environ := []string{"OUTBOX_DATABASE_URL=sqlite:" + file("outbox.db")}
		return cli.Main(ctx, args, cli.Streams{In: strings.NewReader(stdin), Out: out, Err: errs}, environ,
			append(app.Sinks(), linesDriver()))
	}
	ok := func(stdin string, args ...string) string {
		t.Helper()
		var out, errs said
		if code := run(t.Context(), stdin, &out, &errs, args...); code != 0 {
			t.Fatalf("outbox %s: exit code %d\n%s%s", strings.Join(args, " "), code, &out, &errs)
		}
		return out.String()
	}
	wants := func(what, text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %s:\n%s", what, part, text)
			}
		}
	}
	ok("", "migrate", "up")
	sinks := []string{"--sink", "lines:" + file("all.jsonl"), "--sink", "audit=lines:" + file("audit.jsonl"), "--routes",
		"event_outbox=audit"}
	wants("config print", ok("", append([]string{"config", "print"}, sinks...)...), "audit=lines:"+file("audit.jsonl"),
		"default=lines:"+file("all.jsonl"), "event_outbox=audit")
	wants("help", ok("", "relay", "--help"), "lines:FILE appends to a file")

	ctx, stop := context.WithCancel(t.Context())
	var log said
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, "", io.Discard, &log, append([]string{"relay", "--listen", "127.0.0.1:0"}, sinks...)...)
	}()
	until(t, &log, func() bool { return strings.Contains(log.String(), `"relaying"`) })
	wants("the log", log.String(), `"audit":"lines:`+file("audit.jsonl"), `"default":"lines:`+file("all.jsonl"))
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(log.String())[1]
	var report struct {
		Ready  bool
		Sinks  map[string]struct{ Ready bool }
		Tables map[string]struct{ Sink string }
	}
	until(t, &log, func() bool {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		if err := json.NewDecoder(response.Body).Decode(&report); err != nil {
			t.Fatal(err)
		}
		return report.Ready
	})
	if len(report.Sinks) != 2 || !report.Sinks["default"].Ready || !report.Sinks["audit"].Ready ||
		report.Tables["outbox_events"].Sink != "default" || report.Tables["event_outbox"].Sink != "audit" {
		t.Errorf("got %+v", report)
	}

	id := strings.TrimSpace(ok(`{"total": 12}`, "write", "--topic", "order.placed", "--key", "42"))
	until(t, &log, func() bool {
		text, err := os.ReadFile(file("all.jsonl"))
		return err == nil && strings.Contains(string(text), `"id":"`+id+`"`) && bytes.HasSuffix(text, []byte("\n"))
	})
	if text, err := os.ReadFile(file("audit.jsonl")); err != nil || len(text) > 0 {
		t.Errorf("the other sink got %q, error %v", text, err)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d:\n%s", code, &log)
	}

	// What waiting does not cure ends the relay at once.
	var errs said
	if code := run(t.Context(), "", io.Discard, &errs, "relay", "--sink", "lines:"+file("no/such/folder")); code != 1 {
		t.Errorf("exit code %d", code)
	}
	wants("the error", errs.String(), "open lines:", "no such file or directory")
	errs = said{}
	if code := run(t.Context(), "", io.Discard, &errs, "relay", "--sink", "pulsar://h"); code != 2 {
		t.Errorf("exit code %d", code)
	}
	wants("the error", errs.String(), "there is no sink for URLs of pulsar", "kafka:, kafkas:, lines:, memory:")
}

// A sink of a table with routes that is away when the relay starts stops no other, is not ready, and gets its events
// when it comes.
func TestSinkAwayAtTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("outbox.yaml"), fmt.Appendf(nil, `
sink: {here: "lines:%s", away: "lines:%s"}
routes: [{to: [here, away]}]
`, file("here.jsonl"), file("later/away.jsonl")), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(ctx context.Context, stdin string, out, errs io.Writer, args ...string) int {
		environ := []string{"OUTBOX_DATABASE_URL=sqlite:" + file("outbox.db"), "OUTBOX_CONFIG=" + file("outbox.yaml")}
		return cli.Main(ctx, args, cli.Streams{In: strings.NewReader(stdin), Out: out, Err: errs}, environ,
			append(app.Sinks(), linesDriver()))
	}
	var log said
	if code := run(t.Context(), "", &log, &log, "migrate", "up", "--set", "core"); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, &log)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, "", io.Discard, &log, "relay", "--listen", "127.0.0.1:0") }()
	until(t, &log, func() bool { return strings.Contains(log.String(), `"relaying"`) })
	var errs said
	if code := run(t.Context(), `{"total": 12}`, io.Discard, &errs, "write", "--topic", "order.placed"); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, &errs)
	}
	arrived := func(name string) bool {
		text, err := os.ReadFile(file(name))
		return err == nil && strings.Contains(string(text), `"type":"order.placed"`)
	}
	until(t, &log, func() bool { return arrived("here.jsonl") })
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(log.String())[1]
	ready := func() (status int, text string) {
		response, err := http.Get("http://" + address + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	until(t, &log, func() bool {
		status, text := ready()
		return status != http.StatusOK && strings.Contains(text, "sink away: not connected yet")
	})
	if err := os.Mkdir(file("later"), 0o700); err != nil {
		t.Fatal(err)
	}
	until(t, &log, func() bool { status, _ := ready(); return arrived("later/away.jsonl") && status == http.StatusOK })
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d:\n%s", code, &log)
	}
}

// until waits for a condition; log is shown if it does not come true.
func until(t *testing.T, log fmt.Stringer, is func() bool) {
	t.Helper()
	for start := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(start) > testenv.Patience {
			t.Fatalf("it does not come true:\n%s", log)
		}
	}
}
