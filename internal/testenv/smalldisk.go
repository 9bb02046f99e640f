package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// smallDisk gives the server's data a file system of its own, in memory, that is full after so many MiB. Only root may mount one.
func (s *server) smallDisk(mib int) error {
	data := filepath.Join(s.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("make small disk: %w", err)
	}
	options := "mode=0700,size=" + strconv.Itoa(mib) + "m"
	if s.user != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", s.user.Uid, s.user.Gid)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "outbox-small-disk", data).CombinedOutput(); err != nil {
		return fmt.Errorf("mount small disk (this needs root): %w: %s", err, out)
	}
	return nil
}

// Fill writes a file into the data directory of a server with a SmallDisk until there is no room left, and returns what removes it.
func (p *Postgres) Fill() (free func() error, err error) {
	path := filepath.Join(p.server.dir, "data", "ballast")
	f, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("fill disk: %w", err)
	}
	free = func() error { return os.Remove(path) }
	// Small pieces, so that what is left is less than the server's own smallest step.
	for piece := make([]byte, 4096); err == nil; {
		_, err = f.Write(piece)
	}
	if closeErr := f.Close(); closeErr != nil || !errors.Is(err, syscall.ENOSPC) {
		return nil, errors.Join(fmt.Errorf("fill disk: %w", err), closeErr, free())
	}
	return free, nil
}
