package chaos

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// Settings of `make chaos` and `make soak`. Without them the faults have their shortest times.
var (
	seed  = flag.Uint64("seed", 0, "seed of all choices; 0 chooses one")
	long  = flag.Bool("long", false, "let faults last for their full time, and with their full sizes")
	lasts = flag.Duration("soak", 0, "how long the soak lasts; 0: it does not run")
	rate  = flag.Int("rate", 0, "events a second that a log takes under a held snapshot; 0: it does not run")
	out   = flag.String("out", "snapshot-log", "file without its ending, to which that run writes JSON and a plot")
)

func TestMain(m *testing.M) {
	if file := os.Getenv(testenv.NATSVariable); file != "" {
		fmt.Fprintln(os.Stderr, serveNATS(file))
		os.Exit(1)
	}
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(play(role))
	}
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1_000_000)
	}
	fmt.Println("seed", *seed)
	logging.Disable() // go-redis writes lines of its own between those of the table
	testenv.AtOnce(3) // each has two relays, a subscriber and producers: five keep two processors busy
	testenv.Main(m)
}

// choices returns the random choices of one test.
func choices(name string) *rand.Rand {
	h := fnv.New64()
	_, _ = h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(*seed, h.Sum64()))
}

// binary builds the command once, with the fault points compiled in.
var binary = sync.OnceValues(func() (string, error) { return testenv.BuildCommand("-tags=fault") })
