package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return v
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: "postgres://127.0.0.1:1/none", redis: "redis://127.0.0.1:1"}
	for _, c := range []struct {
		args string
		says string
	}{
		{"publish", "unknown command"},
		{"evnts", "did you mean events?"},
		{"migrat up --set core", "did you mean migrate?"},
		{"dlq lisst --limit 3", "did you mean list?"},
		{"events --topci x", "did you mean --topic?"},
		{"migrate", "up, down, status"},
		{"migrate upp --set core", "did you mean up?"},
		{"migrate up --set core,nope", `no migration set "nope"`},
		{"migrate down", "add --yes"},
		{"migrate down --yes", "--set is required"},
		{"migrate down --yes --set core,events", "no migration set"},
		{"migrate down --yes --set core --steps 0", "--steps"},
		{"migrate down --dry-run --set core --steps 2 --all", "contradict"},
		{"migrate indexes fast", `"fast"`},
		{"migrate indexes lean adr", "contradict"},
		{"migrate export --dir d", "--format is required: encore, golang-migrate, goose, atlas"},
		{"migrate export --dir d --format flyway", `no format "flyway"`},
		{"migrate export --format goose", "--dir is required"},
		{"migrate export --dir d --format goose --set nope", `no migration set "nope"`},
		{"migrate export --dir d --format goose --set crawl", "--set core,crawl"},
		{"write", "--topic is required"},
		{"write --topic a --id 7", "--id"},
		{"write --topic a --metadata [1]", "--metadata"},
		{"write --topic a --tenant " + strings.Repeat("x", 65), "--tenant has 65 characters"},
		{"write --topic a --aggregate-type " + strings.Repeat("x", 101), "--aggregate-type"},
		{"write --jsonl --id " + uuid.NewString(), "--id"},
		{"write --topic a surplus", "surplus"},
		{"tail", "channel"},
		{"tail a --count -1", "--count"},
		{"events --limit 0", "--limit"},
		{"events --table nobody", "nobody"},
		{"events show", "name one event"},
		{"events show 123", "--position"},
		{"why 123", "--position"},
		{"relay --poll-max 1us", "poll-max"},
		{"relay --poll-max never", `--poll-max: "never" is no time`},
		{"relay --bogus", "--bogus"},
		{"relay --config /no/such.yaml", "/no/such.yaml"},
		{"version -o xml", "output"},
	} {
		r := e.run("", strings.Fields(c.args)...)
		if r.code != 2 || r.out != "" || !strings.Contains(r.err, c.says) || !strings.Contains(r.err, "--help") {
			t.Errorf("outbox %s: exit code %d, want 2 and %q:\n%s%s", c.args, r.code, c.says, r.out, r.err)
		}
	}
	none := env{t: t}
	for _, command := range []string{"relay", "events", "migrate up", "write --topic a", "tail x"} {
		r := none.run("", strings.Fields(command)...)
		if r.code != 2 || !strings.Contains(r.err, "_URL") && !strings.Contains(r.err, "OUTBOX_SINK") {
			t.Errorf("outbox %s without URLs: exit code %d, want 2 and the names of the variables:\n%s", command, r.code, r.err)
		}
	}
}

// Every command teaches: what it does at length, and examples. help.md has the words of all, and of
// nothing else.
func TestHelp(t *testing.T) {
	t.Parallel()
	e := env{t: t}
	words, err := os.ReadFile("help.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	walk(cli.Tree(), func(cmd *cobra.Command) {
		seen++
		help := e.ok("", append(strings.Fields(path(cmd)), "--help")...)
		contains(t, string(words), strings.TrimSpace("# outbox "+path(cmd)))
		contains(t, help, "Usage:", strings.TrimSpace("outbox "+path(cmd)))
		if !cmd.HasSubCommands() {
			contains(t, help, "Examples:")
		}
	})
	for _, topic := range []string{"settings", "filters", "urls", "layouts"} {
		seen++
		contains(t, e.ok("", "help", topic), "\n")
	}
	if n := strings.Count("\n"+string(words), "\n# outbox"); n != seen {
		t.Errorf("help.md has the words of %d commands, and there are %d", n, seen)
	}
	contains(t, e.ok(""), "Available Commands", "OUTBOX_POLL_MAX", "130 ended")
}

