package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// While a sink is the cause, the first line of what an operator asks first says so, in the words of
// /readyz, and no longer than that. A relay that is well tells nothing.
func TestCauseIsTheFirstLine(t *testing.T) {
	tier.Full(t)
	onStores(t, testCauseFirst)
}

func testCauseFirst(t *testing.T, e env) {
	redis := testenv.RedisServer(t)
	e.redis = redis.URL()
	relay := e.start("relay", "--listen", "127.0.0.1:0", "--table", "outbox_events,crawl_outbox")
	relay.await(relay.err, "lanes held")
	first := func(command string) string {
		t.Helper()
		line, _, _ := strings.Cut(e.ok("", command), "\n")
		return line
	}
	told := func() string { return query[string](e, "SELECT CAST(count(health) AS text) FROM outbox_relays") }
	if line := first("lanes"); strings.Contains(line, "NOT READY") || told() != "0" {
		t.Errorf("a relay that is well has told something: %s", line)
	}
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	until := func(n string) {
		t.Helper()
		for start := time.Now(); told() != n; time.Sleep(50 * time.Millisecond) {
			if time.Since(start) > tier.Patience() {
				t.Fatalf("%s relays' rows tell of trouble, want %s", told(), n)
			}
		}
	}
	until("2") // a row a table
	for _, command := range []string{"lanes", "sinks", "events"} {
		line := first(command)
		if !strings.HasPrefix(line, "NOT READY: sink default: ") || !strings.Contains(line, "connect") ||
			!strings.Contains(line, "(relay ") || !strings.Contains(line, ", since 2") {
			t.Errorf("the first line of outbox %s is %q", command, line)
		}
	}
	contains(t, e.ok("", "lanes", "-o", "json"), `"troubles": [`, `"default": `)
	contains(t, e.ok("", "sinks", "-o", "json"), `"down": `)
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	until("0")
	if line := first("sinks"); strings.Contains(line, "NOT READY") {
		t.Errorf("the sink is back, and outbox sinks says %s", line)
	}
}

// What keeps a relay from telling is found by the command itself.
func TestReadOnlyDatabaseIsTheFirstLine(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := migrated(t)
	exec1(e, `DO $$ BEGIN
		EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database());
	END $$`)
	for _, command := range []string{"lanes", "sinks", "events"} {
		line, _, _ := strings.Cut(e.ok("", command), "\n")
		if !strings.HasPrefix(line, "NOT READY: the database is read-only") {
			t.Errorf("the first line of outbox %s is %q", command, line)
		}
	}
}

// Letters that no relay made are counted too, until they are dealt with.
func TestPendingLettersAreAMetric(t *testing.T) { onStores(t, testPendingLetters) }

func testPendingLetters(t *testing.T, e env) {
	e.jobsDied(3)
	e.redis = testenv.RedisServer(t).URL()
	first := query[string](e, "SELECT CAST(min(CAST(id AS text)) AS text) FROM job_dlq")
	e.ok("", "dlq", "discard", first, "--yes", "--reason", "r")
	_, url := e.relaying("--table", "outbox_events")
	for start := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, text := get(t, url+"/metrics")
		if strings.Contains(text, "outbox_dead_letters_pending") && strings.Contains(text,
			`id="OBX-041",severity="warning"} 1`) ||
			time.Since(start) > tier.Patience() {
			_, ready := get(t, url+"/readyz")
			contains(t, ready, `"id":"OBX-041"`, "2 dead letters of jobs are pending")
			contains(t, text, `outbox_condition{id="OBX-041",severity="warning"} 1`,
				`outbox_dead_letters_pending{source="event",table="outbox_events"} 0`,
				`outbox_dead_letters_pending{source="job",table=""} 2`)
			return
		}
	}
}
