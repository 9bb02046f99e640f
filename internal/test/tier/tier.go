// Package tier selects which tests run, and how long a test waits.
//
// There are three tiers. Each contains the one before it:
//
//	test   every package, one real server of each kind, eight faults with kills; `make test`
//	full   traces, plans at 100,000 rows, poolers, the race detector everywhere; `make test-full`
//	all    every fault, installation, clients, long storms; `make test-all`
//
// A test belongs to the tier "test" unless its first statement, or the first statement of its
// subtest, is [Full] or [All]. Nothing else states a tier. internal/arch counts these statements.
//
// The environment variable OUTBOX_TEST_TIER names the tier of a run. If it is empty, as in a plain
// `go test ./...`, the tier is "test" and a test whose server is not installed is skipped. If it is
// set, such a test fails.
package tier

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// Variable is the environment variable that names the tier of a run: test, full or all.
const Variable = "OUTBOX_TEST_TIER"

// reportVariable names a file. Each skipped test appends a line to it: the reason and its name.
const reportVariable = "OUTBOX_TEST_SKIPPED"

var ranks = map[string]int{"": 0, "test": 0, "full": 1, "all": 2}

// Full marks a test of the tier "full". It skips t in the tier "test".
func Full(t testing.TB) {
	t.Helper()
	require(t, "full")
}

// All marks a test of the tier "all". It skips t in the tiers "test" and "full".
func All(t testing.TB) {
	t.Helper()
	require(t, "all")
}

// AllSelected reports whether this run is of the tier "all". Tests that have two sizes use it.
func AllSelected() bool { return os.Getenv(Variable) == "all" }

func require(t testing.TB, wanted string) {
	t.Helper()
	if !includes(t, wanted) {
		Skip(t, "tier "+wanted, fmt.Sprintf("runs in the tier %q; set %s=%s", wanted, Variable, wanted))
	}
}

func includes(t testing.TB, wanted string) bool {
	t.Helper()
	rank, known := ranks[os.Getenv(Variable)]
	if !known {
		t.Fatalf("invalid %s=%q: want test, full or all", Variable, os.Getenv(Variable))
	}
	return rank >= ranks[wanted]
}

var missing sync.Map // the problems of Missing that this process has printed

// Missing ends a test that needs a program that is not installed: problem names the program and the
// command that installs it. The test is skipped in a plain `go test ./...`, and fails if a tier was
// selected. The first test of a process that is skipped for a program prints a line, which go test
// shows with -v or if the package fails.
func Missing(t testing.TB, problem error) {
	t.Helper()
	if os.Getenv(Variable) != "" {
		t.Fatal(problem)
	}
	if _, said := missing.LoadOrStore(problem.Error(), true); !said {
		fmt.Printf("tests are skipped: %v\n", problem)
	}
	Skip(t, "missing program", problem.Error())
}

// Skip skips t and records that in the report of the run. kind is the same for all tests that are
// skipped for one reason.
func Skip(t testing.TB, kind, message string) {
	t.Helper()
	if path := os.Getenv(reportVariable); path != "" {
		report, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatalf("record a skipped test: %v", err)
		}
		_, err = fmt.Fprintf(report, "%s\t%s\n", kind, t.Name())
		if closeErr := report.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			t.Fatalf("record a skipped test: %v", err)
		}
	}
	t.Skip(message)
}

// Limits of Patience.
const (
	quickPatience  = 30 * time.Second // in the tier "test"
	longPatience   = 5 * time.Minute  // in the tiers "full" and "all"
	longestStretch = 10
)

// Patience returns how long a test waits for a state that must come. It is 30 s in the tier "test",
// multiplied by the number of processes per processor on a busy machine, and at most 5 minutes.
// It ends a test that waits in vain; it does not state how fast a machine must be.
func Patience() time.Duration {
	if rank := ranks[os.Getenv(Variable)]; rank > 0 {
		return longPatience
	}
	return min(longPatience, time.Duration(float64(quickPatience)*min(longestStretch, busyness())))
}

// busyness returns how many processes compete for each processor, at least 1. It is 1 where the
// system does not tell.
func busyness() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 1
	}
	var minute, five, fifteen float64
	var running, total int
	if _, err := fmt.Sscanf(string(text), "%f %f %f %d/%d", &minute, &five, &fifteen, &running, &total); err != nil {
		return 1
	}
	return max(1, max(minute, float64(running))/float64(runtime.NumCPU()))
}