func TestVersionNamesTheSchema(t *testing.T) {
	t.Parallel()
	version := decode[struct {
		Go     string
		Schema map[string]int
	}](t, env{t: t}.ok("", "version", "-o", "json"))
	if version.Schema["core"] == 0 || version.Schema["crawl"] == 0 || !strings.HasPrefix(version.Go, "go1") {
		t.Errorf("got %+v", version)
	}
}

func TestPasswordIsNeverPrinted(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	e := env{t: t}
	for _, c := range []struct {
		code int
		args []string
	}{
		{1, []string{"events", "--database", "postgres://u:" + secret + "@127.0.0.1:1/d"}},
		{1, []string{"migrate", "up", "--database", "postgres://u:" + secret + "@127.0.0.1:1/d"}},
		{1, []string{"migrate", "status", "--database", "host=127.0.0.1 port=1 password=" + secret}},
		{1, []string{"write", "--topic", "a", "--database", "postgres://127.0.0.1:1/d?password=" + secret}},
		{2, []string{"events", "--database", "postgres://u:" + secret + "/x@127.0.0.1:1/d"}},
		{2, []string{"events", "--database", "postgres://u:12/" + secret + "@127.0.0.1:1/d"}},
		{2, []string{"migrate", "up", "--database", "postgres://u:%zz" + secret + "@h/d"}},
		{1, []string{"tail", "x", "--sink", "redis://u:" + secret + "@127.0.0.1:1/0"}},
		{2, []string{"tail", "x", "--sink", "redis://u:" + secret + "#@127.0.0.1:1/0"}},
		{2, []string{"tail", "x", "--sink", "http://u:" + secret + "@127.0.0.1:1/0"}},
		{2, []string{"relay", "--sink", "redis://u:" + secret + "/@h", "--database",
			"postgres://u:" + secret + "@h:port/d"}},
	} {
		r := e.run("{}", c.args...)
		if r.code != c.code || strings.Contains(r.out+r.err, secret) {
			t.Errorf("outbox %s: exit code %d, want %d and no password:\n%s%s", strings.Join(c.args, " "), r.code, c.code, r.out,
				r.err)
		}
	}
	// A relay that waits says for whom, again and again.
	relay := e.start("relay", "--sink", "redis://u:"+secret+"@127.0.0.1:1/0", "--database",
		"postgres://u:"+secret+"@127.0.0.1:1/d", "--log-level", "debug")
	relay.await(relay.err, "waiting for database d at 127.0.0.1:1")
	if strings.Contains(relay.err.String(), secret) {
		t.Errorf("the log has the password:\n%s", relay.err)
	}
}

func TestMigrate(t *testing.T) { onStores(t, testMigrate) }

