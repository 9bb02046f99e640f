package testenv

import (
	"os"
	"runtime"
	"syscall"
	"testing"
)

const nobody = 65534

// Nobody has the test access files as a user to whom their modes apply, which root is not, and
// returns a folder of that user's. It is for what the test's own goroutine does.
func Nobody(t testing.TB) (dir string) {
	t.Helper()
	if os.Geteuid() == 0 {
		runtime.LockOSThread() // it ends with the goroutine
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Setfsuid(0) })
	}
	dir, err := os.MkdirTemp("", "outbox-nobody-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
