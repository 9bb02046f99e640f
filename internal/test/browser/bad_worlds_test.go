package browser_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The database goes while somebody looks: the page says so, keeps what it knew, and goes on when it
// is back.
func TestDatabaseAway(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w, server := newWorldAlone(t)
	w.serve("--parts", "gateway", "--auth", "none", "--admin", "write", "--table", "outbox_events")
	w.write(event{"order.placed", "1", "", map[string]any{}})
	p := w.open(desktop, "/")
	p.see("1 event waits")
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	p.see("The figures below are of", "outbox_events")
	p.accessible("database away")
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	p.gone("The figures below are of")
	p.see("1 event waits")
	w.write(event{"order.placed", "2", "", map[string]any{}})
	p.see("2 events wait")
}

// A redirect gets no token: the page sends the token to the server that it came from only.
func TestPageFollowsNoRedirect(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	w.serve("--parts", "gateway", "--auth", "none", "--admin", "read")
	server, err := url.Parse(w.server)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(server) }}
	var followed atomic.Bool
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/elsewhere":
			followed.Store(true)
		case strings.HasPrefix(r.URL.Path, "/v1/"):
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	w.server = front.URL
	w.open(desktop, "/").see("or a proxy redirects the page")
	if followed.Load() {
		t.Error("the page has followed the redirect")
	}
}

// A server that is read-only offers nothing, and refuses what is sent to it all the same. So it is
// with a token that may only read.
func TestReadOnly(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	w.serve("--parts", "gateway,relay", "--auth", "none", "--admin", "read")
	w.write(event{"refund.made", "1", "", map[string]any{}}, event{"invoice.sent", "INV-7", "", map[string]any{}})
	w.becomes(1, "job_dlq")
	w.becomes(1, "outbox_events WHERE event_topic = 'invoice.sent' AND retry_count = 1")
	p := w.open(desktop, "/")
	p.see("Read-only: this server lets nobody change anything", "INV-7")
	for path, buttons := range map[string][]string{"/": {"Retry now"}, "/letters": {"Replay …", "Discard …"},
		"/events": {"Retry now", "Skip …"}, "/pauses": {"Pause …"}} {
		p.visit(path)
		for _, button := range buttons {
			p.until("offered "+button, `visitor.press("`+button+`", "")`, func(said string) bool {
				if said == "" {
					t.Fatalf("%s: %s can be pressed", path, button)
				}
				return strings.Contains(said, "read-only")
			})
		}
	}
	p.fine("read-only")
	status, err := ask[int](p, `fetch('../v1/admin/letters/discard', {method: 'POST',
		headers: {'Content-Type': 'application/json'},
		body: JSON.stringify({all: true, set: 'x', reason: 'y'})}).then(r => r.status)`)
	if err != nil || status != 403 {
		t.Errorf("a discard that was sent all the same: status %d, error %v", status, err)
	}
	if n := w.count("job_dlq WHERE discarded_at IS NULL"); n != 1 {
		t.Errorf("%d letters are pending", n)
	}
}

// A token of one tenant shows that tenant's events and letters, and says in words what it does not
// show.
func TestTenantToken(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	for _, tenant := range []string{"north", "south"} {
		w.write(event{"order." + tenant, "1", tenant, map[string]any{}})
	}
	var made struct{ Token string }
	out := w.ok("", "token", "create", "--tenant", "north", "--scope", "admin:read", "-o", "json")
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatal(err)
	}
	w.serve("--parts", "gateway", "--admin", "write")
	p := w.open(desktop, "/events")
	p.fill("Token", made.Token)
	p.press("Open")
	p.see("order.north", "Tenant north")
	if all, err := ask[string](p, "visitor.text()"); err != nil || strings.Contains(all, "order.south") {
		t.Errorf("the events of another tenant are shown, error %v:\n%s", err, all)
	}
	p.visit("/")
	p.see("Your token does not allow this", "A token of one tenant sees that tenant's events and letters")
	p.accessible("a tenant's overview")
}

// Two operators see the same letters. Who comes second is told that they are others by now, and
// nothing is done.
func TestSecondOperator(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	w.serve("--parts", "gateway,relay", "--auth", "none", "--admin", "write")
	w.write(event{"refund.made", "1", "", map[string]any{}}, event{"refund.made", "2", "", map[string]any{}})
	w.becomes(2, "job_dlq")
	second := w.open(desktop, "/letters?type=refund.made")
	second.see("refund.made")
	second.press("Discard …")
	second.see("2 letters will be discarded")
	w.ok("", "dlq", "discard", "--yes", query[string](w, "SELECT id::text FROM job_dlq LIMIT 1"), "--reason", "I was first")
	second.fill("Reason", "I come second")
	second.press("Discard")
	second.see("these are no longer the letters that were seen")
	second.expect("/v1/admin/letters/discard")
	second.fine("the second operator")
	if n := w.count("outbox_audit WHERE reason = 'I come second'"); n != 0 {
		t.Errorf("%d actions of the second operator are recorded", n)
	}
	if n := w.count("job_dlq WHERE discarded_at IS NOT NULL"); n != 1 {
		t.Errorf("%d letters are discarded, want that of the first operator", n)
	}
}

// Who has no JavaScript is told what says the same.
func TestNoJavaScript(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	w := newWorld(t)
	w.serve("--parts", "gateway", "--auth", "none", "--admin", "read")
	p := w.newTab(desktop)
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	p.load("/")
	said, err := chromedp.Run(p.ctx, chromedp.Text(chromedp.CSS("noscript")))
	if err != nil || !strings.Contains(said, "This page needs JavaScript. outbox doctor says the same") {
		t.Errorf("without JavaScript the page says %q, error %v", said, err)
	}
}
