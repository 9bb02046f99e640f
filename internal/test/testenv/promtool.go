package testenv

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// Promtool runs promtool, the one on PATH or what `make deps` has put into bin, and ends the test
// with what it says unless all is well.
func Promtool(t testing.TB, args ...string) {
	t.Helper()
	var program string
	for _, dir := range []string{"", "bin", "../bin", "../../bin", "../../../bin"} { // tests run in their package's folder
		if path, err := exec.LookPath(filepath.Join(dir, "promtool")); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		fatal(t, fmt.Errorf("find promtool: %w; run: make deps", errMissing))
	}
	if out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}
