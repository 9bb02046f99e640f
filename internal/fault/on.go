//go:build fault

package fault

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Enabled tells whether the points are compiled in.
const Enabled = true

var (
	mu   sync.Mutex
	hits = map[Point]int{}
)

// Hit counts that p was reached and strikes if OUTBOX_FAULT says so.
func Hit(p Point) {
	mu.Lock()
	hits[p]++
	n := hits[p]
	mu.Unlock()
	for entry := range strings.SplitSeq(os.Getenv("OUTBOX_FAULT"), ",") {
		f := strings.Split(entry, ":")
		if len(f) != 3 || Point(f[0]) != p {
			continue
		}
		if at, err := strconv.Atoi(f[1]); err != nil || at != n {
			continue
		}
		switch f[2] {
		case "kill":
			kill(entry)
		case "stop":
			fmt.Fprintf(os.Stderr, "fault: %s struck\n", entry)
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
			time.Sleep(50 * time.Millisecond) // the signal is on its way to this thread
		}
	}
}

// Publishing kills the process if the event with this id is the poison.
func Publishing(id string) {
	if id == os.Getenv("OUTBOX_FAULT_POISON") {
		kill("poison")
	}
}

func kill(what string) {
	fmt.Fprintf(os.Stderr, "fault: %s struck\n", what)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
