package chaos

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// fault is one line of the table.
type fault struct {
	name     string
	postgres *testenv.PostgresConfig // of a server of its own; nil shares one, where the fault is not the server's
	redis    []string                // further arguments of its Redis
	broker   func(*world) *broker    // of another sink than Redis Pub/Sub
	root     bool                    // only root can bring it about
	heavy    bool                    // see TestChaos
	load     load
	// How long an acknowledged event may take; 0 where it depends on how long the test lets the
	// fault last.
	maxAge time.Duration
	strike func(*world) (struck int)
}

// How soon everything must be served again: within the lease time and 2 s. When a broker is tried
// again does not depend on the lease time, so after its outages the default of 10 s counts.
const (
	takeOver = ttl + 2*time.Second
	outage   = 12 * time.Second
)

// faults are the tables that TestChaos runs.
var faults = [][]fault{
	sinkFaults, stuckFaults, relayFaults, logFaults, postgresFaults, redisFaults, producerFaults, payloadFaults,
	tenantFaults,
	scaleFaults, timeFaults, redisMoreFaults, letterFaults, poolerFaults,
}

// core are the faults that every `make test` strikes: each process, each kind of server and each
// promise at least once. All of them together would take longer than all other tests.
var core = []string{
	"relay-killed-after-publish", "relay-stopped-after-publish", "relay-terminated-under-load",
	"settle-refused-by-trigger", "settle-refused", "row-locked-by-operator", "one-table-under-two-names",
	"occurred-at-year-294276",
	"relay-killed-after-publish-log", "postgres-failover-to-lagging-log", "sink-refuses-keys-log", "postgres-killed",
	"redis-killed", "redis-reply-lost", "pooler-transaction-mode",
	"sqlite-kills", "sqlite-file-replaced", "sqlite-wal-deleted",
	"stream-redis-killed", "gateway-killed", "crawl-worker-killed", "run-channel-forged-publish",
	"killed-unsettled-redisstream", "killed-unsettled-natsjs", "killed-unsettled-kafka", "killed-unsettled-pgtable",
	"killed-unsettled-webhook",
}

var leftOut atomic.Int32 // the faults that this run does not strike

// left tells whether a fault is left to `make chaos`.
func left(name string) bool {
	if *all || slices.Contains(core, name) {
		return false
	}
	leftOut.Add(1)
	return true
}

// row strikes a fault in a test of its own, unless it is left to `make chaos` or takes root.
func row(t *testing.T, name string, root bool, strike func(*testing.T)) {
	if left(name) {
		return
	}
	if root && os.Getuid() != 0 {
		fmt.Printf("%-28s not run: it takes root\n", name)
		return
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		strike(t)
	})
}

// line prints the line of a fault: how often it struck, what there is to say about it, and how long
// it took.
func line(t *testing.T, name string, struck int, began time.Time, about string, args ...any) {
	t.Helper()
	if struck == 0 {
		t.Error("the fault never struck")
	}
	fmt.Printf("%-28s struck %4d  %s  (%.0f s)%s\n", name, struck, fmt.Sprintf(about, args...),
		time.Since(began).Seconds(), map[bool]string{true: "  FAILED"}[t.Failed()])
}

// TestChaos runs the table. Each fault is struck while producers write; then it is healed, and
// everything must drain and compare. Of heavy ones, whose single event takes seconds of a
// processor, two at once would strike each other more than their sinks: they wait for one another.
func TestChaos(t *testing.T) {
	t.Parallel()
	var heavy sync.Mutex
	for _, table := range faults {
		for _, f := range table {
			row(t, f.name, f.root, func(t *testing.T) {
				if f.heavy {
					heavy.Lock()
					defer heavy.Unlock()
				}
				w := newWorld(t, f)
				struck := f.strike(w)
				w.finish(f.name, struck)
			})
		}
	}
}

// A name that is used twice would be run as name#01, and nobody would find it in
// docs/reference/guarantees.md.
func TestFaultsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, table := range faults {
		for _, f := range table {
			if seen[f.name] {
				t.Errorf("two faults are called %s", f.name)
			}
			seen[f.name] = true
		}
	}
	for _, f := range slices.Concat(streamFaults, forgeries) {
		seen[f.name] = true
	}
	for _, name := range core {
		if !seen[name] && !strings.HasPrefix(name, "sqlite") { // whose table is within its test
			t.Errorf("core names the fault %s, which there is not", name)
		}
	}
}
