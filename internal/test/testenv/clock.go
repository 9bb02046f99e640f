package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// clockLibraries are where packagers put libfaketime: Debian and Ubuntu, Red Hat, Arch.
var clockLibraries = []string{
	"/usr/lib/*/faketime/libfaketime.so.1", "/usr/lib64/faketime/libfaketime.so.1", "/usr/lib/faketime/libfaketime.so.1",
}

// ownClock gives the programs that s starts from now on a wall clock that SetClock moves. Their
// monotonic clock and timers stay right, as on a machine whose clock is set.
func (s *server) ownClock() error {
	for _, pattern := range clockLibraries {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return fmt.Errorf("find libfaketime: %w", err)
		}
		if len(found) > 0 {
			// Without the cache a jump is seen at once.
			s.env = append(s.env, "LD_PRELOAD="+found[0], "FAKETIME_TIMESTAMP_FILE="+s.clockPath(),
				"FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1")
			return s.setClock(0)
		}
	}
	return fmt.Errorf("find libfaketime: %w; run: make deps", errMissing)
}

func (s *server) clockPath() string { return filepath.Join(s.dir, "clock") }

// setClock replaces the file in one step: a process that read half a number would jump by it.
func (s *server) setClock(ahead time.Duration) error {
	next := s.clockPath() + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+d\n", int(ahead.Seconds())), 0o600); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	if s.user != nil {
		if err := os.Chown(next, int(s.user.Uid), int(s.user.Gid)); err != nil {
			return fmt.Errorf("set clock: %w", err)
		}
	}
	if err := os.Rename(next, s.clockPath()); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	return nil
}

// forgetClock removes what libfaketime shares between a process and its children, and leaves behind
// where the process was killed. Another process that came to have the same id would be refused by
// it.
func forgetClock(pid int) {
	for _, left := range []string{"faketime_shm_", "sem.faketime_sem_"} {
		_ = os.Remove("/dev/shm/" + left + strconv.Itoa(pid)) // nearly always nothing
	}
}

// SetClock has the clock of a server with Clock jump to so far ahead of ours, or behind it. Whole
// seconds.
func (p *Postgres) SetClock(ahead time.Duration) error { return p.server.setClock(ahead) }
