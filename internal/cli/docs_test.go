package cli_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// comment is what follows a command of a page on its line.
var comment = regexp.MustCompile(`\s{2,}#.*`)

// documented returns the commands of a section of a page: the lines of its blocks of code that begin
// with outbox or psql.
func documented(t *testing.T, page, heading string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(comment.ReplaceAllString(line, ""))
		if strings.HasPrefix(line, "outbox ") || strings.HasPrefix(line, "psql ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// The commands of the page make a subscription that a token reaches over HTTP.
func TestSubscriptionPage(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: testenv.Database(t), redis: "redis://127.0.0.1:1"}
	var g gatewayAt
	var secret string
	for _, line := range documented(t, "guide/consuming.md", "A subscription, in any language") {
		args := strings.Fields(line)[1:]
		switch {
		case args[0] == "serve":
			g = e.serving(args[1:]...)
		case slices.Equal(args[:2], []string{"token", "create"}):
			secret = decode[struct{ Token string }](t, e.ok("", append(args, "-o", "json")...)).Token
		default:
			e.ok("", args...)
		}
	}
	if g.url == "" || secret == "" {
		t.Fatal("the page starts no gateway, or makes no token")
	}
	e.ok("{}", "write", "--table", "outbox_log", "--topic", "order.placed", "--source", "shop")
	const subscription = "/v1/subscriptions/billing"
	status, text := g.ask(secret, "GET", subscription+"/events?wait=30s", nil)
	if status != 200 {
		t.Fatalf("status %d: %s", status, text)
	}
	type receipt struct {
		ID    string `json:"id"`
		Token string `json:"token"`
	}
	given := decode[struct{ Events []receipt }](t, string(text)).Events
	status, text = g.ask(secret, "POST", subscription+"/ack", map[string]any{"events": given})
	if want := `"acknowledged":1`; status != 200 || !strings.Contains(string(text), want) {
		t.Errorf("status %d, want 200 and %s: %s", status, want, text)
	}

	// Errors name the tenant.
	e.ok("", "subscriptions", "add", "audit")
	scopes := "consume,operate"
	other := decode[struct{ Token string }](t, e.ok("", "token", "create", "-o", "json", "--scope", scopes)).Token
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		says         string
	}{
		{"GET", "/v1/subscriptions/audit/events", nil, 404, "tenant default has none named audit"},
		{"PUT", "/v1/subscriptions/audit", map[string]any{}, 409, "audit is not of tenant default"},
		{"PUT", subscription, map[string]any{}, 409, "billing is of tenant default, with types order.placed"},
	} {
		status, text := g.ask(other, c.method, c.path, c.body)
		if status != c.status || !strings.Contains(string(text), c.says) {
			t.Errorf("%s %s: status %d, want %d and %q: %s", c.method, c.path, status, c.status, c.says, text)
		}
	}
	if r := e.run("", "token", "create", "--tenant", "*", "--scope", scopes); !strings.Contains(r.err, "name the tenant") {
		t.Errorf("a token of all tenants with %s: exit code %d: %s", scopes, r.code, r.err)
	}
}
