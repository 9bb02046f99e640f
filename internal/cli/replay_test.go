package cli_test

import (
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
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
	for _, step := range []struct {
		args, says string
		code       int
	}{
		{"replay", "--since", 2},
		{"replay --since yesterday", "--since", 2},
		{"replay --since 1h --topic ", "--topic is empty", 2},
		{"replay --since 1h --table crawl_outbox --destination x", "no destinations of their own", 2},
		{"replay --since 1h", "no delivered events of outbox_events are chosen, looked for since 1h", 0},
	} {
		r := e.run("", strings.Split(step.args, " ")...)
		if r.code != step.code || !strings.Contains(r.out+r.err, step.says) {
			t.Errorf("outbox %s: exit code %d, want %d, and %q in\n%s%s", step.args, r.code, step.code, step.says, r.out, r.err)
		}
	}
	deliver()
	time.Sleep(10 * time.Millisecond)
	contains(t, e.ok("", "replay", "--since", "1h"),
		"1200 events of outbox_events would be delivered again, 0 of them from the archive")
	contains(t, e.ok("", "replay", "--since", "1h", "--topic", "none.*", "-o", "json"), `"events": 0`, `"dryRun": true`)
	if n := back(); n != 0 {
		t.Fatalf("a dry run put %d back", n)
	}
	// Interrupted, it says how to go on, and all are put back once.
	slow := e.start("replay", "--since", "1h", "--rate", "40", "--yes", "--reason", "index lost")
	for start := time.Now(); back() < 20 && time.Since(start) < patience; time.Sleep(20 * time.Millisecond) {
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
	audit := e.ok("", "dlq", "audit", "--action", "replay")
	if n := strings.Count(audit, "index lost"); n != 2 {
		t.Errorf("want a line for each of two commands:\n%s", audit)
	}
}
