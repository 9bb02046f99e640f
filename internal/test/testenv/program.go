package testenv

import (
	"bytes"
	"os/exec"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Run runs a program to its end, which must be a good one, and returns what it printed.
func Run(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, &out, &errs)
	}
	return out.String()
}

// Eventually waits for what is sure to come, for [tier.Patience].
func Eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(tier.Patience()); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain waited until %s", what)
		}
	}
}
