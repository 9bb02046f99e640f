package chaos

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
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

// quick are the faults of the tier "test", beside TestGroupKilled: each kind of process is killed
// once, PostgreSQL and Redis too.
var quick = []string{
	"relay-killed-after-publish", "relay-terminated-under-load",
	"postgres-killed", "redis-killed", "gateway-killed", "crawl-worker-killed",
	"sqlite-kills",
}

// core are the further faults of the tier "full": each kind of server and each guarantee at least
// once. All other faults belong to the tier "all".
var core = []string{
	"relay-killed-after-publish-log", "redis-reply-lost",
	"relay-stopped-after-publish", "settle-refused-by-trigger", "settle-refused", "row-locked-by-operator",
	"one-table-under-two-names", "occurred-at-year-294276", "postgres-failover-to-lagging-log",
	"sink-refuses-keys-log", "pooler-transaction-mode", "sqlite-file-replaced", "sqlite-wal-deleted",
	"stream-redis-killed", "run-channel-forged-publish", "killed-unsettled-redisstream",
	"killed-unsettled-natsjs", "killed-unsettled-kafka", "killed-unsettled-pgtable", "killed-unsettled-webhook",
}

// inTier skips t unless the fault belongs to the tier of this run.
func inTier(t *testing.T, name string) {
	t.Helper()
	switch {
	case slices.Contains(quick, name):
	case slices.Contains(core, name):
		tier.Full(t)
	default:
		tier.All(t)
	}
}

// row strikes a fault in a test of its own.
func row(t *testing.T, name string, root bool, strike func(*testing.T)) {
	t.Run(name, func(t *testing.T) {
		inTier(t, name)
		if root && os.Getuid() != 0 {
			tier.Skip(t, "needs root", "needs root")
		}
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
	for _, name := range slices.Concat(quick, core) {
		if !seen[name] && !strings.HasPrefix(name, "sqlite") { // whose table is within its test
			t.Errorf("a tier names the fault %s, which does not exist", name)
		}
	}
}
