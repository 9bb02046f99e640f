package condition

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

var update = flag.Bool("update", false, "write what is made from the catalogue anew")

const (
	page      = "../../docs/operations/conditions.md"
	ownRules  = "../../deploy/prometheus/outbox.rules.yml"
	rules     = "../../deploy/prometheus/outbox.conditions.rules.yml"
	ruleTests = "../../deploy/prometheus/outbox.conditions.rules.test.yml"
	tested    = "../test/conditions/provoke_test.go"
)

// The runbook, the alert rules and their tests are made from the catalogue: go test
// ./internal/condition -update.
func TestPagesAreOfTheCatalogue(t *testing.T) {
	for path, want := range map[string]string{page: runbook(), rules: alerts(), ruleTests: alertTests()} {
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a page of the project
				t.Fatal(err)
			}
		}
		if read(t, path) != want {
			t.Errorf("%s is not what the catalogue says: go test ./internal/condition -update", path)
		}
	}
}

// Every condition has its id for itself, words, an alert and a provocation; every finding links to
// its entry.
func TestCatalogueIsComplete(t *testing.T) {
	own, provocations := read(t, ownRules), read(t, tested)
	for i := range Catalogue {
		c := &Catalogue[i]
		switch {
		case i > 0 && c.ID <= Catalogue[i-1].ID:
			t.Errorf("%s comes after %s in the catalogue", c.ID, Catalogue[i-1].ID)
		case c.Means == "" || c.Remedy == "" || c.check == nil && c.judge == nil || c.Severity == 0 ||
			c.Severity == Uncertain ||
			!strings.Contains(joined(Categories), string(c.Category)):
			t.Errorf("%s lacks something: %+v", c.ID, c)
		case c.Alert != "" && !strings.Contains(own, "alert: "+c.Alert+"\n"):
			t.Errorf("%s has the alert %s, which %s has not", c.ID, c.Alert, ownRules)
		case !strings.Contains(provocations, `"`+c.ID+`": func`):
			t.Errorf("%s is provoked by no test", c.ID)
		case !strings.Contains(runbook(), `<a id="`+c.Anchor()+`"></a>`):
			t.Errorf("%s has no entry %s in the runbook", c.ID, c.Anchor())
		}
	}
	for _, of := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(own, -1) {
		named := of[1] == "OutboxGroupDead" || of[1] == "OutboxSubscriptionUnread" // of consumers; see the page on call
		for _, c := range Catalogue {
			named = named || c.Alert == of[1]
		}
		if !named {
			t.Errorf("%s is the alert of no condition", of[1])
		}
	}
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		which Selection
		id    string
		has   bool
	}{
		{Selection{}, "OBX-009", true}, {Selection{Only: []string{"database"}}, "OBX-009", true},
		{Selection{Only: []string{"obx-009"}}, "OBX-009", true}, {Selection{Only: []string{"events"}}, "OBX-009",
			false},
		{Selection{Only: []string{"database"}, Skip: []string{"OBX-009"}}, "OBX-009", false},
		{Selection{Pre: true}, "OBX-035", false}, {Selection{Pre: true}, "OBX-009", true},
	} {
		for i := range Catalogue {
			if Catalogue[i].ID == c.id && c.which.has(&Catalogue[i]) != c.has {
				t.Errorf("%+v has %s: %v", c.which, c.id, !c.has)
			}
		}
	}
	for _, word := range []string{"OBX-999", "databases", ""} {
		if err := (Selection{Skip: []string{word}}).Check(); err == nil {
			t.Errorf("%q is taken", word)
		}
	}
}

