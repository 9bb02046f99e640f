package testenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// browserPrograms are the names under which Debian, Fedora, Arch and Google's own packages install
// it.
var browserPrograms = []string{"chromium", "google-chrome", "google-chrome-stable", "chromium-browser"}

// Chromium is a running private headless browser.
type Chromium struct {
	server  *server
	address string // of its control port, http://127.0.0.1:port
	version string
}

// StartChromium starts a browser without a page and returns when it answers. ctx bounds the start,
// not its life.
func StartChromium(ctx context.Context) (*Chromium, error) {
	program, err := findBrowser()
	if err != nil {
		return nil, fmt.Errorf("start chromium: %w", err)
	}
	s, err := newServer("chromium", "", syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	c := &Chromium{server: s}
	err = s.start(ctx, c.ready,
		"/usr/bin/env", "HOME="+s.dir, program, // it writes there, profile or not
		"--headless", "--user-data-dir="+s.dir, "--remote-debugging-port=0", // it chooses one
		// Its sandbox wants namespaces that containers do not give. It opens pages of ours alone.
		"--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
		"--no-proxy-server", "--disable-quic", "--no-first-run", "--disable-breakpad",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
		// A page that nobody looks at would be slowed down, to one timer a second.
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding",
		"--disable-backgrounding-occluded-windows",
	)
	if err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func findBrowser() (string, error) {
	var problems []error
	for _, name := range browserPrograms {
		path, err := findProgram(name)
		if err == nil {
			return path, nil
		}
		problems = append(problems, err)
	}
	return "", problems[0]
}

// ready asks for the version, on the port that the browser has left in its directory.
func (c *Chromium) ready(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(c.server.dir, "DevToolsActivePort"))
	if err != nil {
		return err
	}
	port, _, _ := strings.Cut(string(text), "\n")
	c.address = "http://127.0.0.1:" + port
	body, err := c.ask(ctx, http.MethodGet, "/json/version")
	if err != nil {
		return err
	}
	var answer struct{ Browser string }
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("read the browser's version: %w", err)
	}
	c.version = answer.Browser
	return nil
}

// ask uses the part of the control port that is plain HTTP. Steering pages would need its WebSocket
// protocol, and a library for that.
func (c *Chromium) ask(ctx context.Context, method, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.address+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return body, err
}

// Version is the browser's name for itself, such as HeadlessChrome/156.0.8078.79.
func (c *Chromium) Version() string { return c.version }

// URL is the address of its control port, for programs that steer pages by the Chrome DevTools
// Protocol.
func (c *Chromium) URL() string { return c.address }

// Open loads a page in a new tab. It does not wait until the page is there.
func (c *Chromium) Open(ctx context.Context, page string) error {
	if _, err := c.ask(ctx, http.MethodPut, "/json/new?"+url.QueryEscape(page)); err != nil {
		return fmt.Errorf("open %s in chromium: %w", page, err)
	}
	return nil
}

// PID is the id of its first process, and of the process group that all of them are in.
func (c *Chromium) PID() int { return c.server.pid() }

// Stop ends the browser with all its processes and removes its directory. A second call does
// nothing.
func (c *Chromium) Stop() error {
	c.server.mu.Lock()
	if p := c.server.process; p != nil && !c.server.stopped {
		// The group, while its leader is not waited for or has children left: so that the id is
		// nobody else's.
		_ = syscall.Kill(-p.Pid, syscall.SIGKILL) // fails if it has gone
	}
	c.server.mu.Unlock()
	return c.server.close()
}

// ChromiumBrowser starts a browser for this test alone and stops it when t ends.
func ChromiumBrowser(t testing.TB) *Chromium {
	t.Helper()
	browser, err := StartChromium(t.Context())
	return stopAfter(t, browser, err)
}
