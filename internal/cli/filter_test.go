package cli_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/internal/config"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// choosing are the commands that choose by flags, with what else each needs, and those of their
// flags that take one name only. In all others a pattern chooses. A command that makes or sets
// something by these flags is in making.
var choosing = map[string]struct {
	needs string
	named []string
}{
	"events":       {"", []string{"key", "tenant", "trace", "sink"}},
	"events show":  {"01890a5d-ac96-774b-bcce-b302099a8057", []string{"tenant", "sink"}},
	"events retry": {"", []string{"key", "tenant", "trace", "sink"}},
	"events skip":  {"--dry-run", []string{"key", "tenant", "trace", "sink"}},
	"replay":       {"--dry-run --since 1h", []string{"key", "tenant", "destination"}},
	"pause":        {"--table outbox_events --reason r", []string{"sink"}},
	"resume":       {"--table outbox_events", []string{"sink"}},
	"dlq list":     {"", []string{"key", "tenant"}},
	"dlq show":     {"01890a5d-ac96-774b-bcce-b302099a8057", []string{"tenant"}},
	"dlq stats":    {"", []string{"key", "tenant"}},
	"dlq replay":   {"--yes", []string{"key", "tenant"}},
	"dlq discard":  {"--dry-run", []string{"key", "tenant"}},
	"dlq purge":    {"--dry-run", []string{"tenant"}},
	"token list":   {"", []string{"tenant"}},
}

var making = []string{"write", "route test", "token create", "config print",
	"config validate", "relay", "serve", "subscriptions add", "doctor", "verify", "why"}

// filterFlags returns the names of a command's flags that choose events or dead letters.
func filterFlags(cmd *cobra.Command) (names []string) {
	cmd.InheritedFlags() // cobra adds those of the parents
	for _, name := range []string{"topic", "type", "destination", "key", "tenant", "trace", "sink"} {
		if f := cmd.Flags().Lookup(name); f != nil && !config.IsSetting(f) {
			names = append(names, name)
		}
	}
	return names
}

// A filter means the same in every command: a pattern chooses, or is refused with what to write
// instead.
func TestFiltersMeanTheSame(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := migrated(t)
	seen := 0
	walk(cli.Tree(), func(cmd *cobra.Command) {
		path, flags := path(cmd), filterFlags(cmd)
		c, chooses := choosing[path]
		for _, m := range making {
			chooses = chooses || path == m
		}
		if len(flags) == 0 {
			return
		}
		if !chooses {
			t.Errorf("outbox %s has --%s and is neither in choosing nor in making", path, flags[0])
			return
		}
		if _, ok := choosing[path]; !ok {
			return
		}
		seen++
		for _, name := range flags {
			run := func(value string) result {
				args := append(strings.Fields(path), strings.Fields(c.needs)...)
				return e.run("", append(args, "--"+name+"="+value)...)
			}
			if r := run(""); r.code != 2 || !strings.Contains(r.err, "--"+name+" is empty") {
				t.Errorf("outbox %s, empty --%s: exit code %d\n%s%s", path, name, r.code, r.out, r.err)
			}
			r := run("invoice.*")
			if named := strings.Contains(" "+strings.Join(c.named, " ")+" ", " "+name+" "); named != (r.code == 2) ||
				named && !strings.Contains(r.err, "takes no pattern: name one") {
				t.Errorf("outbox %s --%s invoice.*: exit code %d\n%s%s", path, name, r.code, r.out, r.err)
			}
			if name == "topic" || name == "type" {
				if r := run("invoice.>"); r.code != 2 || !strings.Contains(r.err, `write "invoice.*"`) {
					t.Errorf("outbox %s --%s invoice.>: exit code %d\n%s%s", path, name, r.code, r.out, r.err)
				}
			}
		}
	})
	if seen != len(choosing) {
		t.Errorf("found %d of %d commands that choose", seen, len(choosing))
	}
}

// What --topic and --type choose by a pattern is the same on both databases, * being any text and
// nothing else a sign.
func TestPatternsChoose(t *testing.T) {
	tier.Full(t)
	onStores(t, testPatternsChoose)
}

