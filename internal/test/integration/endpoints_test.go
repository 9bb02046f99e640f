package integration

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// hook is an endpoint that answers as it is told, and notes what came.
type hook struct {
	*httptest.Server
	mu     sync.Mutex
	status int
	got    []hooked
}

type hooked struct {
	header http.Header
	body   []byte
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{status: http.StatusNoContent}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.got = append(h.got, hooked{r.Header.Clone(), body})
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) answers(status int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = status
}

func (h *hook) requests() []hooked {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.got
}

// verified fails unless the last request is signed with each of the secrets.
func (h *hook) verified(t *testing.T, secrets ...string) {
	t.Helper()
	all := h.requests()
	last := all[len(all)-1]
	if n := len(strings.Fields(last.header.Get("webhook-signature"))); n != len(secrets) {
		t.Errorf("%d signatures, want %d", n, len(secrets))
	}
	for _, secret := range secrets {
		w, err := standardwebhooks.NewWebhook(secret)
		noError(t, err)
		if err := w.Verify(last.body, last.header); err != nil {
			t.Errorf("the signature: %v", err)
		}
	}
}

// Endpoints are kept in the database's table. A running relay learns of each change, secrets are
// shown once and kept encrypted, and an answer 410 disables the row until somebody enables it.
func TestEndpointsInTheTable(t *testing.T) {
	tier.Full(t)
	url := migrated(t)
	h, other := newHook(t), newHook(t)
	keys := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32)))
	t.Setenv("OUTBOX_ENDPOINT_KEY", keys)
	t.Setenv("TEST_HEADER", "Bearer token")
	c := &command{t: t, environ: []string{"OUTBOX_DATABASE_URL=" + url, "OUTBOX_TABLE=outbox_events",
		"OUTBOX_SINK=webhook:table?allow=private,http&schedule=50ms"}}
	var shown strings.Builder
	run := func(want int, args ...string) string {
		t.Helper()
		text := c.run(want, "", args...)
		shown.WriteString(text)
		return text
	}
	secret := func(text string) string {
		t.Helper()
		found := regexp.MustCompile(`whsec_\S+`).FindString(text)
		if found == "" {
			t.Fatalf("no secret is shown:\n%s", text)
		}
		return found
	}
	first := secret(run(0, "endpoints", "add", "acme", "--url", h.URL+"/hook?token=hunter2", "--tenant", "t1",
		"--header", "Authorization=env:TEST_HEADER", "--timeout", "20s"))
	run(1, "endpoints", "add", "acme", "--url", h.URL)
	run(2, "endpoints", "add", "b", "--url", h.URL, "--secret", "whsec_hunter2")
	run(1, "endpoints", "add", "c", "--url", "ftp://host")

	c.start("relay")
	pool, err := pgxpool.New(t.Context(), url)
	noError(t, err)
	defer pool.Close()
	write := func(topic, tenant, to string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), `INSERT INTO outbox_events (event_topic, tenant_id, occurred_at, source_bc, payload,
			destination_topics) VALUES ($1, $2, now(), 's', '{"n": 1}', jsonb_build_array($3::text))`, topic, tenant, to); err != nil {
			t.Fatal(err)
		}
	}
	status := func(topic, want string) {
		t.Helper()
		c.until(func() bool {
			var got string
			err := pool.QueryRow(t.Context(), "SELECT status FROM outbox_events WHERE event_topic = $1", topic).Scan(&got)
			return err == nil && got == want
		})
	}
	write("one", "t1", "acme")
	status("one", "SENT")
	h.verified(t, first)
	if got := h.requests()[0].header.Get("Authorization"); got != "Bearer token" {
		t.Errorf("the header is %q", got)
	}
	write("foreign", "t2", "acme")
	status("foreign", "DEAD")

	// A row that is new to the running relay, and a secret that is replaced under it.
	run(0, "endpoints", "add", "late", "--url", other.URL)
	write("two", "t9", "late")
	status("two", "SENT")
	second := secret(run(0, "endpoints", "rotate", "acme"))
	c.until(func() bool {
		run(0, "endpoints", "test", "acme")
		all := h.requests()
		write(fmt.Sprint("rotated", len(all)), "t1", "acme")
		status(fmt.Sprint("rotated", len(all)), "SENT")
		all = h.requests()
		return len(strings.Fields(all[len(all)-1].header.Get("webhook-signature"))) == 2
	})
	h.verified(t, second, first)

	// 410 disables the row; enable works without a restart.
	h.answers(http.StatusGone)
	write("gone", "t1", "acme")
	status("gone", "DEAD")
	c.until(func() bool { return strings.Contains(run(0, "endpoints", "list"), "disabled  answered 410 Gone") })
	asked := len(h.requests())
	h.answers(http.StatusNoContent)
	if text := run(1, "endpoints", "test", "acme"); !strings.Contains(text, "outbox endpoints enable") {
		t.Errorf("a disabled endpoint says %q", text)
	}
	if n := len(h.requests()); n != asked {
		t.Errorf("a disabled endpoint got %d requests", n-asked)
	}
	run(0, "endpoints", "enable", "acme")
	for sent := false; !sent; { // a relay that has not noticed yet makes another dead letter of it
		run(0, "dlq", "replay", "--type", "gone", "--yes")
		c.until(func() bool {
			var status string
			err := pool.QueryRow(t.Context(), "SELECT status FROM outbox_events WHERE event_topic = 'gone'").Scan(&status)
			sent = status == "SENT"
			return err == nil && (sent || status == "DEAD")
		})
	}
	run(0, "endpoints", "disable", "late", "--reason", "the contract has ended")
	if text := run(0, "endpoints", "list", "-o", "json"); !strings.Contains(text, `"reason": "the contract has ended"`) ||
		!strings.Contains(text, `"tenant": "t1"`) {
		t.Errorf("the list is %s", text)
	}
	run(0, "endpoints", "remove", "late")
	run(1, "endpoints", "rotate", "late")

	third := secret(run(0, "endpoints", "rotate", "acme", "--overlap", "0s"))
	run(0, "endpoints", "test", "acme")
	h.verified(t, third)
	var stored string
	if err := pool.QueryRow(t.Context(),
		"SELECT string_agg(secrets::text || headers::text, '') FROM outbox_endpoints").Scan(&stored); err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{first, second, third} {
		if strings.Count(shown.String(), made) != 1 {
			t.Errorf("a secret was shown %d times, want once", strings.Count(shown.String(), made))
		}
		if part := made[len("whsec_"):]; strings.Contains(stored, part) || strings.Contains(c.log.String(), part) {
			t.Error("a secret is in the table, or in the log")
		}
	}
	for _, text := range []string{"hunter2", "Bearer"} {
		if strings.Contains(shown.String(), text) || strings.Contains(c.log.String(), text) {
			t.Errorf("%s was shown", text)
		}
	}
}
