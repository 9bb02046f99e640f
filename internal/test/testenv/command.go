package testenv

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// BuildCommand builds cmd/outbox of this repository with the given flags of `go build`, for example
// "-tags=fault", and returns the path of the program. The program is in the folder bin of the
// repository, one file for each set of flags. An up-to-date file is not linked again, so that the
// packages of a run share it.
func BuildCommand(flags ...string) (path string, err error) {
	root, err := repository()
	if err != nil {
		return "", fmt.Errorf("build the command: %w", err)
	}
	h := fnv.New32()
	_, _ = h.Write([]byte(strings.Join(flags, " "))) // never fails
	dir := filepath.Join(root, "bin", "test", fmt.Sprintf("%08x", h.Sum32()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("build the command: %w", err)
	}
	// Packages that run at the same time must not link the same file.
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return "", fmt.Errorf("build the command: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("build the command: lock %s: %w", lock.Name(), err)
	}
	path = filepath.Join(dir, "outbox")
	args := slices.Concat([]string{"build", "-ldflags=-s -w"}, flags, []string{"-o", path, "./cmd/outbox"})
	build := exec.Command("go", args...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the command: %w\n%s", err, out)
	}
	return path, nil
}

// repository returns the folder of this repository: the one above the working directory, in which
// tests run, that holds this package.
func repository() (string, error) {
	here, err := os.Getwd()
	for dir := here; err == nil && dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "internal", "test", "testenv", "command.go")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("find the repository above %s: no folder internal/test/testenv", here)
}
