package chaos

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/testenv"
)

// fault is one line of the table.
type fault struct {
	name     string
	postgres *testenv.PostgresConfig // of a server of its own; nil shares one, where the fault is not the server's
	redis    []string                // further arguments of its Redis
	root     bool                    // only root can bring it about
	heavy    bool                    // for `make chaos`: too much of a machine that runs all tests
	load     load
	maxAge   time.Duration // how long an acknowledged event may take; 0 where it depends on how long the test lets the fault last
	strike   func(*world) (struck int)
}

// How soon everything must be served again: within the lease time and 2 s. When a broker is tried again does not depend on the lease time, so after its
// outages the default of 10 s counts.
const (
	takeOver = ttl + 2*time.Second
	outage   = 12 * time.Second
)

// faults are the tables that TestChaos runs.
var faults = [][]fault{
	stuckFaults, relayFaults, postgresFaults, redisFaults, producerFaults, payloadFaults, tenantFaults,
}

// further are those that only `make chaos` runs: with them the package would take longer than all other tests together.
var further = [][]fault{scaleFaults, timeFaults, redisMoreFaults, letterFaults, poolerFaults}

// onlyInChaos tells whether a test is left to `make chaos`, and says so.
func onlyInChaos(name string) bool {
	if !*long {
		fmt.Printf("%-28s not run: make chaos runs it\n", name)
	}
	return !*long
}

// TestChaos runs the table. Each fault is struck while producers write; then it is healed, and everything must drain and compare.
func TestChaos(t *testing.T) {
	t.Parallel()
	tables := faults
	if !onlyInChaos("five tables of faults more") {
		tables = slices.Concat(faults, further)
	}
	for _, table := range tables {
		for _, f := range table {
			if f.root && os.Getuid() != 0 {
				fmt.Printf("%-28s not run: it takes root\n", f.name)
				continue
			}
			if f.heavy && onlyInChaos(f.name) {
				continue
			}
			t.Run(f.name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, f)
				struck := f.strike(w)
				w.finish(f.name, struck)
			})
		}
	}
}

// A name that is used twice would be run as name#01, and nobody would find it in docs/guarantees.md.
func TestFaultsHaveNamesOfTheirOwn(t *testing.T) {
	seen := map[string]bool{}
	for _, table := range slices.Concat(faults, further) {
		for _, f := range table {
			if seen[f.name] {
				t.Errorf("two faults are called %s", f.name)
			}
			seen[f.name] = true
		}
	}
}
