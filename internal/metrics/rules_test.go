package metrics

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The second is made from the catalogue of conditions.
const (
	rules      = "../../deploy/prometheus/outbox.rules.yml"
	conditions = "../../deploy/prometheus/outbox.conditions.rules.yml"
)

// Every alert fires while its cause lasts, for the relay that has it, and no longer.
func TestAlerts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		if promtool, err = filepath.Abs("../../bin/promtool"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(promtool); err != nil {
		t.Fatalf("promtool is neither on PATH nor in bin, run: make deps (%v)", err)
	}
	for _, of := range []string{rules, conditions} {
		testAlerts(t, promtool, of)
	}
}

func testAlerts(t *testing.T, promtool, rules string) {
	t.Helper()
	cases := strings.TrimSuffix(rules, ".yml") + ".test.yml"
	for _, args := range [][]string{{"check", "rules", rules}, {"test", "rules", cases}} {
		if out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	text, tests := read(t, rules), read(t, cases)
	_, names, _ := strings.Cut(text, "groups:")
	for _, part := range strings.Split(names, "- alert: ")[1:] {
		if name, _, _ := strings.Cut(part, "\n"); !strings.Contains(tests, "alertname: "+name+"\n") {
			t.Errorf("alert %s has no test in which it fires", name)
		}
	}
}

// The page on monitoring quotes the rules.
func TestAlertsOfTheDocs(t *testing.T) {
	text := read(t, rules)
	quoted := strings.ReplaceAll("\n"+strings.TrimSpace(text[strings.Index(text, "groups:"):]), "\n", "\n    ")
	if page := read(t, "../../docs/operations/monitoring.md"); !strings.Contains(page, quoted+"\n") {
		t.Errorf("docs/operations/monitoring.md does not quote %s as it is", rules)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