func testMigrate(t *testing.T, e env) {
	e = e.empty()
	type set struct {
		Set             string
		Current, Latest int
		Pending         []string
	}
	status := func() map[string]set {
		all := map[string]set{}
		for _, s := range decode[listOf[set]](t, e.ok("", "migrate", "status", "-o", "json")).Items {
			all[s.Set] = s
		}
		return all
	}
	if s := status(); s["core"].Current != 0 || len(s["core"].Pending) != s["core"].Latest {
		t.Errorf("an empty database has %+v", s)
	}
	if r := e.run("", "migrate", "up", "--set", "crawl"); r.code != 1 ||
		!strings.Contains(r.err, "outbox migrate up --set core,crawl") {
		t.Errorf("crawl without core: exit code %d\n%s", r.code, r.err)
	}
	contains(t, e.ok("", "migrate", "up", "--set", "core,crawl"), "002_outbox_events", "002_crawl_outbox")
	if s := status(); s["core"].Current != s["core"].Latest || s["events"].Current != 0 {
		t.Errorf("after core and crawl: %+v", s)
	}
	contains(t, e.ok("", "migrate", "up"), "001_event_outbox")
	contains(t, e.ok("", "migrate", "up"), "(nothing)")
	if roles := e.run("", "migrate", "roles"); e.onFile() {
		for _, r := range []result{roles, e.run("", "migrate", "indexes")} {
			if r.code != 2 || !strings.Contains(r.err, "SQLite") || r.out != "" {
				t.Errorf("what a file has not: exit code %d\n%s", r.code, r.err)
			}
		}
	} else if !query[bool](e, `SELECT has_table_privilege('outbox_relay', 'outbox_events', 'SELECT')`) {
		t.Errorf("outbox_relay may not read what it delivers: exit code %d\n%s", roles.code, roles.err)
	}
	super := e
	if !e.onFile() {
		e = e.owner()
	}
	contains(t, e.ok("", "migrate", "status"), "up to date")
	contains(t, e.ok("", "migrate", "down", "--yes", "--set", "crawl"), "002_crawl_outbox")
	if s := status()["crawl"]; s.Current != s.Latest-1 {
		t.Errorf("after one step down: %+v", s)
	}
	if r := e.run("", "migrate", "down", "--yes", "--lose-undelivered", "--set", "core"); r.code != 1 ||
		!strings.Contains(r.err, "outbox migrate down --set events --all") || r.out != "" {
		t.Errorf("core below crawl: exit code %d\n%s", r.code, r.err)
	}
	contains(t, e.ok("", "migrate", "down", "--yes", "--set", "crawl", "--all"), "001_crawl_schema")

	nowhere := env{t: t}
	contains(t, nowhere.ok("", "migrate", "print", "--set", "core"), "CREATE TABLE IF NOT EXISTS outbox_events", "jsonb")
	contains(t, e.ok("", "migrate", "print", "--set", "core"), "outbox_events", e.or("jsonb", "json_valid"))
	created := nowhere.ok("", "migrate", "roles", "--print")
	contains(t, created, "outbox_relay")
	if e.onFile() {
		return
	}
	made := decode[struct{ Roles []string }](t, super.ok("", "migrate", "roles", "-o", "json"))
	contains(t, created, "ARRAY['"+strings.Join(made.Roles, "', '")+"'] LOOP")
}

func TestWriteOne(t *testing.T) { onStores(t, testWriteOne) }

func testWriteOne(t *testing.T, e env) {
	id := strings.TrimSpace(e.ok(`{"total": 12}`+"\n", "write", "--topic", "order.placed", "--aggregate-type", "Order",
		"--key", "42", "--tenant", "acme",
		"--source", "shop", "--destination", "a,b", "--metadata", `{"user_id": 12345678901234567890}`))
	row := query[string](e, `SELECT concat_ws('|', event_topic, aggregate_type, aggregate_id, tenant_id, source_bc, destination_topics, metadata, payload, status)
		FROM outbox_events WHERE id = $1`, id)
	if want := e.or(`order.placed|Order|42|acme|shop|["a", "b"]|{"user_id": 12345678901234567890}|{"total": 12}|NEW`,
		`order.placed|Order|42|acme|shop|["a","b"]|{"user_id":12345678901234567890}|{"total": 12}|NEW`); row != want {
		t.Errorf("got  %s\nwant %s", row, want)
	}
	own := uuid.NewString()
	again := []string{"write", "--topic", "order.placed", "--id", own, "-o", "json", "--strict"}
	for i, duplicate := range []bool{false, true} {
		got := decode[struct {
			ID        string
			Duplicate bool
		}](t, e.ok("null", again...))
		if got.ID != own || got.Duplicate != duplicate {
			t.Errorf("write %d of one id: got %+v, want duplicate %v", i+1, got, duplicate)
		}
	}
	for stdin, says := range map[string]string{"": "stdin is empty", "{": "payload is not valid JSON",
		`"\u0000"`:                             `contains \u0000`,
		`"` + strings.Repeat("x", 1<<20) + `"`: "1048578 bytes, the limit is 1048576"} {
		if r := e.run(stdin, "write", "--topic", "a"); r.code != 1 || !strings.Contains(r.err, says) {
			t.Errorf("payload %.20q: exit code %d, want 1 and %q:\n%s", stdin, r.code, says, r.err)
		}
	}
	if n := query[int](e, `SELECT count(*) FROM outbox_events`); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	if r := e.empty().run("1", "write", "--topic", "a"); r.code != 1 ||
		!strings.Contains(r.err, e.or("outbox migrate up --set core", "outbox migrate up")) {
		t.Errorf("no tables: exit code %d\n%s", r.code, r.err)
	}
}

