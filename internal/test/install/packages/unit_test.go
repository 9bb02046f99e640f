package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

const unit = root + "/deploy/outbox.service"

// The unit is one that systemd takes, and leaves the process little: an exposure of at most 2.0.
func TestUnit(t *testing.T) {
	tier.All(t)
	said := testenv.Run(t, exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager",
		"--threshold=20", unit))
	exposure := regexp.MustCompile(`Overall exposure level for outbox.service: (\S+)`).FindStringSubmatch(said)
	if exposure == nil {
		t.Fatalf("no exposure in\n%s", said)
	}
	t.Logf("exposure %s", exposure[1])

	// A program that is there: systemd looks for it where it would for the packages'.
	text, err := os.ReadFile(unit)
	noError(t, err)
	path := filepath.Join(unpack(t), "outbox")
	placed := filepath.Join(t.TempDir(), "outbox.service")
	found := strings.Replace(string(text), "ExecStart=outbox", "ExecStart="+path, 1)
	if found == string(text) {
		t.Fatal("ExecStart= is not outbox")
	}
	noError(t, os.WriteFile(placed, []byte(found), 0o644))
	out, err := exec.Command("systemd-analyze", "verify", "--man=false", placed).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// And it notices what it does not take.
	noError(t, os.WriteFile(placed, []byte(strings.Replace(found, "Type=notify", "Type=notified", 1)), 0o644))
	if out, _ := exec.Command("systemd-analyze", "verify", "--man=false", placed).CombinedOutput(); len(out) == 0 {
		t.Error("systemd-analyze verify takes Type=notified")
	}
}
