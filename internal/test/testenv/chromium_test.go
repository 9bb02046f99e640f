package testenv

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A page is loaded and its script runs; Stop leaves neither a process nor the directory.
func TestChromium(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	said := make(chan string, 1)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte(`<script>fetch("/said?" + (1 + 1), {method: "POST"})</script>`))
	})
	mux.HandleFunc("POST /said", func(_ http.ResponseWriter, r *http.Request) { said <- r.URL.RawQuery })
	page := httptest.NewServer(mux)
	t.Cleanup(page.Close)

	browser, err := StartChromium(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := browser.Stop(); err != nil {
			t.Error(err)
		}
	}()
	if !strings.Contains(browser.Version(), "Chrome/") {
		t.Errorf("version %q", browser.Version())
	}
	if err := browser.Open(t.Context(), page.URL); err != nil {
		t.Fatal(err)
	}
	select {
	case sum := <-said:
		if sum != "2" {
			t.Errorf("the script said %q", sum)
		}
	case <-time.After(tier.Patience()):
		t.Fatal("the page's script did not run")
	}
	pid := browser.PID()
	if err := browser.Stop(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(tier.Patience())
	for !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) { // those that were killed take a moment to go
		if time.Now().After(deadline) {
			t.Fatal("some of the browser's processes are still there")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := os.Stat(browser.server.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
}
