package webhook

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// broken is a receiver that reads a request and then does what a test says with its connection.
func broken(t *testing.T, then func(conn net.Conn, n int)) *receiver {
	return receive(t, func(w http.ResponseWriter, _ received, n int) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		then(conn, n)
		_ = conn.Close()
	})
}

// ids are those of the requests.
func (r *receiver) ids() (all []string) {
	for _, got := range r.requests() {
		all = append(all, got.header.Get("webhook-id"))
	}
	return all
}

const accepted = "HTTP/1.1 204 No Content\r\n\r\n"

// F67, F71: what an endpoint does to its connection. Each is the endpoint's own failure, or a
// delivery once its status was there; none makes a second request by itself, and nothing that the
// server sent is in the error.
func TestBrokenAnswers(t *testing.T) {
	t.Parallel()
	const noHTTP = "cannot be understood as HTTP"
	say := func(text string) []func(net.Conn) {
		return []func(net.Conn){func(c net.Conn) { _, _ = io.WriteString(c, text) }}
	}
	reset := func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }
	for name, tt := range map[string]struct {
		then []func(net.Conn)
		text string // of the error, "" for delivered
	}{
		"closed before an answer": {nil, "the connection was closed before an answer"},
		"reset before an answer":  {[]func(net.Conn){reset}, "reset by peer"},
		"half a status":           {say("HTTP/1.1 20"), noHTTP},
		"half the headers":        {say("HTTP/1.1 200 OK\r\nX: hunter2"), "closed before an answer"},
		"no HTTP":                 {say("SSH-2.0-hunter2\r\n\r\n"), noHTTP},
		"no header":               {say("HTTP/1.1 200 OK\r\nhunter2\r\n\r\n"), noHTTP},
		"headers without end":     {say("HTTP/1.1 200 OK\r\n" + strings.Repeat("X: hunter2\r\n", 10000) + "\r\n"), noHTTP},
		"switching protocols": {say("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"),
			"answered 101"},
		"2xx, then closed":          {say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab"), ""},
		"2xx, then reset":           {append(say("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"), reset), ""},
		"2xx, then broken chunks":   {say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), ""},
		"2xx, then a second answer": {say(accepted + "HTTP/1.1 500 No\r\n\r\n"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := broken(t, func(c net.Conn, _ int) {
				for _, then := range tt.then {
					then(c)
				}
			})
			s := open(t, newBook(r.endpoint("acme")), local)
			d := event(t, "acme", 1)
			err := one(t, s, d)
			if tt.text == "" {
				if err != nil {
					t.Errorf("answered %v, want delivered", err)
				}
			} else {
				wantClass(t, err, outbox.ClassRetryAfter, tt.text)
				if strings.Contains(err.Error(), "hunter2") || strings.ContainsAny(err.Error(), "\r\n") {
					t.Errorf("the error has what was sent: %v", err)
				}
			}
			if got := r.ids(); len(got) != 1 || got[0] != d.ID.String() {
				t.Errorf("the requests are %v, want one of the event", got)
			}
		})
	}
}

// If a kept connection breaks after the receiver has read a request, net/http sends the request once
// more on a new connection, with the same id.
func TestLostAnswerOfAKeptConnectionIsRepeated(t *testing.T) {
	t.Parallel()
	r := receive(t, func(w http.ResponseWriter, _ received, n int) {
		if n == 1 {
			panic(http.ErrAbortHandler) // it may have done its work
		}
	})
	s := open(t, newBook(r.endpoint("acme")), local)
	events := []outbox.Delivery{event(t, "acme", 1), event(t, "acme", 1), event(t, "acme", 1)}
	wantDelivered(t, s.Publish(t.Context(), events))
	want := []string{events[0].ID.String(), events[1].ID.String(), events[1].ID.String(), events[2].ID.String()}
	if ids := r.ids(); !slices.Equal(ids, want) {
		t.Errorf("the ids are %v, want %v", ids, want)
	}
}

// A server that closes each connection after its answer, without saying so: whatever the next
// request meets, no request is made twice.
func TestConnectionsThatClose(t *testing.T) {
	t.Parallel()
	r := broken(t, func(c net.Conn, _ int) { _, _ = io.WriteString(c, accepted) })
	s := open(t, newBook(r.endpoint("acme")), local)
	delivered := 0
	for range 50 {
		if err := one(t, s, event(t, "acme", 1)); err == nil {
			delivered++
		} else {
			wantClass(t, err, outbox.ClassRetryAfter, "acme")
			s.Enable("acme") // three in a row would make it rest
		}
	}
	ids := r.ids()
	slices.Sort(ids)
	if got := len(slices.Compact(slices.Clone(ids))); got != len(ids) || delivered == 0 || delivered > got {
		t.Errorf("%d delivered, %d requests of %d events", delivered, len(ids), got)
	}
}

