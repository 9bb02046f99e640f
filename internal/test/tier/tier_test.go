package tier

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// run returns whether a subtest that calls mark was skipped, and the report of skipped tests.
func run(t *testing.T, selected string, mark func(testing.TB)) (skipped bool, report string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skipped")
	t.Setenv(Variable, selected)
	t.Setenv(reportVariable, path)
	t.Run("sub", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		mark(t)
	})
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return skipped, string(text)
}

func TestTiersContainTheLowerOnes(t *testing.T) {
	for _, tt := range []struct {
		selected  string
		full, all bool // skipped
	}{{"", true, true}, {"test", true, true}, {"full", false, true}, {"all", false, false}} {
		for kind, mark := range map[string]func(testing.TB){"tier full": Full, "tier all": All} {
			want := map[string]bool{"tier full": tt.full, "tier all": tt.all}[kind]
			skipped, report := run(t, tt.selected, mark)
			if skipped != want {
				t.Errorf("%s=%q: a test of %s is skipped: %v, want %v", Variable, tt.selected, kind, skipped, want)
			}
			if recorded := strings.HasPrefix(report, kind+"\tTestTiersContainTheLowerOnes/sub"); recorded != want {
				t.Errorf("%s=%q: the report has %q", Variable, tt.selected, report)
			}
		}
	}
}

func TestMissingProgramSkipsWithoutATier(t *testing.T) {
	skipped, report := run(t, "", func(t testing.TB) { Missing(t, errors.New("find redis-server: not installed")) })
	if !skipped || !strings.HasPrefix(report, "missing program\t") {
		t.Errorf("skipped: %v, report %q", skipped, report)
	}
}

func TestPatienceIsLongerInLaterTiers(t *testing.T) {
	t.Setenv(Variable, "test")
	if got := Patience(); got < 30*time.Second || got > 5*time.Minute {
		t.Errorf("in the tier test it is %s", got)
	}
	t.Setenv(Variable, "all")
	if got := Patience(); got != 5*time.Minute {
		t.Errorf("in the tier all it is %s", got)
	}
}
