package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// smallDisk gives the server's data a file system of its own, in memory, that is full after so many
// MiB. Only root may mount one.
func (s *server) smallDisk(mib int) error {
	data := filepath.Join(s.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return fmt.Errorf("make small disk: %w", err)
	}
	options := "mode=0700,size=" + strconv.Itoa(mib) + "m"
	if s.user != nil {
		options += fmt.Sprintf(",uid=%d,gid=%d", s.user.Uid, s.user.Gid)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "outbox-small-disk",
		data).CombinedOutput(); err != nil {
		return fmt.Errorf("mount small disk (this needs root): %w: %s", err, out)
	}
	return nil
}

// Disk is a file system of its own, in memory, that is soon full. It goes as a server's does: with
// the test, however that ends.
type Disk struct{ server *server }

// SmallDisk makes a disk that is full after so many MiB. Only root may.
func SmallDisk(t testing.TB, mib int) Disk {
	t.Helper()
	s, err := newServer("disk", "", syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.smallDisk(mib); err != nil {
		t.Fatal(err)
	}
	return Disk{s}
}

// Dir is where it is mounted.
func (d Disk) Dir() string { return filepath.Join(d.server.dir, "data") }

// Fill is Postgres.Fill.
func (d Disk) Fill() (free func() error, err error) { return d.server.fill() }

// Fill writes a file into the data directory of a server with a SmallDisk until there is no room
// left, and returns what removes it.
func (p *Postgres) Fill() (free func() error, err error) { return p.server.fill() }

func (s *server) fill() (free func() error, err error) {
	path := filepath.Join(s.dir, "data", "ballast")
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
