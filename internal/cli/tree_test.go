package cli_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// destroying has the arguments of each command that removes data or access, in an order in which
// each still finds something to remove.
var destroying = []string{
	"events skip --all --reason r", "dlq discard --all --reason r", "dlq purge --older-than 1h", "purge",
	"sinks move audit --to other --reason r", "sinks forget other --reason r", "subscriptions remove billing",
	"token revoke TOKEN", "migrate down --set core --all",
}

// changing are the commands that change something and remove neither data nor access, or nothing
// that the same command does not bring back.
var changing = strings.Split("migrate up,migrate export,migrate roles,migrate indexes,write,relay,serve,dev,"+
	"lanes reader,events retry,dlq replay,dlq collect,replay,pause,resume,subscriptions add,subscriptions replay,"+
	"groups pause,groups resume,subscriptions pause,subscriptions resume,"+
	"runs create,runs cancel,token create,init,man,verify", ",")

// reading are the commands that change nothing.
var reading = strings.Split("migrate status,migrate print,tail,events,events show,lanes,sinks,route test,dlq list,"+
	"groups list,groups show,subscriptions show,"+
	"dlq show,dlq stats,audit,pauses,subscriptions list,runs list,runs show,runs follow,token list,config print,"+
	"config validate,ready,status,doctor,why,version", ",")

// path returns the command's name below outbox.
func path(cmd *cobra.Command) string {
	_, name, _ := strings.Cut(cmd.CommandPath(), " ")
	return name
}

// walk calls fn with each command of the tree that does something.
func walk(cmd *cobra.Command, fn func(*cobra.Command)) {
	if cmd.Runnable() {
		fn(cmd)
	}
	for _, sub := range cmd.Commands() {
		walk(sub, fn)
	}
}

// Each command that removes data or access asks in the same way, and each other command is known to
// remove nothing.
func TestEachCommandDestroysOrIsListed(t *testing.T) {
	t.Parallel()
	root := cli.Tree()
	walk(root, func(cmd *cobra.Command) {
		name := path(cmd)
		listed := slices.Contains(changing, name) || slices.Contains(reading, name)
		if _, marked := cmd.Annotations[cli.Destroys]; !marked {
			head := name == "" || !listed && cmd.HasSubCommands() &&
				strings.Contains(env{t: t}.run("", strings.Fields(name)...).err, "say what to do")
			if !listed && !head {
				t.Errorf("outbox %s: ask before it destroys, or add it to changing or reading", name)
			}
			return
		}
		if cmd.Flags().Lookup("yes") == nil || cmd.Flags().Lookup("dry-run") == nil || listed {
			t.Errorf("outbox %s has no --yes or no --dry-run, or is listed as harmless", name)
		}
		if !slices.ContainsFunc(destroying, func(line string) bool { return strings.HasPrefix(line+" ", name+" ") }) {
			t.Errorf("outbox %s has no arguments in destroying", name)
		}
	})
	for _, name := range slices.Concat(changing, reading) {
		if cmd, rest, err := root.Find(strings.Fields(name)); err != nil || len(rest) > 0 || path(cmd) != name {
			t.Errorf("outbox %s is listed and does not exist", name)
		}
	}
}

// placeholders are the types of flags.
var placeholders = strings.Fields("duration time age url urls file files dir name names int ints float uuid id " +
	"string pattern address format level mode json token table=mode table=text table=sink")

// verb finds a help that does not begin with a noun.
var verb = regexp.MustCompile(`^(do|print|use|show|take|try|skip|look|read|write|change|keep|stop|count|ask|make|add|` +
	`how|what|who|whose|where|why|when|which|most|also|only) `)

// Every help text fits into 100 columns and lists at most 12 flags. A flag's placeholder is its type,
// and its help a noun phrase.
func TestHelpTextsAreShort(t *testing.T) {
	t.Parallel()
	e, root := env{t: t}, cli.Tree()
	check := func(name string) {
		help := e.ok("", append([]string{"help"}, strings.Fields(name)...)...)
		_, flags, _ := strings.Cut(help, "\nFlags:\n")
		if n := len(flagLine.FindAllString(flags, -1)); n > 12 {
			t.Errorf("outbox %s --help lists %d flags", name, n)
		}
		for line := range strings.Lines(help) {
			if n := utf8.RuneCountInString(line) - 1; n > 100 {
				t.Errorf("outbox %s --help has a line of %d columns: %s", name, n, line)
			}
		}
	}
	walk(root, func(cmd *cobra.Command) {
		check(path(cmd))
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			placeholder, usage := pflag.UnquoteUsage(f)
			if f.Value.Type() != "bool" && !slices.Contains(placeholders, placeholder) {
				t.Errorf("outbox %s --%s %s: the placeholder is not a type", path(cmd), f.Name, placeholder)
			}
			if verb.MatchString(usage) || strings.ContainsAny(usage, ".\n") && strings.HasSuffix(usage, ".") {
				t.Errorf("outbox %s --%s is not a noun phrase: %s", path(cmd), f.Name, usage)
			}
		})
	})
	for _, cmd := range root.Commands() {
		if cmd.IsAdditionalHelpTopicCommand() {
			check(cmd.Name())
		}
	}
}

