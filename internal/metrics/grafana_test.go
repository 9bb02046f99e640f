package metrics

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

var update = flag.Bool("update", false, "write deploy/grafana/outbox.json anew")

const dashboard = "../../deploy/grafana/outbox.json"

// The dashboard is made from its rows and the metrics' own words: go test ./internal/metrics -run
// Dashboard -update.
func TestDashboardIsOfTheMetrics(t *testing.T) {
	want := drawn(described(t))
	if *update {
		if err := os.WriteFile(dashboard, want, 0o644); err != nil { //nolint:gosec // a file of the project
			t.Fatal(err)
		}
	}
	if read(t, dashboard) != string(want) {
		t.Errorf("%s is not what its rows say: go test ./internal/metrics -run Dashboard -update", dashboard)
	}
}

// A panel asks for metrics that are there, by labels that they have.
func TestDashboardNamesWhatIsThere(t *testing.T) {
	there := described(t)
	for _, p := range panels() {
		if p.Do == "" || !strings.HasSuffix(p.Do, ".") {
			t.Errorf("%s does not say what to do", p.Title)
		}
		for _, q := range p.Queries {
			for _, problem := range unknown(there, q) {
				t.Errorf("%s: %s", p.Title, problem)
			}
		}
	}
	for _, q := range []query{{Expr: `sum(outbox_published)`}, {Expr: `sum by (sink) (outbox_backlog_events)`},
		{Expr: `outbox_relay_ready{table="x"}`}, {Expr: `outbox_paused`, Legend: "{{sink}}"}, {Expr: `vector(1)`}} {
		if len(unknown(there, q)) == 0 {
			t.Errorf("%+v is taken", q)
		}
	}
}

