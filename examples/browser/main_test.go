package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A page of evil.example can give its name our address, and a page of any site can send a POST to
// it. Neither gets a ticket.
func TestGuarded(t *testing.T) {
	h := guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "127.0.0.1:8090")
	for _, c := range []struct {
		method, host, origin, site string
		want                       int
	}{
		{"POST", "127.0.0.1:8090", "http://127.0.0.1:8090", "same-origin", 200},
		{"POST", "localhost:8090", "http://localhost:8090", "", 200}, {"GET", "[::1]:8090", "", "", 200},
		{"POST", "evil.example", "http://evil.example", "same-origin", 421}, {"GET", "evil.example:8090", "", "", 421},
		{"GET", "localhost.evil.example", "", "", 421}, {"GET", "", "", "", 421},
		{"POST", "127.0.0.1:8090", "http://evil.example", "", 403}, {"POST", "127.0.0.1:8090", "null", "cross-site", 403},
		{"POST", "127.0.0.1:8090", "", "same-site", 403},
	} {
		r := httptest.NewRequest(c.method, "/v1/stream-tickets", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != c.want || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%+v: got %d", c, w.Code)
		}
	}
}
