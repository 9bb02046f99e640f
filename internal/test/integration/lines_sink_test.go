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
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/sink"
)

// linesDriver opens sinks that append each message to a file, a line each:
// lines:/var/log/events.jsonl. This file is all that knows of it.
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

// A sink is one folder and one line: a driver that is handed to the command is known to its
// settings, its help, its log and its readiness, and events arrive there.
func TestSinkOfADriver(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	c := &command{t: t, environ: []string{"OUTBOX_DATABASE_URL=sqlite:" + file("outbox.db")},
		drivers: []sink.Driver{linesDriver()}}
	wants := func(what, text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s lacks %s:\n%s", what, part, text)
			}
		}
	}
	c.prints("", "migrate", "up")
	sinks := []string{"--sink", "lines:" + file("all.jsonl"), "--sink", "audit=lines:" + file("audit.jsonl"), "--routes",
		"event_outbox=audit"}
	wants("config print", c.prints("", append([]string{"config", "print"}, sinks...)...),
		"audit=lines:"+file("audit.jsonl"),
		"default=lines:"+file("all.jsonl"), "event_outbox=audit")
	wants("help", c.prints("", "help", "urls"), "lines:FILE appends to a file")

	stop := c.start(append([]string{"relay", "--listen", "127.0.0.1:0"}, sinks...)...)
	c.until(func() bool { return strings.Contains(c.log.String(), `"relaying"`) })
	wants("the log", c.log.String(), `"audit":"lines:`+file("audit.jsonl"), `"default":"lines:`+file("all.jsonl"))
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(c.log.String())[1]
	var report struct {
		Ready  bool
		Sinks  map[string]struct{ Ready bool }
		Tables map[string]struct{ Sink string }
	}
	c.until(func() bool {
		response, err := http.Get("http://" + address + "/readyz")
		noError(t, err)
		defer func() { _ = response.Body.Close() }()
		noError(t, json.NewDecoder(response.Body).Decode(&report))
		return report.Ready
	})
	if len(report.Sinks) != 2 || !report.Sinks["default"].Ready || !report.Sinks["audit"].Ready ||
		report.Tables["outbox_events"].Sink != "default" || report.Tables["event_outbox"].Sink != "audit" {
		t.Errorf("got %+v", report)
	}

	id := strings.TrimSpace(c.prints(`{"total": 12}`, "write", "--topic", "order.placed", "--key", "42"))
	c.until(func() bool {
		text, err := os.ReadFile(file("all.jsonl"))
		return err == nil && strings.Contains(string(text), `"id":"`+id+`"`) && bytes.HasSuffix(text, []byte("\n"))
	})
	if text, err := os.ReadFile(file("audit.jsonl")); err != nil || len(text) > 0 {
		t.Errorf("the other sink got %q, error %v", text, err)
	}
	stop()

	// What waiting does not cure ends the relay at once.
	wants("the error", c.run(1, "", "relay", "--sink", "lines:"+file("no/such/folder")), "open lines:",
		"no such file or directory")
	wants("the error", c.run(2, "", "relay", "--sink", "pulsar://h"), "there is no sink for URLs of pulsar",
		"kafka:, kafkas:, lines:, memory:")
}

// A sink of a table with routes that is away when the relay starts stops no other, is not ready,
// and gets its events when it comes.
func TestSinkAwayAtTheStart(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("outbox.yaml"), fmt.Appendf(nil, `
sink: {here: "lines:%s", away: "lines:%s"}
routes: [{to: [here, away]}]
`, file("here.jsonl"), file("later/away.jsonl")), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &command{t: t, drivers: []sink.Driver{linesDriver()},
		environ: []string{"OUTBOX_DATABASE_URL=sqlite:" + file("outbox.db"), "OUTBOX_CONFIG=" + file("outbox.yaml")}}
	c.run(0, "", "migrate", "up", "--set", "core")
	c.start("relay", "--listen", "127.0.0.1:0")
	c.until(func() bool { return strings.Contains(c.log.String(), `"relaying"`) })
	c.run(0, `{"total": 12}`, "write", "--topic", "order.placed")
	arrived := func(name string) bool {
		text, err := os.ReadFile(file(name))
		return err == nil && strings.Contains(string(text), `"type":"order.placed"`)
	}
	c.until(func() bool { return arrived("here.jsonl") })
	address := regexp.MustCompile(`"address":"([^"]+)"`).FindStringSubmatch(c.log.String())[1]
	ready := func() (status int, text string) {
		response, err := http.Get("http://" + address + "/readyz")
		noError(t, err)
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		noError(t, err)
		return response.StatusCode, string(body)
	}
	c.until(func() bool {
		status, text := ready()
		return status != http.StatusOK && strings.Contains(text, "sink away: not connected yet")
	})
	noError(t, os.Mkdir(file("later"), 0o700))
	c.until(func() bool { status, _ := ready(); return arrived("later/away.jsonl") && status == http.StatusOK })
}