func testPatternsChoose(t *testing.T, e env) {
	for _, topic := range []string{"invoice.sent", "invoice.a.b", "invoice_x", "invoice", "other.invoice.",
		"[i]nvoice.?"} {
		e.ok(`{}`, "write", "--topic", topic, "--source", "shop")
	}
	exec1(e, `UPDATE outbox_events SET status = 'FAILED', next_retry_at = '2999-01-01T00:00:00.000000Z'`)
	for topic, n := range map[string]int{
		"invoice.*": 2, "invoice*": 4, "*invoice*": 5, "invoice": 1, "*": 6, "*.*": 4, "invoice_*": 1, "[i]*": 1, "*.?": 1,
		"invoice.": 0, "Invoice.*": 0, "invoice.%": 0,
	} {
		type row struct{ Topic string }
		if got := decode[listOf[row]](t, e.ok("", "events", "--topic", topic, "-o", "json")).Items; len(got) != n {
			t.Errorf("events --topic %s: %v, want %d", topic, got, n)
		}
		for _, command := range []string{"events skip --dry-run", "events retry --reason again"} {
			got := decode[struct{ Events int }](t,
				e.ok("", append(strings.Fields(command), "--topic", topic, "-o", "json")...)).Events
			if got != n {
				t.Errorf("outbox %s --topic %s: %d, want %d", command, topic, got, n)
			}
		}
		exec1(e, `UPDATE outbox_events SET next_retry_at = '2999-01-01T00:00:00.000000Z'`)
	}
	e.ok("", "events", "skip", "--topic", "invoice.*", "--yes", "--reason", "r")
	contains(t, e.ok("", "dlq", "stats", "--topic", "inv*.a.*"), "1 pending")
	contains(t, e.ok("", "dlq", "discard", "--yes", "--topic", "invoice.*", "--reason", "r"), "discarded 2 letters")
	for args, says := range map[string]string{
		"events retry --topic invoice.*":                        "next attempt, looked for topic invoice.*\n",
		"events skip --dry-run --topic none.*":                  "are chosen, looked for topic none.*\n",
		"events --topic no* --status DEAD":                      "in outbox_events, looked for topic no* and status DEAD\n",
		"replay --since 1h --topic none.* --yes":                "are chosen, looked for topic none.* and since 1h\n",
		"dlq list --topic none.*":                               "no such dead letters, looked for topic none.*\n",
		"dlq discard --yes --topic none.* --reason r":           "are chosen, looked for topic none.*\n",
		"dlq replay --topic no* --table event_outbox --dry-run": "are chosen, looked for topic no* and table event_outbox\n",
	} {
		if r := e.run("", strings.Fields(args)...); r.code != 0 || !strings.HasSuffix(r.err, says) {
			t.Errorf("outbox %s: exit code %d, want 0 and %q:\n%s%s", args, r.code, says, r.out, r.err)
		}
	}
	for args, says := range map[string]string{
		"events --status NOSUCH":                      "is none of NEW",
		"events --table nosuch":                       "nosuch",
		"dlq list --table nosuch":                     "nosuch",
		"dlq discard --yes --table nosuch --reason r": "nosuch",
		"dlq list --since 1h --until 2h":              "nothing is between them",
		"replay --yes --since 1h --until 2h":          "nothing is between them",
		"dlq list --fingerprint nosuch":               "12 characters",
		"events retry --all --topic x":                "contradicts",
	} {
		e.says(2, args, says)
	}
}

func TestTailPattern(t *testing.T) {
	t.Parallel()
	redis := testenv.RedisServer(t)
	tail := env{t: t, redis: redis.URL()}.start("tail", "a?*", "--count", "1")
	tail.await(tail.err, "subscribed")
	redisCommand(t, redis,
		"EVAL \"redis.call('publish', 'ab1', 'x') redis.call('publish', 'a?1', 'x') return {ok='OK'}\" 0")
	if tail.wait(); tail.out.String() != "a?1 x\n" {
		t.Errorf("the pattern a?* brought %q, want a?1 alone", tail.out)
	}
}
