package gateway

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/server/token"
)

// A token that somebody puts where it does not belong is neither kept in the log nor sent back.
func TestNoTokenInLogOrAnswer(t *testing.T) {
	t.Parallel()
	_, text, _, err := token.New("shop", "", []token.Scope{token.Read})
	if err != nil {
		t.Fatal(err)
	}
	ticket, _ := token.NewTicket()
	for _, secret := range []string{text, ticket} {
		secretPart := secret[strings.LastIndex(secret, "_")+1:]
		g, log := without(t)
		for _, c := range []struct{ method, path, body string }{
			{"GET", "/v1/runs/" + secret, ""}, {"GET", "/v1/runs/%6Fb" + secret[2:], ""},
			{"GET", "/v1/runs/%256Fb" + secret[2:], ""}, {"GET", "/" + secret, ""},
			{"GET", "/v1/runs?" + secret, ""}, {"GET", "/v1/runs?" + secret + "=1", ""},
			{"GET", "/v1/runs?status=" + secret, ""}, {"GET", "/v1/runs?cursor=" + strings.ToUpper(secret), ""},
			{"GET", "/v1/runs?limit=" + secret, ""}, {"GET", "/v1/runs?x=" + secretPart, ""},
			{"GET", "/v1/runs;token=" + secret, ""}, {"GET", "/v1/runs?a=b;token=" + secret, ""},
			{"GET", "/v1/stream?" + secret, ""}, {"GET", "/v1/stream?topics=run:" + secret, ""},
			{"GET", "/v1/stream?topics=a&lastEventId=" + secret, ""},
			{"GET", "/v1/stream?topics=a&ticket=" + secret + "&x=1", ""}, {"GET", "/v1/stream?topics=a&Ticket=" + secret, ""},
			{secret, "/v1/runs", ""},
			{"POST", "/v1/runs", `{"` + secret + `":1}`}, {"POST", "/v1/runs", `{"appPackage":"a","crawler":"` + secret + `"}`},
			{"POST", "/v1/runs/" + secret + "/start", ""},
			{"POST", "/v1/runs/00000000-0000-0000-0000-000000000001/events", `{"events":[{"type":"` + secret + `"}]}`},
		} {
			r := httptest.NewRequest("GET", "http://localhost/", strings.NewReader(c.body))
			r.Method = c.method
			u, err := url.Parse("http://localhost" + c.path)
			if err != nil {
				t.Fatal(err)
			}
			r.URL = u
			if c.body != "" {
				r.Header.Set("Content-Type", "application/json")
			}
			r.Header.Set("X-Request-Id", secret)
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, r)
			answer := w.Body.String()
			for name, values := range w.Header() {
				answer += name + strings.Join(values, " ")
			}
			if w.Code < 400 || strings.Contains(strings.ToLower(answer), secretPart) {
				t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, answer)
			}
			if strings.Contains(strings.ToLower(log.String()), secretPart) {
				t.Errorf("%s %s: the log has it:\n%s", c.method, c.path, log)
				log.Reset()
			}
		}
	}
}

// Who is refused, and why, is in the log.
func TestLogOfRefusals(t *testing.T) {
	t.Parallel()
	g, log := without(t, func(c *Config) { c.Auth = &token.Authenticator{} })
	for sent, want := range map[string]string{"": `refused="sent no token"`, "Bearer obx_x": "refused=malformed",
		"Basic obx_x": `refused="sent no token"`} {
		log.Reset()
		r := httptest.NewRequest("GET", "/v1/runs", nil)
		r.RemoteAddr = "192.0.2.7:4711"
		r.Header.Set("Authorization", sent)
		g.Handler().ServeHTTP(httptest.NewRecorder(), r)
		if got := log.String(); !strings.Contains(got, want) || !strings.Contains(got, "remote=192.0.2.7:4711") {
			t.Errorf("%q: %s", sent, got)
		}
	}
}
