package cli_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// redisCommand runs one command, in Redis's inline protocol.
func redisCommand(t *testing.T, redis *testenv.Redis, command string) {
	t.Helper()
	conn, err := net.Dial("unix", redis.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "%s\r\n", command)
	if reply, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(reply, "+OK") {
		t.Fatalf("%s: %q, error %v", command, reply, err)
	}
}

type dlqPage struct {
	Items []struct {
		ID, State, Key, Reason, Fingerprint string
		OriginalID                          string `json:"originalId"`
		LastError                           string `json:"lastError"`
		Attempts                            int
	}
	NextCursor string
}

// The whole story: a channel is refused, its events die, somebody looks, removes the cause, mends
// one payload, replays, and all arrive once under their ids.
func TestDeadLettersEndToEnd(t *testing.T) { onStores(t, testDeadLettersEndToEnd) }

func testDeadLettersEndToEnd(t *testing.T, e env) {
	redis := testenv.RedisServer(t)
	e.redis = redis.URL()
	redisCommand(t, redis, "ACL SETUSER relay on >secret ~* +@all resetchannels &open")
	relaying := e
	relaying.redis = "redis://relay:secret@" + redis.Addr()
	relay, _ := relaying.relaying("--max-attempts", "2", "--backoff-base", "10ms")
	tail := e.start("tail", "shop.*", "-o", "json")
	tail.await(tail.err, "subscribed")

	var ids []string
	for i := range 5 {
		ids = append(ids,
			strings.TrimSpace(e.ok(fmt.Sprintf(`{"n": %d}`, i), "write", "--topic", "order.placed", "--destination",
				"shop.orders", "--aggregate-type", "Order", "--key", "42")))
	}
	e.eventually("the events die", func() bool { return query[int](e, `SELECT count(*) FROM job_dlq`) >= 5 })

	page := decode[dlqPage](t, e.ok("", "dlq", "list", "--table", "outbox_events", "--error", "CHANNEL", "-o", "json"))
	if len(page.Items) != 5 || page.Items[4].OriginalID != ids[0] || page.Items[0].Attempts != 2 ||
		page.Items[0].Reason != "DeliveryFailed" || page.Items[0].Key != "42" {
		t.Fatalf("listed %+v", page)
	}
	letter := func(event string) string {
		return query[string](e, `SELECT CAST(id AS text) FROM job_dlq WHERE original_job_id = $1`, event)
	}
	contains(t, e.ok("", "dlq", "list", "--key", "42", "--since", "1h"), "DIED", "pending", "shop.orders",
		"DeliveryFailed", page.Items[0].ID)
	contains(t, e.ok("", "dlq", "stats"), "5 pending, 0 replayed, 0 discarded", page.Items[0].Fingerprint)
	contains(t, e.ok("", "dlq", "show", ids[0]), "event id", ids[0], `{"n": 0}`, "error history", letter(ids[0]))
	contains(t, e.ok("", "dlq", "replay", letter(ids[3]), "--dry-run"), "1 dead letter will be replayed",
		"an earlier letter of the key is not among these: 42", "same event id")
	preview := decode[struct {
		Letters int
		Tables  []struct{ Stuck int }
	}](t, e.ok("", "dlq", "replay", "--all", "--dry-run", "-o", "json"))
	if preview.Letters != 5 || preview.Tables[0].Stuck != 0 {
		t.Errorf("dry run %+v", preview)
	}
	if n := query[int](e, `SELECT count(*) FROM outbox_audit`); n != 0 {
		t.Errorf("%d actions are recorded before anybody did anything", n)
	}

	redisCommand(t, redis, "ACL SETUSER relay &shop.orders")
	fixed := filepath.Join(t.TempDir(), "fixed.json")
	if err := os.WriteFile(fixed, []byte(`{"n": "zero"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.ok("", "dlq", "discard", letter(ids[4]), "--yes", "--reason", "test data", "--actor", "me")
	e.ok("", "dlq", "replay", letter(ids[0]), "--payload", fixed, "--yes", "--actor", "me", "--reason", "n was a number")
	r := e.run("", "dlq", "replay", "--fingerprint", page.Items[0].Fingerprint, "--rate", "20", "-y")
	if r.code != 0 {
		t.Fatalf("replay: %s%s", r.out, r.err)
	}
	contains(t, r.out, "replayed 3 letters, skipped 0")
	contains(t, r.err, "outbox events --table outbox_events")
	if again := e.ok("", "dlq", "replay", "--all", "-y", "-o", "json"); decode[struct{ Replayed, Skipped int }](t,
		again).Replayed != 0 {
		t.Errorf("replayed again: %s", again)
	}

	tail.await(tail.out, `"n":3`)
	time.Sleep(300 * time.Millisecond) // for a copy too many
	var got []string
	for _, line := range tail.out.lines() {
		m := decode[struct{ Message struct{ ID string } }](t, line)
		got = append(got, m.Message.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(ids[:4]) {
		t.Errorf("received %v, want %v", got, ids[:4])
	}
	contains(t, tail.out.String(), `"n":"zero"`)

	audit := e.ok("", "audit")
	contains(t, audit, "discard", "test data", "n was a number", "me", page.Items[0].Fingerprint, "@")
	actions := decode[listOf[struct{ Action string }]](t, e.ok("", "audit", "--action", "discard", "-o", "json"))
	if len(actions.Items) != 1 {
		t.Errorf("got %+v", actions)
	}
	contains(t, e.ok("", "dlq", "list", "--state", "discarded"), letter(ids[4]))
	e.says(0, "dlq purge --older-than 0s --discarded --dry-run", "5 dead letters will be deleted")
	contains(t, e.ok("", "dlq", "purge", "--yes", "--older-than", "0s"), "deleted 4 letters")
	relay.signal(syscall.SIGTERM)
	relay.wait()

	e.ok(`1`, "write", "--topic", "order.placed")
	exec1(e, `UPDATE outbox_events SET status = 'DEAD' WHERE status = 'NEW'`)
	contains(t, e.ok("", "dlq", "collect", "--table", "outbox_events", "--reason", "by hand"), "wrote 1 letter")
	contains(t, e.ok("", "dlq", "list", "--error", "set dead by hand"), "order.placed")
	contains(t, e.ok("", "dlq", "collect"), "wrote 0 letters")
	if r := e.run("", "dlq", "list", "--request-id", "7"); r.code != 2 || !strings.Contains(r.err, "want a UUID") {
		t.Errorf("--request-id 7: %+v", r)
	}
	if r := e.run("", "dlq", "list", "--request-id", uuid.NewString()); r.code != 0 ||
		!strings.Contains(r.err, "no such dead letters") {
		t.Errorf("--request-id of nobody: %+v", r)
	}
}

// jobsDied writes the letters of n jobs.
func (e env) jobsDied(n int) {
	e.t.Helper()
	for range n {
		exec1(e, `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history)
			VALUES ($1, (SELECT id FROM apps), 'mail', '{}', 'Panic', 1, '[{"error": "E\n"}]')`, uuid.NewString())
	}
}

func TestDeadLetterPagesAndSkips(t *testing.T) { onStores(t, testDeadLetterPagesAndSkips) }

func testDeadLetterPagesAndSkips(t *testing.T, e env) {
	e.jobsDied(12)
	seen, after := map[string]bool{}, []string{}
	for range 3 {
		p := decode[dlqPage](t, e.ok("", append([]string{"dlq", "list", "--limit", "5", "-o", "json"}, after...)...))
		for _, l := range p.Items {
			seen[l.ID] = true
		}
		after = []string{"--after", p.NextCursor}
		if len(seen) == 12 != (p.NextCursor == "") {
			t.Errorf("next is %q after %d letters", p.NextCursor, len(seen))
		}
	}
	if len(seen) != 12 {
		t.Errorf("the pages have %d letters, want 12", len(seen))
	}
	table := e.run("", "dlq", "list", "--limit", "5", "--source", "job", "--error-reason", "Panic")
	contains(t, table.out, "(job)", `"E\n"`)
	contains(t, table.err, "--after ")
	r := e.run("", "dlq", "replay", "--source", "job", "--yes")
	if r.code != 1 || !strings.Contains(r.out, "12 skipped") || !strings.Contains(r.out, "program that runs the jobs") ||
		!strings.Contains(r.err, "none of the letters could be replayed") {
		t.Errorf("replay of jobs: exit code %d\n%s%s", r.code, r.out, r.err)
	}
	if r := e.run("", "dlq", "show", uuid.NewString()); r.code != 1 ||
		!strings.Contains(r.err, "outbox dlq list --state all") {
		t.Errorf("an unknown letter: exit code %d\n%s", r.code, r.err)
	}
	if r := e.empty().run("", "dlq", "list"); r.code != 1 ||
		!strings.Contains(r.err, e.or("outbox migrate up --set core", "outbox migrate up")) {
		t.Errorf("no tables: exit code %d\n%s", r.code, r.err)
	}
	if e.onFile() {
		return // which has no roles
	}
	// A role that no policy lets see letters must not be told that there are none.
	exec1(e, `DO $$ BEGIN CREATE ROLE dlq_nobody LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
	exec1(e, `GRANT SELECT ON job_dlq, outbox_audit, apps TO dlq_nobody`)
	nobody := e
	nobody.database = strings.Replace(e.database, "postgres://postgres@", "postgres://dlq_nobody@", 1)
	for _, args := range [][]string{{"list"}, {"stats"}, {"show", uuid.NewString()}, {"replay", "--all", "--yes"},
		{"purge", "--yes"}} {
		if r := nobody.run("", append([]string{"dlq"}, args...)...); r.code != 1 ||
			!strings.Contains(r.err, "row-level security") || !strings.Contains(r.err, "outbox_operator") || r.out != "" {
			t.Errorf("%v without a policy: exit code %d\n%s%s", args, r.code, r.out, r.err)
		}
	}
	exec1(e, `DROP OWNED BY dlq_nobody`)
}

// What a script leaves empty must not choose more than it meant, and what it names in vain is not a
// success.
func TestDeadLetterEmptyValues(t *testing.T) { onStores(t, testDeadLetterEmptyValues) }

func testDeadLetterEmptyValues(t *testing.T, e env) {
	e.jobsDied(3)
	empty := filepath.Join(t.TempDir(), "fixed.json")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"discard", "--yes", "--topic", "mail", "--key", "", "--reason", "x"}, 2, "--key is empty"},
		{[]string{"replay", "--tenant", "", "--dry-run"}, 2, "--tenant is empty"},
		{[]string{"list", "--table", ""}, 2, "--table is empty"},
		{[]string{"purge", "--yes", "--tenant", ""}, 2, "--tenant is empty"},
		{[]string{"replay", uuid.NewString(), "--payload", empty, "--yes"}, 2, "is empty"},
		{[]string{"discard", uuid.NewString(), "--yes", "--reason", "x"}, 1, "1 of 1 letter not discarded"},
	} {
		if r := e.run("", append([]string{"dlq"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit code %d, want %d and %q\n%s%s", c.args, r.code, c.code, c.says, r.out, r.err)
		}
	}
	if n := query[int](e, "SELECT count(*) FROM job_dlq WHERE discarded_at IS NULL AND replayed_at IS NULL"); n != 3 {
		t.Errorf("%d letters are left as they were, want 3", n)
	}
}

func TestDeadLetterUsage(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: "postgres://127.0.0.1:1/none"}
	id := uuid.NewString()
	for args, says := range map[string]string{
		"":                                      "list, show, stats",
		"list --limit 0":                        "--limit",
		"list --since yesterday":                "--since",
		"list --since -5m":                      "--since",
		"list surplus":                          "surplus",
		"show 7":                                "UUID",
		"stats --until x":                       "--until",
		"replay":                                "--yes",
		"replay --yes":                          "--all",
		"replay --all":                          "--yes",
		"replay 7 --yes":                        "UUID",
		"replay --all --topic t --yes":          "contradict",
		"replay " + id + " --topic t --yes":     "contradict",
		"replay --all --discarded --yes":        "--discarded",
		"replay --all --payload f --yes":        "--payload",
		"replay " + id + " --payload -":         "--yes",
		"replay --all --rate -1 --yes":          "--rate",
		"replay --all --dedup-window -1s --yes": "--dedup-window",
		"discard":                               "--yes",
		"discard --yes":                         "--all",
		"purge --older-than soon --yes":         "--older-than",
	} {
		r := e.run("", append([]string{"dlq"}, strings.Fields(args)...)...)
		if r.code != 2 || r.out != "" || !strings.Contains(r.err, says) || !strings.Contains(r.err, "--help") {
			t.Errorf("outbox dlq %s: exit code %d, want 2 and %q:\n%s%s", args, r.code, says, r.out, r.err)
		}
	}
	real := migrated(t)
	for args, says := range map[string]string{
		"discard --all --yes": "--reason is required",
		"list --state dead":   "pending, replayed, discarded",
		"list --source mail":  "job, event",
		"list --after 7":      "after",
	} {
		real.says(2, "dlq "+args, says)
	}
	real.says(2, "audit --after 7", "after")
	e.says(2, "audit --limit 0", "--limit")
	e.says(2, "audit --since x", "--since")
}

