package cli_test

import (
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

func TestSubscriptions(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: testenv.Database(t)}
	e.ok("", "migrate", "up")
	if r := e.run("", "subscriptions", "list"); r.code != 1 || !strings.Contains(r.err, "--set log") {
		t.Errorf("without the set log: %d %s", r.code, r.err)
	}
	e.ok("", "migrate", "up", "--set", "log")
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"subscriptions", "say what to do: add, list, show, pause, resume, remove or replay", 2},
		{"subscriptions list", "there are no subscriptions", 0},
		{"subscriptions list -o json", `"items": []`, 0},
		{"subscriptions add billing --topic a,b --lease 1m --attempts 3", "made subscription billing", 0},
		{"subscriptions add billing --topic a,b --lease 1m --attempts 3 -o json", `"changed": false`, 0},
		{"subscriptions add billing", "with other settings", 1},
		{"subscriptions add Billing", "the name must be 1 to 63 of a-z", 1},
		{"subscriptions add audit --tenant acme --from earliest", "made subscription audit", 0},
		{"subscriptions add other --from yesterday", "want earliest, latest or a time", 2},
		{"subscriptions add other --lease 0s", "lease", 2},
		{"subscriptions list", "billing", 0},
		{"subscriptions list -o json", `"tenant": "acme"`, 0},
		{"subscriptions replay billing --from 2026-01-01T00:00:00Z", "gets again", 0},
		{"subscriptions replay none --from 2026-01-01T00:00:00Z", "there is no such subscription: ", 1},
		{"subscriptions replay billing", "--from", 2},
		{"subscriptions show audit", "acme", 0},
		{"subscriptions show none", "there is no such subscription", 1},
		{"subscriptions pause audit", "--reason is required", 2},
		{"subscriptions pause audit --reason INC-7", "paused subscription audit", 0},
		{"subscriptions pause audit --reason INC-7", "was paused already", 0},
		{"subscriptions show audit", "paused since", 0},
		{"audit", "INC-7", 0},
		{"subscriptions resume audit", "resumed subscription audit", 0},
		{"subscriptions resume none", "there is no such subscription", 1},
		{"subscriptions remove audit --yes", "removed subscription audit", 0},
		{"subscriptions remove audit --yes", "there is no such subscription", 1},
	} {
		r := e.run("", strings.Fields(c.args)...)
		if r.code != c.code || !strings.Contains(r.out+r.err, c.want) {
			t.Errorf("%s: code %d, want %d with %q:\n%s%s", c.args, r.code, c.code, c.want, r.out, r.err)
		}
	}
}