var flagLine = regexp.MustCompile(`(?m)^ +(-\w, )?--`)

// Without a terminal and without --yes, and with --dry-run, a command that removes data or access
// changes nothing in the database. With --yes it does.
func TestDestroyingIsOneManner(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := env{t: t, database: testenv.Database(t), redis: "default=redis://127.0.0.1:1 other=redis://127.0.0.1:1"}
	e.ok("", "migrate", "up", "--set", "core,events,crawl,log")
	insertOldRows(e)
	e.ok("1", "write", "--topic", "order.placed", "--key", "7")
	exec1(e, `INSERT INTO outbox_deliveries (outbox_table, sink, lane, event_id, destinations, event_topic, event_key,
		tenant_id, payload, written_at, status, attempts) VALUES ('outbox_events', 'audit', 1, $1, '["orders"]', 'order.placed',
		'7', 'acme', '1', '2025-01-01T00:00:00Z', 'pending', 0)`, uuid.NewString())
	e.ok("", "subscriptions", "add", "billing")
	token := field(e.ok("", "token", "create", "--scope", "read"), "id")
	rows := func() string {
		return query[string](e, `SELECT md5(string_agg(relname || query_to_xml('SELECT * FROM ' || oid::regclass, true,
			false, '')::text, '' ORDER BY relname)) FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`)
	}
	before := rows()
	for _, line := range destroying {
		args := strings.Fields(strings.Replace(line, "TOKEN", token, 1))
		if line == "sinks forget other --reason r" {
			args[2] = "audit" // before the move
		}
		if r := e.run("y\n", args...); r.code != 2 || !strings.Contains(r.err, "--yes") {
			t.Errorf("outbox %s: exit code %d:\n%s", line, r.code, r.err)
		}
		contains(t, e.ok("", append(args, "--dry-run")...), " will ")
		if out := e.ok("", append(args, "--dry-run", "-o", "json")...); !json.Valid([]byte(out)) {
			t.Errorf("outbox %s --dry-run -o json prints %s", line, out)
		}
		if rows() != before {
			t.Fatalf("outbox %s has changed something", line)
		}
	}
	for _, line := range destroying[:len(destroying)-1] {
		e.ok("", append(strings.Fields(strings.Replace(line, "TOKEN", token, 1)), "--yes")...)
		now := rows()
		if now == before {
			t.Errorf("outbox %s --yes has changed nothing", line)
		}
		before = now
	}
}

// migrate down does not lose events, nor take tables away from a relay, unless it is told to.
func TestMigrateDownRefusesWhileInUse(t *testing.T) {
	tier.Full(t)
	onStores(t, testMigrateDownInUse)
}

func testMigrateDownInUse(t *testing.T, e env) {
	for _, set := range []string{"events", "crawl"} {
		e.ok("", "migrate", "down", "--set", set, "--all", "--yes")
	}
	e.ok("1", "write", "--topic", "order.placed")
	const down = "migrate down --set core --all --yes"
	e.says(1, down, "outbox_events has 1 undelivered event", "--lose-undelivered")
	e.says(0, "migrate down --set core --all --dry-run", "all migrations of set core will be undone",
		"1 undelivered event")
	exec1(e, "UPDATE outbox_events SET status = 'SENT', processed_at = created_at")
	e.redis = "redis://127.0.0.1:1"
	relay, _ := e.relaying("--table", "outbox_events")
	relay.await(relay.err, "lanes held")
	e.says(1, down, "serves outbox_events")
	e.ok("1", "write", "--topic", "order.placed")
	e.says(0, down+" --lose-undelivered", "outbox_events has 1 undelivered event", "001_")
	relay.signal(9)
	relay.wait()
}
