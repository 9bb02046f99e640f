package metrics

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outboxrelay/outbox/internal/condition"
	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// The second is made from the catalogue of conditions.
const (
	rules      = "../../deploy/prometheus/outbox.rules.yml"
	conditions = "../../deploy/prometheus/outbox.conditions.rules.yml"
	consumers  = "https://github.com/outboxrelay/outbox/blob/main/docs/operations/on-call.md#consumers"
)

// alert is one of a file of rules.
type alert struct {
	Alert       string
	Labels      map[string]string
	Annotations map[string]string
}

// alertTest is one of the tests beside a file of rules.
type alertTest struct {
	Cases []alertCase `yaml:"alert_rule_test"`
}

// alertCase is what a test wants of an alert at a time.
type alertCase struct {
	Name string `yaml:"alertname"`
	At   string `yaml:"eval_time"`
	Want []any  `yaml:"exp_alerts"`
}

// Every alert fires while its cause lasts, for the relay that has it, and no longer.
func TestAlerts(t *testing.T) {
	for _, of := range []string{rules, conditions} {
		cases := strings.TrimSuffix(of, ".yml") + ".test.yml"
		testenv.Promtool(t, "check", "rules", of)
		testenv.Promtool(t, "test", "rules", cases)
		var tests struct{ Tests []alertTest }
		unmarshal(t, cases, &tests)
		for _, a := range alerts(t, of) {
			if !slices.ContainsFunc(tests.Tests, func(one alertTest) bool { return firesAndClears(a.Alert, one.Cases) }) {
				t.Errorf("%s has no test in which it fires and then clears", a.Alert)
			}
		}
	}
	if firesAndClears("A", []alertCase{{Name: "A"}, {Name: "A", Want: []any{1}}, {Name: "B"}}) {
		t.Error("an alert that fires to the end is said to clear")
	}
}

// firesAndClears says whether an alert is wanted, and later, as cases go by time, not wanted.
func firesAndClears(name string, cases []alertCase) bool {
	fired := false
	for _, c := range cases {
		switch {
		case c.Name != name:
		case len(c.Want) > 0:
			fired = true
		case fired:
			return true
		}
	}
	return false
}

// Whoever is paged has a link to what to do, and the alert is as severe as its condition.
func TestAlertsHaveTheirEntries(t *testing.T) {
	severe := map[string]*condition.Condition{}
	for i := range condition.Catalogue {
		severe[condition.Catalogue[i].Alert] = &condition.Catalogue[i]
	}
	for _, a := range alerts(t, rules) {
		if a.Annotations["runbook_url"] == consumers {
			continue // of no condition
		}
		c := severe[a.Alert]
		if c == nil {
			t.Errorf("%s is of no condition", a.Alert)
			continue
		}
		if a.Labels["severity"] != c.Severity.String() {
			t.Errorf("%s has severity %q, its condition %s", a.Alert, a.Labels["severity"], c.Severity)
		}
		if want := condition.Runbook + "#" + c.Anchor(); a.Annotations["runbook_url"] != want {
			t.Errorf("%s links to %q, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
	}
	if !strings.Contains(read(t, "../../docs/operations/on-call.md"), "\n## Consumers\n") {
		t.Errorf("%s is not on the page", consumers)
	}
	page := read(t, "../../docs/operations/conditions.md")
	for _, a := range append(alerts(t, rules), alerts(t, conditions)...) {
		if a.Annotations["runbook_url"] == consumers {
			continue
		}
		_, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "#")
		if !strings.Contains(page, `<a id="`+anchor+`"></a>`) || a.Annotations["summary"] == "" {
			t.Errorf("%s has no entry in the runbook: %v", a.Alert, a.Annotations)
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

func alerts(t *testing.T, path string) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	unmarshal(t, path, &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no alert", path)
	}
	return all
}

func unmarshal(t *testing.T, path string, into any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
		t.Fatalf("%s: %v", path, err)
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
