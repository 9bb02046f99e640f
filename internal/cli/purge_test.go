package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox/internal/testenv"
	"github.com/outboxrelay/outbox/retention"
)

// withOldRows returns a database where each table has one row to remove after the default time, and one of every kind that stays.
func withOldRows(t *testing.T) env {
	t.Helper()
	e := migrated(t)
	exec1(e, `INSERT INTO outbox_events (event_topic, occurred_at, source_bc, payload, status, created_at, processed_at)
		SELECT 't', now(), 'bc', '{"a": 1}', s, now() - a, now() - a FROM unnest(ARRAY['SENT', 'DEAD']) s, unnest(ARRAY[interval '6 days', '8 days']) a`)
	exec1(e, `INSERT INTO event_outbox (app_id, event_id, event_type, payload, status, published_at)
		SELECT id, gen_random_uuid(), 't', '{}', s, now() - interval '8 days' FROM apps, unnest(ARRAY['published', 'failed']) s`)
	exec1(e, `WITH r AS (INSERT INTO crawl_runs (app_package) VALUES ('p') RETURNING id)
		INSERT INTO crawl_outbox (crawl_id, event_type, payload, created_at, published_at) SELECT id, 't', '{}', now() - interval '9 days', p FROM r, unnest(ARRAY[now() - interval '8 days', now()]) p`)
	exec1(e, `INSERT INTO job_dlq (original_job_id, app_id, type, payload, error_reason, attempts, error_history, replayed_at)
		SELECT gen_random_uuid(), id, 't', '{}', 'Panic', 1, '[]', r FROM apps, unnest(ARRAY[NULL, now() - interval '29 days', now() - interval '31 days']) r`)
	return e
}

const rowCounts = `SELECT concat_ws(' ', (SELECT count(*) FROM outbox_events), (SELECT count(*) FROM event_outbox), (SELECT count(*) FROM crawl_outbox),
	(SELECT count(*) FROM job_dlq), (SELECT count(*) FROM outbox_archive))`

func TestPurge(t *testing.T) {
	t.Parallel()
	e := withOldRows(t)
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
		}
		reports := decode[[]retention.Report](t, e.ok("", args...))
		if got := strings.Join(all(reports), ", "); got != want || reports[0].DryRun != dry {
			t.Errorf("got %s, want %s", got, want)
		}
		if got := query[string](e, rowCounts); got != left {
			t.Errorf("dry run %v: there are %s rows, want %s", dry, got, left)
		}
	}
	if got := query[string](e, "SELECT string_agg(action || ' ' || letters || ' ' || (filter->>'table') || ' ' || (filter->>'older_than') || ' ' || (detail->>'action'), ', ' ORDER BY at) FROM outbox_audit WHERE actor LIKE '%@%'"); got !=
		"purge 1 outbox_events 168h0m0s archived, purge 1 event_outbox 168h0m0s deleted, purge 1 crawl_outbox 168h0m0s archived, purge 1 job_dlq 720h0m0s deleted" {
		t.Errorf("outbox_audit has: %s", got)
	}

	// The younger ones, into files, and by the settings of the environment.
	e.extra = []string{"OUTBOX_ARCHIVE=" + t.TempDir(), "OUTBOX_RETENTION=120h"}
	dir := strings.TrimPrefix(e.extra[0], "OUTBOX_ARCHIVE=")
	out := e.ok("", "purge", "--table", "outbox_events,crawl_outbox")
	names, err := filepath.Glob(filepath.Join(dir, "outbox_events-*.jsonl.gz"))
	if err != nil || len(names) != 1 {
		t.Fatalf("files %v, error %v, want one", names, err)
	}
	contains(t, out, names[0], "outbox_events", "archived")
	if got := query[string](e, rowCounts); got != "2 1 1 2 2" {
		t.Errorf("there are %s rows", got)
	}
	contains(t, e.ok("", "purge", "--table", "job_dlq", "--older-than", "1h", "--dry-run"), "would be deleted")
}

func TestPurgeRefuses(t *testing.T) {
	t.Parallel()
	e := withOldRows(t)
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
		if r := e.run("", append([]string{"purge"}, c.args...)...); r.code != c.code || !strings.Contains(r.err, c.says) {
			t.Errorf("%v: exit code %d, want %d\n%s", c.args, r.code, c.code, r.err)
		}
	}
	exec1(e, "DROP TABLE event_outbox")
	contains(t, e.ok("", "purge", "--dry-run"), "crawl_outbox") // what is not there is left out
	if r := e.run("", "purge", "--table", "event_outbox"); r.code != 1 {
		t.Errorf("exit code %d for a table that does not exist\n%s", r.code, r.err)
	}
}

// A relay does the same by itself, and says so.
func TestRelayRetention(t *testing.T) {
	t.Parallel()
	e := withOldRows(t)
	e.redis = testenv.RedisServer(t).URL()
	// An archive directory that goes missing: deliveries are none of its business.
	dir := filepath.Join(t.TempDir(), "archive")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	p, url := e.relaying("--archive", dir, "--retention-every", "1s")
	for _, table := range []string{"outbox_events", "event_outbox", "crawl_outbox", "job_dlq"} {
		contains(t, p.await(p.err, `"removed old rows","table":"`+table+`"`), `"rows":1`)
	}
	if got := query[string](e, rowCounts); got != "3 1 1 2 0" {
		t.Errorf("there are %s rows", got)
	}
	_, text := get(t, url+"/metrics")
	contains(t, text, `outbox_retention_rows_total{action="archived",table="outbox_events"} 1`, `outbox_retention_rows_total{action="deleted",table="job_dlq"} 1`,
		`outbox_retention_failures_total{table="crawl_outbox"} 0`, `outbox_retention_last_run_timestamp_seconds{table="event_outbox"}`)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	exec1(e, "UPDATE outbox_events SET processed_at = now() - interval '8 days' WHERE status = 'SENT'")
	exec1(e, "UPDATE outbox_maintenance SET swept_at = NULL")
	contains(t, p.await(p.err, "cannot remove old rows"), "no such file")
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if owners := query[int](e, "SELECT count(owner) FROM outbox_maintenance"); owners != 0 {
		t.Errorf("%d tables are still held", owners)
	}
}