// Every list is one shape for programs, an empty one too. An id that names nothing is a failure, a
// filter that matches nothing is not.
func TestListsAreOneShape(t *testing.T) {
	tier.Full(t)
	onStores(t, testListsAreOneShape)
}

func testListsAreOneShape(t *testing.T, e env) {
	const empty = "{\n  \"items\": [],\n  \"nextCursor\": null\n}\n"
	for _, command := range []string{"events", "events --key none", "dlq list",
		"dlq list --fingerprint 000000000000", "audit",
		"token list", "pauses"} {
		if got := e.ok("", append(strings.Fields(command), "-o", "json")...); got != empty {
			t.Errorf("outbox %s prints %s", command, got)
		}
	}
	contains(t, e.ok("", "dlq", "stats", "-o", "json"), `"groups": []`)
	contains(t, e.ok("", "migrate", "status", "-o", "json"), `"items": [`, `"nextCursor": null`)
	const nothing = "01890a5d-ac96-774b-bcce-b302099a8057"
	for command, code := range map[string]int{
		"events show " + nothing: 1, "events retry " + nothing: 1, "events skip --dry-run " + nothing: 1,
		"dlq show " + nothing:         1,
		"dlq replay --yes " + nothing: 1, "dlq discard --yes --reason r " + nothing: 1, "token revoke --yes aaaaaaaaaaaa": 1,
		"events retry --key none": 0, "events skip --dry-run --key none": 0, "replay --dry-run --since 1h --key none": 0,
		"dlq replay --yes --fingerprint 000000000000": 0, "dlq discard --yes --reason r --fingerprint 000000000000": 0,
		"events --key none": 0,
	} {
		if r := e.run("", strings.Fields(command)...); r.code != code || r.out+r.err == "" {
			t.Errorf("outbox %s: exit code %d, want %d, and a word about it:\n%s%s", command, r.code, code, r.out, r.err)
		}
	}
}

// An empty list says whether it is empty because of a filter.
func TestNothingListed(t *testing.T) {
	t.Parallel()
	e := env{t: t, database: "sqlite:" + filepath.Join(t.TempDir(), "outbox.db")}
	e.ok("", "migrate", "up", "--set", "core,events,crawl")
	for command, says := range map[string]string{
		"dlq list":                    "no pending dead letters\n",
		"dlq list --state all":        "no dead letters\n",
		"dlq list --topic a":          "no such dead letters, looked for topic a\n",
		"events":                      "no events in outbox_events\n",
		"events --table crawl_outbox": "no events in crawl_outbox\n",
		"events --status NEW":         "no such events in outbox_events, looked for status NEW\n",
	} {
		if r := e.run("", strings.Fields(command)...); r.code != 0 || r.err != says {
			t.Errorf("%s: exit code %d: %q, want %q", command, r.code, r.err, says)
		}
	}
}
