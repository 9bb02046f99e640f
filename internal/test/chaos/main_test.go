package chaos

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9/logging"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// Settings of `make chaos` and `make soak`. Without them the core of the table runs, with its
// shortest times.
var (
	seed  = flag.Uint64("seed", 0, "seed of all choices; 0 chooses one")
	all   = flag.Bool("all", false, "strike all faults, and not the core alone")
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
	if n := leftOut.Load(); n > 0 {
		fmt.Printf("%d faults were not struck: make chaos strikes all\n", n)
	}
	_ = os.RemoveAll(binaryDir) // a temporary directory, or none
}

// choices returns the random choices of one test.
func choices(name string) *rand.Rand {
	h := fnv.New64()
	_, _ = h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(*seed, h.Sum64()))
}

var (
	binaryDir string
	makeDir   = sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "outbox-chaos-")
		binaryDir = dir
		return dir, err
	})
)

// binary builds the command once, with the fault points compiled in.
var binary = sync.OnceValues(func() (string, error) { return build("outbox") })

func build(name string, flags ...string) (string, error) {
	dir, err := makeDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	args := append([]string{"build", "-ldflags=-s -w", "-tags", "fault", "-o", path}, flags...)
	if out, err := exec.Command("go",
		append(args, "github.com/outboxrelay/outbox/cmd/outbox")...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, out)
	}
	return path, nil
}