// numbered returns n lines of --jsonl over ten keys.
func numbered(n int) []string {
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf(`{"topic":"order.placed","key":"k%d","payload":{"n":%d}}`, i%10, i))
	}
	return lines
}

func TestWriteLines(t *testing.T) { onStores(t, testWriteLines) }

func testWriteLines(t *testing.T, e env) {
	lines := numbered(1200)
	contains(t, e.ok(strings.Join(lines, "\n"), "write", "--jsonl", "--source", "shop", "--tenant", "acme"),
		"wrote 1200 events")
	if n := query[int](e, `SELECT count(*) FROM (SELECT CAST(payload->>'n' AS integer) AS n, row_number() OVER (ORDER BY position) - 1 AS place
		FROM outbox_events WHERE source_bc = 'shop' AND tenant_id = 'acme') x WHERE n = place`); n != 1200 {
		t.Errorf("%d events are in the order of the lines, want 1200", n)
	}
	for bad, says := range map[string]string{
		`{"topic":"a","key":7,"payload":1}`:            "key: got JSON of type number, want string",
		`{"topic":"a","destinations":"b","payload":1}`: "destinations: got JSON of type string, want list of strings",
		`{"topic":"a","payload":"\u0000"}`:             `payload contains \u0000`,
		`{"topic":"a","payloads":1}`:                   `unknown field "payloads"`,
		`{"topic":"a"}`:                                "payload is required",
		`{"payload":1}`:                                "topic is required",
		`{"topic":"a","id":"x","payload":1}`:           `id is "x"`,
		`{"topic":"a","occurred_at":"x","payload":1}`:  `occurred_at is "x"`,
		`{"topic":"a","metadata":[],"payload":1}`:      "metadata",
		`{"topic":"a","payload":1} {}`:                 "more than one JSON value",
		`[1]`:                                          "want an object",
		`{"topic":"a"`:                                 "not complete",
	} {
		exec1(e, `DELETE FROM outbox_events`)
		input := append(numbered(1050), "", bad, `{"topic":"b","payload":1}`)
		r := e.run(strings.Join(input, "\n"), "write", "--jsonl", "--source", "shop")
		if r.code != 1 || !strings.Contains(r.err, "line 1052: ") || !strings.Contains(r.err, says) ||
			!strings.Contains(r.err, "1050 events") {
			t.Errorf("%s: exit code %d, want 1, line 1052, %q and 1050 events:\n%s", bad, r.code, says, r.err)
		}
		if n := query[int](e, `SELECT count(*) FROM outbox_events`); n != 1050 {
			t.Errorf("%s: %d events are committed, want 1050", bad, n)
		}
	}
}

func TestWriteLinesWithOwnIDs(t *testing.T) { onStores(t, testWriteLinesWithOwnIDs) }

func testWriteLinesWithOwnIDs(t *testing.T, e env) {
	var lines []string
	for range 5 {
		lines = append(lines, fmt.Sprintf(`{"id":"%s","payload":null}`, uuid.NewString()))
	}
	input := strings.Join(append(lines[:4:4], lines[0]), "\n")
	contains(t, e.ok(input, "write", "--jsonl", "--topic", "a"), "wrote 4 events, 1 more were in the table already")
	r := e.run(strings.Join(lines, "\n"), "write", "--jsonl", "--topic", "a", "-o", "json")
	var fresh []int
	for line := range strings.Lines(r.out) {
		w := decode[struct {
			Line      int
			Duplicate bool
		}](t, line)
		if !w.Duplicate {
			fresh = append(fresh, w.Line)
		}
	}
	if fmt.Sprint(fresh) != "[5]" || !strings.Contains(r.err, "wrote 1 event,") {
		t.Errorf("new lines are %v, want 5 alone:\n%s%s", fresh, r.out, r.err)
	}
}

func TestEvents(t *testing.T) { onStores(t, testEvents) }

