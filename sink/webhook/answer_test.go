package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
)

// Which answer is what, by Standard Webhooks 1.0.0, "Delivery success and failure".
func TestStatuses(t *testing.T) {
	t.Parallel()
	for code := 200; code < 600; code++ {
		class, verdict := outbox.ClassRetryAfter, works
		switch {
		case code < 300:
			class = -1
		case code == 410:
			class, verdict = outbox.ClassPermanent, leaves
		case code == 413:
			class = outbox.ClassPermanent
		case code == 429:
			verdict = full
		case code == 408 || code == 502 || code == 503 || code == 504:
			verdict = fails
		}
		a := judge("acme", &http.Response{StatusCode: code, Header: http.Header{}}, time.Now())
		if a.verdict != verdict || (a.err == nil) != (class == -1) || a.permanent != (code == 413) {
			t.Errorf("%d is %+v", code, a)
		}
	}
	later := http.Header{"Retry-After": {"7"}}
	if a := judge("acme", &http.Response{StatusCode: 503, Header: later}, time.Now()); a.verdict != full {
		t.Errorf("503 with Retry-After is %+v", a)
	}
	if a := judge("acme", &http.Response{StatusCode: 413, Header: later}, time.Now()); a.permanent {
		t.Errorf("413 with Retry-After is %+v", a)
	}
}

// The answers as they come from a server: class, wait and text.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		code    int
		headers []string
		tries   int // before
		class   outbox.Class
		from    time.Duration // the wait at least
		to      time.Duration
		text    string
	}{
		{500, nil, 0, outbox.ClassRetryAfter, 4 * time.Second, 6 * time.Second, "answered 500 Internal Server Error"},
		{500, nil, 1, outbox.ClassRetryAfter, 4 * time.Minute, 6 * time.Minute, "500"},
		{500, nil, 3, outbox.ClassRetryAfter, 100 * time.Minute, 140 * time.Minute, "500"},
		{500, nil, 1000, outbox.ClassRetryAfter, 21 * time.Hour, 27 * time.Hour, "500"},
		{404, nil, 0, outbox.ClassRetryAfter, 4 * time.Second, 6 * time.Second, "404"},
		{429, nil, 3, outbox.ClassPostponed, 0, 2 * time.Second, "429 Too Many Requests"},
		{429, []string{"Retry-After", "120"}, 0, outbox.ClassPostponed, 2 * time.Minute, 2 * time.Minute, "429"},
		{503, []string{"Retry-After", "1"}, 1, outbox.ClassRetryAfter, 4 * time.Minute, 6 * time.Minute, "503"},
		{503, []string{"Retry-After", "999999999999999999999"}, 0, outbox.ClassRetryAfter, time.Hour, time.Hour, "503"},
		{413, nil, 0, outbox.ClassPermanent, 0, 0, "413 Request Entity Too Large"},
		{302, []string{"Location", "http://169.254.169.254/hunter2"}, 0, outbox.ClassRetryAfter, 4 * time.Second,
			6 * time.Second, "redirects are not followed"},
		{799, nil, 0, outbox.ClassRetryAfter, 4 * time.Second, 6 * time.Second, "answered 799"},
	} {
		t.Run(fmt.Sprint(tt.code, tt.headers, tt.tries), func(t *testing.T) {
			t.Parallel()
			r := receive(t, func(w http.ResponseWriter, got received, n int) {
				status(tt.code, tt.headers...)(w, got, n)
				_, _ = w.Write([]byte("hunter2"))
			})
			s := open(t, newBook(r.endpoint("acme")), local)
			d := event(t, "acme", 1)
			d.Attempts = tt.tries
			err := one(t, s, d)
			after := wantClass(t, err, tt.class, tt.text, `"acme"`)
			if after < tt.from || after > tt.to {
				t.Errorf("it waits for %s, want %s to %s", after, tt.from, tt.to)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error has what was answered: %v", err)
			}
			if r.count() != 1 {
				t.Errorf("%d requests, want 1", r.count())
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, " 30 ": 30 * time.Second, "-1": 0, "1.5": 0, "soon": 0, "3600": time.Hour, "3601": time.Hour,
		"99999999999999999999": time.Hour, "Sun, 01 Mar 2026 12:00:40 GMT": 40 * time.Second,
		"Sunday, 01-Mar-26 12:00:40 GMT": 40 * time.Second, "Sun Mar  1 12:00:40 2026": 40 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT": 0, "Mon, 01 Mar 2027 12:00:00 GMT": time.Hour,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("Retry-After: %s is %s, want %s", value, got, want)
		}
	}
}

// 410 disables the endpoint and no other, and it can be enabled again.
func TestGone(t *testing.T) {
	t.Parallel()
	r := receive(t, func(w http.ResponseWriter, _ received, n int) {
		w.WriteHeader(map[bool]int{true: http.StatusGone, false: http.StatusOK}[n == 0 || n == 2])
	})
	fine := receive(t, nil)
	book := newBook(r.endpoint("acme"), fine.endpoint("fine"))
	s := open(t, book, local)
	publish := func() error {
		got := s.Publish(t.Context(), []outbox.Delivery{event(t, "acme", 1), event(t, "fine", 2)})
		wantDelivered(t, got[1:])
		return got[0].Err
	}
	wantClass(t, publish(), outbox.ClassPermanent, "410 Gone", "disabled", "Enable", "restart")
	wantClass(t, publish(), outbox.ClassPermanent, "410 Gone")
	if r.count() != 1 {
		t.Fatalf("%d requests, want 1: it wants no more", r.count())
	}
	if at, ok := s.Disabled()["acme"]; !ok || at.IsZero() || len(s.Disabled()) != 1 {
		t.Errorf("disabled are %v", s.Disabled())
	}
	s.Enable("acme")
	if err := publish(); err != nil || len(s.Disabled()) != 0 {
		t.Fatalf("enabled again: %v, disabled are %v", err, s.Disabled())
	}
	wantClass(t, publish(), outbox.ClassPermanent, "410 Gone") // request 2
	changed := r.endpoint("acme")
	changed.URL += "/new"
	book.put(changed)
	if err := publish(); err != nil {
		t.Fatalf("with a new URL: %v", err)
	}
}

// A destination that cannot be used fails for good and says what to do; others go out.
func TestUnusableEndpoints(t *testing.T) {
	t.Parallel()
	fine := receive(t, nil)
	disabled, unsigned, insecure := fine.endpoint("disabled"), fine.endpoint("unsigned"), fine.endpoint("insecure")
	disabled.Disabled = true
	unsigned.Secrets = nil
	insecure.URL = "http://user:hunter2@example.org:99/hunter2"
	cfg := Config{AllowPrivate: true, AllowHTTP: true, Ports: []uint16{80}}
	s := open(t, newBook(fine.endpoint("fine"), disabled, unsigned, insecure), cfg)
	for name, texts := range map[string][]string{
		"unknown": {`no webhook endpoint "unknown"`, "add an entry"}, "disabled": {"take disabled out"},
		"unsigned": {"no secret", "openssl"}, "insecure": {"has a user", "port 99"},
		"fine": {"port", "is not allowed"},
	} {
		err := one(t, s, event(t, name, 1))
		wantClass(t, err, outbox.ClassPermanent, texts...)
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows a part of the URL: %v", err)
		}
	}
	if fine.count() != 0 {
		t.Errorf("%d requests, want none", fine.count())
	}
}