// ruleName is the alert's name of a condition: OutboxVacuumHeldBack.
func ruleName(c *Condition) string {
	switch {
	case c.Alert != "":
		return c.Alert
	case c.Category == audit:
		return "the exit code of `outbox verify`"
	case c.Severity == Advice:
		return "advice"
	}
	name := "Outbox"
	for _, word := range strings.FieldsFunc(c.Name, func(r rune) bool { return !unicode.IsLetter(r) }) {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

func runbook() string {
	var b strings.Builder
	b.WriteString(`# Conditions

This page lists the conditions that ` + "`outbox doctor`" + ` checks. Each is provoked by a test on real servers,
	and has
an alert or is advice. The page is made from the catalogue in internal/condition.

    outbox status                             # the live conditions, in one sentence
    outbox doctor --pre                       # before the first start
    outbox doctor --config outbox.yaml        # all conditions, with the relay's settings and login
    outbox doctor --only events,OBX-009 -o json

A relay checks the conditions every minute: the metric ` + "`outbox_condition`" + ` counts the findings,
	and ` + "`/readyz`" + `
lists them to this machine. The category audit belongs to ` + "`outbox verify`" + `,
	which reads whole tables. A condition
is ` + "`critical`" + ` if it stops delivery, and a ` + "`warning`" + ` if it will.

<a id="unknown"></a>
If a fact cannot be read, the result is ` + "`unknown`" + ` (exit code 5, alert OutboxUnknown),
	and never healthy. The reason stands
beside the fact: a table that is locked, a statement that timed out, a right that is missing. A fact that the login may
not see by design is listed as not visible. It makes the result unknown only if the login sees no outbox table.

| id | condition | of | severity | alert |
|---|---|---|---|---|
`)
	for i := range Catalogue {
		c := &Catalogue[i]
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s |\n",
			c.ID, c.Anchor(), c.Name, c.Category, c.Severity, ruleName(c))
	}
	for i := range Catalogue {
		c := &Catalogue[i]
		do := c.Remedy
		if first, _, _ := strings.Cut(do, " "); first != "outbox" && first != "chmod" { // to be copied as they are
			do = strings.ToUpper(do[:1]) + do[1:]
		}
		fmt.Fprintf(&b, "\n<a id=\"%s\"></a>\n## %s %s\n\n%s\n\n**Do:** %s.\n", c.Anchor(), c.ID, c.Name, c.Means, do)
	}
	return b.String()
}

func alerts() string {
	var b strings.Builder
	b.WriteString(`# Alerts on the conditions that relays check every minute (docs/operations/conditions.md), made from the
# catalogue in internal/condition. Conditions with a metric of their own have their alert in outbox.rules.yml.
groups:
  - name: outbox-conditions
    rules:
      - alert: OutboxUnknown
        expr: max by (job) (outbox_unknown_facts) > 0
        for: 3m
        annotations:
          summary: "facts cannot be read: outbox status"
          runbook_url: "` + Runbook + `#unknown"
`)
	for i := range Catalogue {
		if c := &Catalogue[i]; c.Alert == "" && c.Category != audit && c.Severity != Advice {
			fmt.Fprintf(&b, `      - alert: %s
        expr: max by (job, id, severity) (outbox_condition{id="%s"}) > 0
        for: 2m
        annotations:
          summary: "%s: outbox doctor --only %s"
          runbook_url: "%s#%s"
`, ruleName(c), c.ID, c.Name, c.ID, Runbook, c.Anchor())
		}
	}
	return b.String()
}

func alertTests() string {
	var b strings.Builder
	b.WriteString(`# promtool test rules deploy/prometheus/outbox.conditions.rules.test.yml
# Each fires while one of two relays finds its condition, and no longer.
rule_files: [outbox.conditions.rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: outbox_unknown_facts{job="shop", instance="a"}
        values: "0x4 2x10 0x10"
    alert_rule_test:
      - alertname: OutboxUnknown
        eval_time: 10m
        exp_alerts:
          - exp_labels: {job: shop}
            exp_annotations: {summary: "facts cannot be read: outbox status", runbook_url: "` + Runbook + `#unknown"}
      - alertname: OutboxUnknown
        eval_time: 20m
        exp_alerts: []
`)
	for i := range Catalogue {
		if c := &Catalogue[i]; c.Alert == "" && c.Category != audit && c.Severity != Advice {
			fmt.Fprintf(&b, `  - interval: 1m
    input_series:
      - series: outbox_condition{job="shop", instance="a", id="%[1]s", severity="%[2]s"}
        values: "0x4 2x10 0x10"
      - series: outbox_condition{job="shop", instance="b", id="%[1]s", severity="%[2]s"}
        values: "0x26"
    alert_rule_test:
      - alertname: %[3]s
        eval_time: 10m
        exp_alerts:
          - exp_labels: {job: shop, id: %[1]s, severity: %[2]s}
            exp_annotations: {summary: "%[4]s: outbox doctor --only %[1]s", runbook_url: "%[5]s#%[6]s"}
      - alertname: %[3]s
        eval_time: 20m
        exp_alerts: []
`, c.ID, c.Severity, ruleName(c), c.Name, Runbook, c.Anchor())
		}
	}
	return b.String()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A file that its owner's group reads is as packages and pods have it; one that others read is not.
func TestFileOfAGroup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "outbox.yaml")
	for mode, found := range map[os.FileMode]int{0o600: 0, 0o440: 0, 0o640: 0, 0o660: 1, 0o644: 1} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		got, err := fileReadable(t.Context(), &Examination{File: file})
		if err != nil || len(got) != found {
			t.Errorf("%s: %v, %v", mode, got, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// Without a database, every condition that needs one is left out, and none panics.
func TestExamineWithoutADatabase(t *testing.T) {
	for _, which := range []Selection{{}, {Pre: true}, {Audit: true}} {
		x := Examination{DBErr: errors.New("connection refused"), Limits: Usual}
		report := x.Examine(t.Context(), which)
		away := slices.IndexFunc(report.Findings, func(f Finding) bool {
			return strings.Contains(f.Says, "connection refused")
		})
		if away < 0 || report.Worst != Critical {
			t.Errorf("%+v: findings %v, worst %v, want the unavailable database", which, report.Findings, report.Worst)
		}
		for _, u := range report.Unseen {
			t.Errorf("%+v: %s cannot be looked for: %s", which, u.ID, u.Why)
		}
	}
}
