package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// The command that users build contains nothing of the fault points: neither their environment
// variables nor the code that looks at them.
func TestFaultPointsAreCompiledOut(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	contains := func(path string) bool {
		t.Helper()
		program, err := os.ReadFile(path)
		noError(t, err)
		return bytes.Contains(program, []byte("OUTBOX_FAULT")) || bytes.Contains(program, []byte("internal/fault.Hit"))
	}
	path := filepath.Join(t.TempDir(), "outbox")
	if out, err := exec.Command("go", "build", "-o", path, "../../../cmd/outbox").CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	if contains(path) {
		t.Error("the command has fault points")
	}
	with, err := binary()
	noError(t, err)
	if !contains(with) {
		t.Error("the command that is built for these tests has none: the test looks for the wrong thing")
	}
}