// Every query is PromQL, and finds something where every metric has a value.
func TestDashboardFindsSomething(t *testing.T) {
	dir := t.TempDir()
	var series strings.Builder
	for _, m := range described(t) {
		labels := `job="shop", instance="a"`
		for _, l := range m.labels {
			labels += fmt.Sprintf(`, %s="%s"`, l, map[string]string{"severity": "critical", "id": "OBX-009"}[l])
		}
		for _, suffix := range m.series() {
			of := labels
			if strings.HasSuffix(suffix, "_bucket") {
				of += `, le="+Inf"`
				fmt.Fprintf(&series, "      - {series: '%s{%s, le=\"1\"}', values: 1+1x20}\n", suffix, labels)
			}
			fmt.Fprintf(&series, "      - {series: '%s{%s}', values: 1+1x20}\n", suffix, of)
		}
	}
	var tests strings.Builder
	fmt.Fprintf(&tests, "evaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n%s"+
		"    promql_expr_test:\n", &series)
	for _, p := range panels() {
		for _, q := range p.Queries {
			expr := strings.NewReplacer("$job", ".*", "$table", ".*", "$__rate_interval", "5m").Replace(q.Expr)
			fmt.Fprintf(&tests, "      - {eval_time: 10m, expr: %q, exp_samples: [{labels: '{}', value: 1}]}\n",
				"count("+expr+") > bool 0")
		}
	}
	path := filepath.Join(dir, "dashboard.yml")
	if err := os.WriteFile(path, []byte(tests.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	testenv.Promtool(t, "test", "rules", path)
}

// metric is what a registry says of one.
type metric struct {
	name, help string
	labels     []string
}

// series are the names that a scrape has of it.
func (m metric) series() []string {
	if strings.HasSuffix(m.name, "_seconds") && !strings.Contains(m.help, "Age ") {
		return []string{m.name + "_bucket", m.name + "_sum", m.name + "_count"}
	}
	return []string{m.name}
}

// described are the metrics of a relay, a gateway and a worker, by name.
func described(t *testing.T) map[string]metric {
	t.Helper()
	m := New()
	m.HTTP()
	m.Runs()
	m.WatchCrawling(func() int { return 0 })
	m.WatchStreams(func() Streams { return Streams{} })
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		m.Registry.Describe(descs)
	}()
	form := regexp.MustCompile(`^Desc\{fqName: "(outbox_\w+)", help: "(.*)", constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	there := map[string]metric{}
	for desc := range descs {
		if of := form.FindStringSubmatch(desc.String()); of != nil {
			there[of[1]] = metric{of[1], of[2], strings.FieldsFunc(of[3], func(r rune) bool { return r == ',' })}
		}
	}
	if len(there) < 40 {
		t.Fatalf("%d metrics are described", len(there))
	}
	return there
}

var (
	named    = regexp.MustCompile(`(outbox_\w+?)(_bucket|_sum|_count)?\b(\{[^}]*\})?`)
	grouped  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	matched  = regexp.MustCompile(`(\w+)(?:=|!=|=~|!~)"`)
	legended = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// unknown are the metrics and labels of a query that are not there. A scrape adds job and instance.
func unknown(there map[string]metric, q query) (problems []string) {
	common := []string{}
	of := named.FindAllStringSubmatch(q.Expr, -1)
	if len(of) == 0 {
		problems = append(problems, q.Expr+" names no metric")
	}
	for _, n := range of {
		m, ok := there[n[1]]
		if !ok {
			problems = append(problems, n[1]+" does not exist")
		}
		has := append([]string{"job", "instance"}, m.labels...)
		if n[2] == "_bucket" {
			has = append(has, "le")
		}
		for _, l := range matched.FindAllStringSubmatch(n[3], -1) {
			if !slices.Contains(has, l[1]) {
				problems = append(problems, n[1]+" has no label "+l[1])
			}
		}
		common = append(common, has...)
	}
	asked := legended.FindAllStringSubmatch(q.Legend, -1)
	for _, g := range grouped.FindAllStringSubmatch(q.Expr, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			asked = append(asked, []string{"", strings.TrimSpace(l)})
		}
	}
	for _, l := range asked {
		if !slices.Contains(common, l[1]) {
			problems = append(problems, fmt.Sprintf("%s has no label %s", q.Expr, l[1]))
		}
	}
	return problems
}

// drawn is the dashboard as Grafana imports it.
func drawn(there map[string]metric) []byte {
	var all []any
	id, y := 0, 0
	for _, r := range rows() {
		id++
		all = append(all, map[string]any{"id": id, "type": "row", "title": r.Title, "collapsed": false, "panels": []any{},
			"gridPos": map[string]int{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		width := 24 / len(r.Panels)
		for i, p := range r.Panels {
			id++
			all = append(all, p.drawn(there, id, map[string]int{"x": i * width, "y": y, "w": width, "h": r.Height}))
		}
		y += r.Height
	}
	variable := func(name, label, query string) map[string]any {
		return map[string]any{"name": name, "label": label, "type": "query", "datasource": source, "refresh": 2, "sort": 1,
			"multi": true, "includeAll": true, "allValue": ".*", "query": query,
			"current": map[string]any{"text": []string{"All"}, "value": []string{"$__all"}}}
	}
	text, err := json.MarshalIndent(map[string]any{
		"uid": "outbox", "title": "Outbox", "tags": []string{"outbox"}, "schemaVersion": 39, "editable": true,
		"description": "Relays, gateways and workers of Outbox. Made by: go test ./internal/metrics -run Dashboard -update",
		"refresh":     "30s", "time": map[string]string{"from": "now-6h", "to": "now"}, "graphTooltip": 1,
		"links": []any{map[string]any{"type": "link", "title": "When you are paged", "targetBlank": true,
			"url": manual + "incidents.md"}},
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
			variable("job", "Job", "label_values(outbox_lanes_held, job)"),
			variable("table", "Table", `label_values(outbox_published_total{job=~"$job"}, table)`),
		}},
		"panels": all,
	}, "", "  ")
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	// Readable: an expression is copied from here.
	for from, to := range map[string]string{`\u003e`: ">", `\u003c`: "<", `\u0026`: "&"} {
		text = bytes.ReplaceAll(text, []byte(from), []byte(to))
	}
	return append(text, '\n')
}

var source = map[string]string{"type": "prometheus", "uid": "${datasource}"}

func (p panel) drawn(there map[string]metric, id int, at map[string]int) map[string]any {
	var targets []any
	var words []string
	for i, q := range p.Queries {
		targets = append(targets, map[string]any{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr,
			"legendFormat": q.Legend, "instant": p.Kind == "table", "range": p.Kind != "table",
			"format": map[bool]string{true: "table", false: "time_series"}[p.Kind == "table"]})
		for _, n := range named.FindAllStringSubmatch(q.Expr, -1) {
			if word := fmt.Sprintf("`%s`: %s", n[1], there[n[1]].help); !slices.Contains(words, word) {
				words = append(words, word)
			}
		}
	}
	custom := map[string]any{}
	if p.Kind == "timeseries" {
		custom = map[string]any{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never",
			"scaleDistribution": map[string]any{"type": "linear"}, "stacking": map[string]any{"mode": "none", "group": "A"}}
		if p.Log {
			// symlog, since a log axis has no place for 0, which is how most of these should be.
			custom["scaleDistribution"] = map[string]any{"type": "symlog", "log": 10, "linearThreshold": 1}
		}
		if p.Stacked {
			custom["stacking"] = map[string]any{"mode": "normal", "group": "A"}
		}
	}
	steps := []any{map[string]any{"color": "green", "value": nil}}
	if p.Red != 0 {
		steps = append(steps, map[string]any{"color": "red", "value": p.Red})
		custom["thresholdsStyle"] = map[string]any{"mode": "line"}
	}
	if p.Kind == "stat" && p.RedBelow {
		steps = []any{map[string]any{"color": "red", "value": nil}, map[string]any{"color": "green", "value": p.Red}}
	}
	drawn := map[string]any{"id": id, "type": p.Kind, "title": p.Title, "gridPos": at, "datasource": source,
		"description": p.Do + "\n\n" + strings.Join(words, "\n\n"), "targets": targets,
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.Unit, "min": 0, "custom": custom,
			"thresholds": map[string]any{"mode": "absolute", "steps": steps}}, "overrides": []any{}},
	}
	switch p.Kind {
	case "table":
		drawn["transformations"] = []any{map[string]any{"id": "organize",
			"options": map[string]any{"excludeByName": map[string]bool{"Time": true}}}}
	case "stat":
		drawn["options"] = map[string]any{"colorMode": "background", "graphMode": "area",
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}}
	default:
		drawn["options"] = map[string]any{"tooltip": map[string]string{"mode": "multi", "sort": "desc"},
			"legend": map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true}}
	}
	return drawn
}
