package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func TestReplayDelivered(t *testing.T) { onStores(t, testReplayDelivered) }

func testReplayDelivered(t *testing.T, e env) {
	e.ok(strings.Join(numbered(1200), "\n"), "write", "--jsonl", "--aggregate-type", "Order")
	deliver := func() {
		exec1(e, "UPDATE outbox_events SET status = 'SENT', processed_at = "+
			e.or("now()", "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')")+" WHERE status = 'NEW'")
	}
	back := func() int {
		return query[int](e, "SELECT count(*) FROM outbox_events WHERE status = 'NEW' AND generation = 1")
	}
	for _, step := range []step{
		{"replay --yes", "--since", 2},
		{"replay --since yesterday", "--since", 2},
		{"replay --dry-run --since 1h --topic ", "--topic is empty", 2},
		{"replay --dry-run --since 1h --table crawl_outbox --destination x", "no destinations of their own", 2},
		{"replay --dry-run --since 1h", "no delivered events of outbox_events are chosen, looked for since 1h", 0},
	} {
		r := e.run("", strings.Split(step.args, " ")...)
		if r.code != step.code || !strings.Contains(r.out+r.err, step.says) {
			t.Errorf("outbox %s: exit code %d, want %d, and %q in\n%s%s", step.args, r.code, step.code, step.says, r.out, r.err)
		}
	}
	deliver()
	time.Sleep(10 * time.Millisecond)
	contains(t, e.ok("", "replay", "--dry-run", "--since", "1h"),
		"1200 events of outbox_events will be delivered again, 0 of them from the archive")
	contains(t, e.ok("", "replay", "--dry-run", "--since", "1h", "--topic", "none.*", "-o", "json"), `"events": 0`, `"dryRun": true`)
	if n := back(); n != 0 {
		t.Fatalf("a dry run put %d back", n)
	}
	// Interrupted, it says how to go on, and all are put back once.
	slow := e.start("replay", "--since", "1h", "--rate", "40", "--yes", "--reason", "index lost")
	for start := time.Now(); back() < 20 && time.Since(start) < tier.Patience(); time.Sleep(20 * time.Millisecond) {
	}
	slow.signal(syscall.SIGINT)
	if code := slow.wait(); code != 1 {
		t.Errorf("interrupted: exit code %d, want 1", code)
	}
	first := back()
	until := regexp.MustCompile(`--until (\S+)`).FindStringSubmatch(slow.err.String())
	if until == nil || first < 20 || first >= 1200 {
		t.Fatalf("interrupted after %d:\n%s", first, slow.err)
	}
	deliver() // a relay's work
	contains(t, e.ok("", "replay", "--since", "1h", "--until", until[1], "--yes", "--reason", "index lost"), "put back")
	if n := query[int](e, "SELECT count(*) FROM outbox_events WHERE generation = 1"); n != 1200 {
		t.Errorf("%d of 1200 were put back once", n)
	}
	if n := back(); n != 1200-first {
		t.Errorf("the second run put %d back, want %d", n, 1200-first)
	}
	audit := e.ok("", "audit", "--action", "replay")
	if n := strings.Count(audit, "index lost"); n != 2 {
		t.Errorf("want a line for each of two commands:\n%s", audit)
	}
}

func daysAgo(days int) string {
	return time.Now().UTC().AddDate(0, 0, -days).Format("2006-01-02T15:04:05.000000Z")
}

