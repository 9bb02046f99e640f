package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/server/token"
)

func TestTokens(t *testing.T) { onStores(t, testTokens) }

func testTokens(t *testing.T, e env) {
	r := e.run("", "token", "create", "--tenant", "shop", "--name", "web", "--scope", "write,read", "--expires", "720h")
	text := field(r.out, "token")
	id, sum, err := token.Parse(text)
	if r.code != 0 || err != nil {
		t.Fatalf("%+v: %v", r, err)
	}
	contains(t, r.out, id, "web", "shop", "read,write")
	contains(t, r.err, "will not be shown again")
	if strings.Contains(r.err, text) {
		t.Error("the token is on stderr, where logs are")
	}
	const sameTime = "expires_at - created_at = interval '720 hours'"
	if ok := query[bool](e, "SELECT sha256 = $2 AND "+
		e.or(sameTime, "round((julianday(expires_at) - julianday(created_at)) * 24, 3) = 720")+
		" FROM outbox_tokens WHERE id = $1", id, sum[:]); !ok {
		t.Error("stored with another hash or time")
	}

	second := decode[struct {
		token.Token
		Text string `json:"token"`
	}](t, e.ok("", "token", "create", "--scope", "operate", "-o", "json"))
	const days = 24 * time.Hour
	if parsed, _, err := token.Parse(second.Text); err != nil || parsed != second.ID || second.Tenant != "default" ||
		second.ExpiresAt == nil ||
		second.ExpiresAt.Sub(second.CreatedAt).Round(time.Hour) != 90*days {
		t.Errorf("got %+v", second)
	}
	if lasting := decode[token.Token](t,
		e.ok("", "token", "create", "--scope", "read", "--expires", "never", "-o", "json")); lasting.ExpiresAt != nil {
		t.Errorf("got %+v", lasting)
	}

	table := e.ok("", "token", "list")
	contains(t, table, "EXPIRES", id, second.ID, "never", time.Now().UTC().Add(720*time.Hour).Format("2006-01-02"))
	if strings.Contains(table+e.ok("", "token", "list", "-o", "json"), text[strings.LastIndex(text, "_")+1:]) {
		t.Error("list shows a secret")
	}
	type page = listOf[token.Token]
	if p := decode[page](t, e.ok("", "token", "list", "--tenant", "shop", "-o", "json")); len(p.Items) != 1 ||
		p.Items[0].ID != id || p.Items[0].RevokedAt != nil {
		t.Errorf("got %+v", p)
	}
	if p := e.ok("", "token", "list", "--tenant", "nobody", "-o", "json"); !strings.Contains(p, `"items": []`) {
		t.Errorf("got %s", p)
	}

	e.ok("", "token", "revoke", "--yes", id)
	if p := decode[page](t, e.ok("", "token", "list", "--tenant", "shop", "-o", "json")); p.Items[0].RevokedAt == nil {
		t.Errorf("got %+v", p)
	}
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"token":                                 {2, "create, list or revoke"},
		"token create":                          {2, "no scope (known: read, write, operate, consume, admin:read, "},
		"token create --scope admin":            {2, `unknown scope "admin" (known: read, write, operate, consume, admin:read, admin:write)`},
		"token create --scope read --tenant=":   {2, "tenant"},
		"token create --scope read --expires 0": {2, "--expires"},
		"token create --scope read --expires x": {2, "--expires"},
		"token list --tenant=":                  {2, "--tenant is empty"},
		"token revoke --yes " + text:            {2, "want its id only"},
		"token revoke --yes " + id:              {1, "revoked already"},
		"token revoke --yes aaaaaaaaaaaa":       {1, "no such token"},
	} {
		e.says(want.code, line, want.text)
		if strings.Contains(r.err, text) {
			t.Errorf("outbox %s shows the token:\n%s", line, r.err)
		}
	}
}

// field returns what follows a name in the details that a command printed.
func field(text, name string) string {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			return f[1]
		}
	}
	return ""
}
