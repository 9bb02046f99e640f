package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// comment matches the comment behind a command on a page.
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
	e := env{t: t, database: testenv.Database(t)}
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

// The commands of the page upgrade the former table, while its writers and its publisher go on, and
// end with checks that find nothing wrong: without roles, and as each documented login.
func TestUpgradePage(t *testing.T) {
	t.Parallel()
	const heading = "Upgrading ADR-004's former table"
	page, err := os.ReadFile("../../docs/operations/upgrades.md")
	if err != nil {
		t.Fatal(err)
	}
	layouts := regexp.MustCompile(`(?m)^    (- table: outbox)\n    (  like: outbox_events)$`).FindStringSubmatch(string(page))
	if layouts == nil {
		t.Fatal("the page has no layouts.yaml")
	}
	file := filepath.Join(t.TempDir(), "layouts.yaml")
	if err := os.WriteFile(file, []byte(layouts[1]+"\n"+layouts[2]+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	redis := testenv.RedisServer(t).URL()
	for _, roles := range []bool{false, true} {
		t.Run(fmt.Sprintf("roles=%t", roles), func(t *testing.T) {
			if !roles {
				tier.Full(t)
			}
			e := env{t: t, database: testenv.Database(t), redis: redis}
			exec1(e, `CREATE TABLE outbox (id UUID PRIMARY KEY, tenant_id VARCHAR(64) NOT NULL, aggregate_id VARCHAR(128),
				type VARCHAR(150) NOT NULL, schema_id VARCHAR(150), schema_ver INT NOT NULL DEFAULT 1, payload JSONB NOT NULL,
				status VARCHAR(4) NOT NULL DEFAULT 'NEW', retry_cnt INT NOT NULL DEFAULT 0, created_at TIMESTAMP NOT NULL DEFAULT now())`)
			const write = `INSERT INTO outbox (id, tenant_id, aggregate_id, type, payload, status) SELECT gen_random_uuid(), 'default', i % 7,
				'order.placed', '{}', CASE WHEN i <= 90 THEN 'SENT' WHEN i <= 95 THEN 'ERR' ELSE 'NEW' END FROM generate_series($1::int, $2::int) i`
			exec1(e, write, 1, 120)
			exec1(e, `DO $$ BEGIN CREATE ROLE former_shop; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
				GRANT INSERT ON outbox TO former_shop`)
			shop := e.login("former_shop")
			operator, relay := e, e
			if roles {
				e.ok("", "migrate", "up")
				e.ok("", "migrate", "roles")
				operator, relay = e.login("outbox_operator"), e.login("outbox_relay")
			}
			for _, line := range documented(t, "operations/upgrades.md", heading) {
				args := strings.Fields(strings.ReplaceAll(line, "layouts.yaml", file))
				line = strings.Join(args[:min(3, len(args))], " ")
				switch {
				case args[0] == "psql":
					args = strings.Fields(strings.NewReplacer(`"$DATABASE_URL"`, e.database, "deploy/", "../../deploy/").
						Replace(strings.Join(args, " ")))
					if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
						t.Fatalf("%s: %v\n%s", line, err, out)
					}
					exec1(shop, write, 100, 109)
					exec1(e, `UPDATE outbox SET status = CASE WHEN position % 2 = 0 THEN 'SENT' ELSE 'ERR' END WHERE id IN
						(SELECT id FROM outbox WHERE status = 'NEW' ORDER BY position LIMIT 4)`) // the former publisher
				case args[1] == "migrate" && roles:
				case args[1] == "dlq":
					reason := slices.Index(args, "--reason")
					operator.ok("", append(args[1:reason], "--reason", "given up")...)
				case args[1] == "relay":
					relay.start(append(args[1:], "--listen", "")...)
					e.eventually("every event is delivered", func() bool {
						return query[int](e, "SELECT count(*) FROM outbox WHERE status = 'NEW'") == 0
					})
				default: // verify, doctor
					if args[1] == "doctor" {
						args = append(args, "--skip", "OBX-011") // the server of the tests has no autovacuum
					}
					for _, as := range []env{relay, operator} {
						if r := as.run("", args[1:]...); r.code != 0 {
							t.Errorf("%s: exit code %d\n%s%s", line, r.code, r.out, r.err)
						}
					}
				}
			}
		})
	}
}
