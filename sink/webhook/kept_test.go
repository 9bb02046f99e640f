package webhook

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
)

// A server may close a kept connection at the moment at which the next request arrives. That says
// nothing about the endpoint, so it costs the event no attempt.
func TestClosedKeptConnectionCostsNoAttempt(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	var answered, cut atomic.Int32
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // answers the first request of a connection and closes it at the second
				defer func() { _ = conn.Close() }()
				in := bufio.NewReader(conn)
				for n := range 2 {
					req, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, req.Body)
					if _, sent := req.Header["Idempotency-Key"]; sent {
						t.Error("the header Idempotency-Key was sent")
					}
					if n == 1 {
						cut.Add(1)
						return
					}
					answered.Add(1)
					_, _ = fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			}()
		}
	}()
	s := open(t, newBook(Endpoint{Name: "shop", URL: "http://" + listener.Addr().String(), Secrets: []Secret{key}}), local)
	for n := range 4 {
		if err := one(t, s, event(t, "shop", int64(n))); err != nil {
			t.Errorf("request %d: %v", n, err)
		}
	}
	if answered.Load() != 4 || cut.Load() == 0 {
		t.Errorf("%d requests answered, %d connections closed, want 4 and some", answered.Load(), cut.Load())
	}
}