// Endpoints that cannot be looked up are nobody's failure.
func TestLookupFails(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	book := newBook(r.endpoint("acme"))
	s := open(t, book, local)
	book.fail(errTest)
	wantClass(t, one(t, s, event(t, "acme", 1)), outbox.ClassUnavailable, errTest.Error())
	wantClass(t, s.Abilities().Ping(t.Context()), outbox.ClassUnavailable, errTest.Error())
	book.fail(nil)
	if err := errors.Join(s.Abilities().Ping(t.Context()), one(t, s, event(t, "acme", 1))); err != nil {
		t.Fatal(err)
	}
}

// The list in code is checked at once, with all its problems.
func TestListIsChecked(t *testing.T) {
	t.Parallel()
	bad := Endpoint{Name: "bad", URL: "ftp://example.org/#x", Secrets: []Secret{"hunter2"}, Timeout: -1, Concurrency: 1001,
		Rate: 0.5, Headers: map[string]Secret{"Idempotency-Key": "1", "webhook-id": "1", "a b": "1", "X-A": "1\r\nX-B: 2"}}
	good := Endpoint{Name: "good", URL: "https://example.org", Secrets: []Secret{key}}
	_, err := New(List{bad, {}, good, good}, Config{Schedule: []time.Duration{}, Ports: []uint16{0}})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, text := range []string{"neither https nor http", "fragment", "begins neither", "timeout is", "concurrency is",
		"rate is", `"Idempotency-Key" is one that`, `"webhook-id" is one`, `"a b" has a name`, `"X-A" has a line break`,
		"endpoint 2 has no name", `endpoint "good" is there twice`, "Schedule is empty", "Ports has 0"} {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not told of: %v", text, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret is shown: %v", err)
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("no endpoints are taken")
	}
	if _, err := New(List{good}, Config{}); err != nil {
		t.Error(err)
	}
}

// An ended context sends nothing.
func TestEndedContext(t *testing.T) {
	t.Parallel()
	r := receive(t, nil)
	s := open(t, newBook(r.endpoint("acme")), local)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	wantClass(t, s.Publish(ctx, []outbox.Delivery{event(t, "acme", 1)})[0].Err, outbox.ClassUnavailable)
	if r.count() != 0 {
		t.Errorf("%d requests, want none", r.count())
	}
}