func testEvents(t *testing.T, e env) {
	e.ok(strings.Join(numbered(12), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	exec1(e, `UPDATE outbox_events SET status = 'DEAD', error_message = 'no such
channel', error_history = '[{"error": "x"}]' WHERE CAST(payload->>'n' AS text) = '3'`)
	type page = listOf[struct{ ID, Status, Topic, Key string }]
	var ids []string
	after := []string{}
	for range 3 {
		p := decode[page](t, e.ok("", append([]string{"events", "--limit", "5", "-o", "json"}, after...)...))
		for _, event := range p.Items {
			ids = append(ids, event.ID)
		}
		after = []string{"--after", p.NextCursor}
		if len(ids) == 12 != (p.NextCursor == "") {
			t.Errorf("next is %q after %d events", p.NextCursor, len(ids))
		}
	}
	if len(ids) != 12 {
		t.Errorf("the pages have %d events, want 12", len(ids))
	}
	table := e.run("", "events", "--limit", "5")
	contains(t, table.out, "ID", "STATUS", "order.placed", "Order/k1", "NEW")
	contains(t, table.err, "--after ")
	contains(t, e.ok("", "events", "--status", "dead"), `"no such\nchannel"`, "Order/k3")
	if p := decode[page](t, e.ok("", "events", "--key", "k1", "--topic", "order.placed", "-o",
		"json")); len(p.Items) != 2 {
		t.Errorf("key k1 has %d events, want 2", len(p.Items))
	}
	dead := decode[page](t, e.ok("", "events", "--status", "DEAD", "-o", "json")).Items[0].ID
	contains(t, e.ok("", "events", "show", dead), "payload", e.or(`{"n": 3}`, `{"n":3}`), "error history", "DEAD")
	if shown := decode[map[string]any](t,
		e.ok("", "events", "show", dead, "-o", "json")); shown["payload"].(map[string]any)["n"] != 3.0 {
		t.Errorf("got %v", shown)
	}
	for args, code := range map[string]int{"events --status nope": 2, "events --after x": 2, "events show nope": 2,
		"events show " + uuid.NewString(): 1, "events --table crawl_outbox --tenant a": 0} {
		if r := e.run("", strings.Fields(args)...); r.code != code {
			t.Errorf("outbox %s: exit code %d, want %d:\n%s", args, r.code, code, r.err)
		}
	}
	if r := e.empty().run("", "events"); r.code != 1 ||
		!strings.Contains(r.err, e.or("outbox migrate up --set core", "outbox migrate up")) {
		t.Errorf("no tables: exit code %d\n%s", r.code, r.err)
	}
}

// A shell is offered names that the settings and the database know.
func TestCompletionOfNames(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := env{t: t, database: testenv.Database(t), redis: "default=redis://127.0.0.1:1 audit=redis://127.0.0.1:1"}
	e.ok("", "migrate", "up", "--set", "core,log")
	e.ok("1", "write", "--topic", "order.placed")
	e.ok("", "subscriptions", "add", "billing")
	for args, want := range map[string]string{
		"events --topic ": "order.placed", "events skip --topic ": "order.placed", "events --status ": "FAILED",
		"events --sink audit --status ": "delivered", "pause --sink ": "audit", "sinks move audit --to ": "default",
		"sinks forget ": "audit", "subscriptions remove ": "billing",
	} {
		r := e.run("", append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if !slices.Contains(strings.Split(r.out, "\n"), want) {
			t.Errorf("%q: offered %q, want %s among them", args, r.out, want)
		}
	}
	e.database = "postgres://u@" + silentServer(t) + "/d"
	began := time.Now()
	if e.ok("", "__complete", "events", "--topic", ""); time.Since(began) > 5*time.Second {
		t.Errorf("a silent server keeps a shell waiting for %s", time.Since(began))
	}
}

// A shell is offered the values of flags that have few, in every command.
func TestCompletion(t *testing.T) {
	t.Parallel()
	e := env{t: t}
	for args, want := range map[string]string{
		"events --table ":          "event_outbox",
		"relay --sink ":            "kafka:",
		"lanes --by ":              "tenant",
		"migrate up --set ":        "crawl",
		"migrate export --format ": "goose",
		"serve --auth ":            "none",
		"dlq list -o ":             "json",
		"config validate --for ":   "relay",
		"doctor --only ":           "events",
		"dlq list --state ":        "discarded",
		"runs list --status ":      "FAILED",
	} {
		command := append([]string{"__complete"}, strings.Split(args, " ")...)
		if r := e.run("", command...); r.code != 0 || !slices.Contains(strings.Split(r.out, "\n"), want) {
			t.Errorf("%q: offered %q, want %s among them", args, r.out, want)
		}
	}
}
