package app

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/metrics"
)

// far is a connection to an address of the test's choice.
type far struct {
	net.Conn
	to net.Addr
}

func (f far) RemoteAddr() net.Addr { return f.to }

func TestPlaintext(t *testing.T) {
	here, there := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7)}
	for _, c := range []struct {
		conn net.Conn
		want string
	}{
		{far{to: there}, "10.0.0.7"}, {far{to: here}, ""}, {far{to: &net.TCPAddr{IP: net.IPv6loopback}}, ""},
		{far{to: &net.UnixAddr{Name: "/run/s", Net: "unix"}}, ""},
		{tls.Client(far{to: there}, nil), ""},
	} {
		if got := plaintext(c.conn); got != c.want {
			t.Errorf("to %v, %T: got %q, want %q", c.conn.RemoteAddr(), c.conn, got, c.want)
		}
	}
}

// Errors of the network name addresses behind it. Whoever asks from elsewhere is told whether the
// process is ready, and not those.
func TestReadinessForStrangers(t *testing.T) {
	h := newHealth(partGateway, partRelay)
	const secret = "dial tcp 10.1.2.3:6379: connect: connection refused"
	h.part(partRelay).wait(secret)
	h.part(partGateway).wait("")
	h.part(partGateway).notes(func() string { return secret })
	server, err := listen(t.Context(), "127.0.0.1:0", metrics.New(), h, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.listener.Close() }()
	for _, path := range []string{"/readyz", "/readyz/relay", "/readyz/gateway"} {
		for _, c := range []struct {
			from, header string
			told         bool
		}{
			{"127.0.0.1:5", "", true}, {"[::1]:5", "", true}, {"10.9.9.9:5", "", false},
			{"127.0.0.1:5", "X-Forwarded-For", false}, {"127.0.0.1:5", "Forwarded", false},
		} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.RemoteAddr, r.Host = c.from, "localhost:9464"
			if c.header != "" {
				r.Header.Set(c.header, "10.9.9.9")
			}
			w := httptest.NewRecorder()
			server.http.Handler.ServeHTTP(w, r)
			said := w.Body.String()
			if strings.Contains(said, "10.1.2.3") != c.told || strings.Contains(said, untold) == c.told ||
				!json.Valid(w.Body.Bytes()) {
				t.Errorf("%s from %s %s: %s", path, c.from, c.header, w.Body)
			}
			if want := map[bool]int{true: 200, false: 503}[path == "/readyz/gateway"]; w.Code != want {
				t.Errorf("%s: %d, want %d", path, w.Code, want)
			}
		}
	}
}

// On a loopback address a name is one that a page may have given to it.
func TestListenWarnsWhereOthersReachIt(t *testing.T) {
	for address, want := range map[string]bool{"127.0.0.1:0": false, "0.0.0.0:0": true} {
		var said strings.Builder
		log := slog.New(slog.NewTextHandler(&said, nil))
		server, err := listen(t.Context(), address, metrics.New(), newHealth(), log)
		if err != nil {
			t.Fatal(err)
		}
		_ = server.listener.Close()
		if strings.Contains(said.String(), "level=WARN") != want {
			t.Errorf("%s: said %s", address, &said)
		}
		for host, answered := range map[string]bool{
			"localhost:9464": true, "[::1]": true, "10.1.2.3": true, "evil.example": want,
		} {
			for _, path := range []string{"/metrics", "/healthz"} {
				r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
				r.Host = host
				server.http.Handler.ServeHTTP(w, r)
				if (w.Code == http.StatusOK) != answered {
					t.Errorf("%s: %s as %s: %d", address, path, host, w.Code)
				}
			}
		}
	}
}

// A file that was there before keeps its rights, and whoever runs a part on it is told.
func TestWarnsOfAFileThatOthersMayRead(t *testing.T) {
	for mode, want := range map[os.FileMode]bool{0o600: false, 0o640: true, 0o604: true, 0o666: true} {
		path := filepath.Join(t.TempDir(), "outbox.db")
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		p := newProcess(config.Config{Database: "sqlite:" + path}, slog.New(slog.NewTextHandler(&said, nil)))
		p.warnPlaintext(t.Context(), &sqliteDatabase{})
		if strings.Contains(said.String(), "chmod 600") != want {
			t.Errorf("%v: said %q", mode, &said)
		}
	}
}