// insertOldRows gives each table one row to remove after the default time, and one of every kind
// that stays.
func insertOldRows(e env) {
	e.t.Helper()
	for _, status := range []string{"SENT", "DEAD"} {
		for _, days := range []int{6, 8} {
			exec1(e, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, status, created_at, processed_at)
				VALUES ('t', $1, 'bc', '{"a": 1}', $2, $1, $1)`, daysAgo(days), status)
		}
	}
	for _, status := range []string{"published", "failed"} {
		exec1(e,
			`INSERT INTO event_outbox (app_id, event_id, event_type, payload, status, published_at) VALUES ((SELECT id FROM apps), $1, 't', '{}', $2, $3)`, uuid.NewString(), status, daysAgo(8))
	}
	run := uuid.NewString()
	exec1(e, `INSERT INTO crawl_runs (id, app_package) VALUES ($1, 'p')`, run)
	for _, days := range []int{8, 0} {
		exec1(e,
			`INSERT INTO crawl_outbox (crawl_id, event_type, payload, created_at, published_at) VALUES ($1, 't', '{}', $2, $3)`,
			run, daysAgo(9), daysAgo(days))
	}
	for _, replayed := range []any{nil, daysAgo(29), daysAgo(31)} {
		exec1(e, `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history, replayed_at)
			VALUES ($1, (SELECT id FROM apps), 't', '{}', 'Panic', 1, '[]', $2)`, uuid.NewString(), replayed)
	}
}

const rowCounts = `SELECT concat_ws(' ', (SELECT count(*) FROM outbox_events), (SELECT count(*) FROM event_outbox), (SELECT count(*) FROM crawl_outbox),
	(SELECT count(*) FROM job_dlq), (SELECT count(*) FROM outbox_archive))`

func TestPurge(t *testing.T) { onStores(t, testPurge) }

func testPurge(t *testing.T, e env) {
	insertOldRows(e)
	all := func(reports []retention.Report) (text []string) {
		for _, r := range reports {
			if r.Rows != 1 || !r.Sweep {
				t.Errorf("%+v: want one row of a whole table", r)
			}
			text = append(text, r.Table+" "+r.Action)
		}
		return text
	}
	const want = "outbox_events archived, event_outbox deleted, crawl_outbox archived, job_dlq deleted"
	for _, dry := range []bool{true, false} {
		args := []string{"purge", "-o", "json"}
		left := "3 1 1 2 2"
		if dry {
			args, left = append(args, "--dry-run"), "4 2 2 3 0"
		} else {
			args = append(args, "--yes")
		}
		reports := decode[listOf[retention.Report]](t, e.ok("", args...)).Items
		if got := strings.Join(all(reports), ", "); got != want || reports[0].DryRun != dry {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := query[string](e, rowCounts); got != left {
			t.Errorf("dry run %v: there are %s rows, want %s", dry, got, left)
		}
	}
	if got := query[string](e,
		"SELECT string_agg(action || ' ' || letters || ' ' || (filter->>'table') || ' ' || (filter->>'older_than') || ' ' "+
			"|| (detail->>'action'), ', ' ORDER BY at) FROM outbox_audit WHERE actor LIKE '%@%'"); got !=
		"purge 1 outbox_events 168h0m0s archived, purge 1 event_outbox 168h0m0s deleted, purge 1 crawl_outbox 168h0m0s "+
			"archived, purge 1 job_dlq 720h0m0s deleted" {
		t.Errorf("outbox_audit has: %s", got)
	}

	// The younger ones, into files, and by the settings of the environment.
	e.extra = []string{"OUTBOX_ARCHIVE=" + t.TempDir(), "OUTBOX_RETENTION=120h"}
	dir := strings.TrimPrefix(e.extra[0], "OUTBOX_ARCHIVE=")
	out := e.ok("", "purge", "--yes", "--table", "outbox_events,crawl_outbox")
	names, err := filepath.Glob(filepath.Join(dir, "outbox_events-*.jsonl.gz"))
	if err != nil || len(names) != 1 {
		t.Fatalf("files %v, error %v, want one", names, err)
	}
	contains(t, out, names[0], "outbox_events", "archived")
	if got := query[string](e, rowCounts); got != "2 1 1 2 2" {
		t.Errorf("there are %s rows", got)
	}
	e.says(0, "purge --table job_dlq --older-than 1h --dry-run", "1 row of job_dlq will be deleted")
}

func TestPurgeRefuses(t *testing.T) { onStores(t, testPurgeRefuses) }

func testPurgeRefuses(t *testing.T, e env) {
	insertOldRows(e)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--older-than", "-1h"}, 2, "above zero"},
		{[]string{"--table", ""}, 2, "--table is empty"},
		{[]string{"--table", "nobody"}, 2, "no layout for table nobody"},
		{[]string{"--archive", "/no/such/directory"}, 2, "neither table nor none nor a directory"},
		{[]string{"--table", "outbox_events", "--retention", "0"}, 2, "--older-than"},
	} {
		r := e.run("", append([]string{"purge", "--yes"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit code %d, want %d\n%s", c.args, r.code, c.code, r.err)
		}
	}
	exec1(e, "DROP TABLE event_outbox")
	contains(t, e.ok("", "purge", "--dry-run"), "crawl_outbox") // what is not there is left out
	if r := e.run("", "purge", "--yes", "--table", "event_outbox"); r.code != 1 {
		t.Errorf("exit code %d for a table that does not exist\n%s", r.code, r.err)
	}
	if r := e.empty().run("", "purge", "--yes"); r.code != 1 || r.out != "" ||
		!strings.Contains(r.err, e.or("run: outbox migrate up", "outbox migrate up")) {
		t.Errorf("exit code %d for a database without tables\n%s%s", r.code, r.out, r.err)
	}
}

// A relay does the same by itself, and says so.
func TestRelayRetention(t *testing.T) { onStores(t, testRelayRetention) }

func testRelayRetention(t *testing.T, e env) {
	insertOldRows(e)
	e.redis = testenv.RedisServer(t).URL()
	dir := filepath.Join(t.TempDir(), "archive")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p, url := e.relaying("--archive", dir)
	for _, table := range []string{"outbox_events", "event_outbox", "crawl_outbox", "job_dlq"} {
		contains(t, p.await(p.err, `"removed old rows","table":"`+table+`"`), `"rows":1`)
	}
	if got := query[string](e, rowCounts); got != "3 1 1 2 0" {
		t.Errorf("there are %s rows", got)
	}
	_, text := get(t, url+"/metrics")
	contains(t, text, `outbox_retention_rows_total{action="archived",table="outbox_events"} 1`,
		`outbox_retention_rows_total{action="deleted",table="job_dlq"} 1`,
		`outbox_retention_failures_total{table="crawl_outbox"} 0`,
		`outbox_retention_last_run_timestamp_seconds{table="event_outbox"}`)
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// An archive directory that has gone missing: deliveries are none of its business. Under this
	// name it is still there when the settings are checked, and takes no files.
	missing, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = missing.Close() }() // it was only held
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	exec1(e, "UPDATE outbox_events SET processed_at = $1 WHERE status = 'SENT'", daysAgo(8))
	exec1(e, "UPDATE outbox_maintenance SET swept_at = NULL, ran_at = NULL")
	p, _ = e.relaying("--archive", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), missing.Fd()))
	contains(t, p.await(p.err, "cannot remove old rows"), "no such file")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if owners := query[int](e, "SELECT count(owner) FROM outbox_maintenance"); owners != 0 {
		t.Errorf("%d tables are still held", owners)
	}
}