// A body that never ends, or comes a byte at a time, is read for a moment and 64 KiB, and changes
// nothing.
func TestBodies(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]func(w http.ResponseWriter, got received){
		"huge": func(w http.ResponseWriter, got received) {
			for block := make([]byte, 1<<20); got.ctx.Err() == nil; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		},
		"slow": func(w http.ResponseWriter, got received) {
			w.(http.Flusher).Flush()
			<-got.ctx.Done()
		},
		"zipped": func(w http.ResponseWriter, _ received) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, "no gzip")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ended atomic.Int64
			r := receive(t, func(w http.ResponseWriter, got received, n int) {
				defer ended.Add(1)
				if n == 1 {
					w.WriteHeader(http.StatusInternalServerError)
				}
				body(w, got)
			})
			s := open(t, newBook(r.endpoint("acme")), local)
			wantDelivered(t, s.Publish(t.Context(), []outbox.Delivery{event(t, "acme", 1)}))
			wantClass(t, one(t, s, event(t, "acme", 1)), outbox.ClassRetryAfter, "500")
			eventually(t, "both answers were given up", func() bool { return ended.Load() == 2 })
		})
	}
}

// Nobody listens there, or the name does not exist: the endpoint's own failure, which its error
// names.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	gone := receive(t, nil)
	gone.Close()
	plain := receive(t, nil)
	noTLS := plain.endpoint("no TLS")
	noTLS.URL = strings.Replace(noTLS.URL, "http:", "https:", 1)
	resolver := dnsServer(t, func(string, int) []string { return nil })
	cfg := local
	cfg.Resolver = resolver.client()
	fine := receive(t, nil)
	s := open(t, newBook(gone.endpoint("gone"), noTLS, fine.endpoint("fine"),
		Endpoint{Name: "no name", URL: "http://nowhere.example", Secrets: []Secret{key}}), cfg)
	for name, text := range map[string]string{
		"gone": "connection refused", "no name": "no such host", "no TLS": "does not speak TLS",
	} {
		got := s.Publish(t.Context(), []outbox.Delivery{event(t, name, 1), event(t, "fine", 2)})
		if after := wantClass(t, got[0].Err, outbox.ClassRetryAfter, text, name); after < 4*time.Second {
			t.Errorf("%s waits for %s", name, after)
		}
		wantDelivered(t, got[1:])
	}
}

// TLS, by HTTP/1.1 and HTTP/2: a certificate that nobody vouches for is refused before anything is
// sent; one of a configured authority is not.
func TestTLS(t *testing.T) {
	t.Parallel()
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", h2), func(t *testing.T) {
			t.Parallel()
			r := &receiver{}
			var protocol atomic.Value
			r.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				protocol.Store(req.Proto)
				r.ServeHTTP(w, req)
			}))
			r.EnableHTTP2 = h2
			r.Config.ErrorLog = nil
			r.StartTLS()
			t.Cleanup(r.Close)
			book := newBook(r.endpoint("acme"))
			s := open(t, book, Config{AllowPrivate: true})
			wantClass(t, one(t, s, event(t, "acme", 1)), outbox.ClassRetryAfter, "certificate")
			if r.count() != 0 {
				t.Fatal("a server without a good certificate got a request")
			}
			trusting := open(t, book, Config{AllowPrivate: true, TLS: r.Client().Transport.(*http.Transport).TLSClientConfig})
			var batch []outbox.Delivery
			for i := range 40 {
				batch = append(batch, event(t, "acme", int64(i%20)))
			}
			wantDelivered(t, trusting.Publish(t.Context(), batch))
			if want := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[h2]; protocol.Load() != want {
				t.Errorf("the protocol is %v, want %s", protocol.Load(), want)
			}
			for _, got := range r.requests() {
				verified(t, key, got)
			}
		})
	}
	old := httptest.NewUnstartedServer(http.NotFoundHandler())
	old.TLS = &tls.Config{MaxVersion: tls.VersionTLS11} //nolint:gosec // a server as old as that is what is tested
	old.StartTLS()
	t.Cleanup(old.Close)
	e := Endpoint{Name: "old", URL: old.URL, Secrets: []Secret{key}, Timeout: longestTimeout}
	s := open(t, newBook(e), Config{AllowPrivate: true})
	wantClass(t, one(t, s, event(t, "old", 1)), outbox.ClassRetryAfter, "tls")
}
