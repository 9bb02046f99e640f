package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// The exit code is the worst that was found; every finding has a sentence, a remedy and a link.
// Nothing is written.
func TestDoctor(t *testing.T) { onStores(t, testDoctor) }

func testDoctor(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	// The servers of the tests, and what is on them, have these.
	e.says(0, "doctor --pre --skip OBX-004,obx-011,obx-015", "conditions checked")
	e.says(3, "doctor --only relays", "warning   OBX-030  no relay serves outbox_events; no event waits there",
		"do: start one: outbox relay",
		"conditions.md#obx-030-no-relay")
	e.ok("{}", "write", "--topic", "order.placed", "--key", "42")
	e.says(4, "doctor --only OBX-030", "critical  OBX-030  no relay serves outbox_events, where 1 event waits")
	e.says(4, "doctor --only OBX-030 -o "+
		"json", `"worst": "critical"`, `"severity": "critical"`, `"asked": 1`, `"unseen": []`)
	e.says(2, "doctor --only databases", `"databases" is neither a condition such as OBX-001 nor a category`)
	e.says(2, "doctor --watch 1ms", "want at least 1s")
	e.says(2, "doctor now", "unknown command")
}

// A canary goes the whole way, or verify says where it is; what no relay leaves behind is found.
func TestVerify(t *testing.T) { onStores(t, testVerify) }

func testVerify(t *testing.T, e env) {
	e.redis = testenv.RedisServer(t).URL()
	e.says(4, "verify --canary outbox.canary --within 1ms", "critical  OBX-052  the canary, event ",
		"is NEW in outbox_events")
	relay := e.start("relay", "--table", "outbox_events")
	relay.await(relay.err, "lanes held")
	e.says(0, "verify --canary outbox.canary --within 5m", "healthy")
	if e.onFile() {
		return // the other audits are of a server's tables
	}
	exec1(e, "UPDATE outbox_events SET processed_at = NULL")
	e.says(4, "verify -o json", `"id": "OBX-047"`, `"worst": "critical"`)
}

// What explains an event names what it waits for, and what an operator can do.
func TestWhy(t *testing.T) { onStores(t, testWhy) }

func testWhy(t *testing.T, e env) {
	e.redis = "redis://127.0.0.1:1"
	e.ok("{}", "write", "--topic", "order.placed", "--key", "42")
	id := query[string](e, "SELECT CAST(id AS text) FROM outbox_events")
	e.ok("", "pause", "--topic", "*", "--reason", "INC-4711")
	e.says(0, "why "+id, "event "+id, "is NEW in outbox_events", "has paused it since", "INC-4711", "no relay is "+
		"alive that serves",
		"by these settings it goes to default:")
	e.ok("", "resume", "--topic", "*")
	e.ok("", "events", "skip", id, "--yes", "--reason", "lost")
	e.says(0, "why "+id+" -o json", `"status": "DEAD"`, "it became dead letter", "that letter is pending: outbox "+
		"dlq replay")
	e.says(1, "why 0198c5a0-7f3e-7c11-8a55-2f6d1c0b9e42", "no table of the settings has event")
	e.says(2, "why yesterday", "--position")
	e.says(2, "why --position 1 --table nothing", "nothing")
}

// What remedies tell people to type is there.
func TestRemediesAreCommands(t *testing.T) {
	t.Parallel()
	e := env{t: t}
	commands := map[string]bool{}
	for _, c := range condition.Catalogue {
		for _, found := range regexp.MustCompile(`outbox ([a-z]+)( [a-z]+)?`).FindAllStringSubmatch(c.Remedy, -1) {
			commands[strings.TrimSpace(found[1])] = true
		}
	}
	help := e.ok("", "--help")
	for name := range commands {
		if !strings.Contains(help, "\n  "+name+" ") {
			t.Errorf("a remedy says outbox %s, and there is no such command", name)
		}
	}
	if len(commands) < 8 {
		t.Errorf("only %v were found", commands)
	}
}
