package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// What a real relay serves at /metrics while its sink dies and comes back, and while it is killed
// itself, makes the rules that page fire and clear. Prometheus sees each state for a quarter of an
// hour.
func TestAlertsOfARelay(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	e := migrated(t)
	redis := testenv.RedisServer(t)
	e.redis = redis.URL()
	relay, url := e.relaying()
	scraped := func(lines ...string) (text string) {
		e.eventually(strings.Join(lines, ", "), func() bool {
			_, text = get(t, url+"/metrics")
			return !slices.ContainsFunc(lines, func(l string) bool { return !strings.Contains(text, "\n"+l+"\n") })
		})
		return text
	}
	well := []string{`outbox_relay_ready 1`, `outbox_sink_down{sink="default"} 0`,
		`outbox_oldest_undelivered_seconds{table="outbox_events"} 0`, `outbox_lanes_held{table="outbox_events"} 64`}
	states := []string{scraped(well...)}

	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	// An event of an hour ago: Prometheus is not here to wait for it to become old.
	exec1(e, `INSERT INTO outbox_events (event_topic, occurred_at, aggregate_id, source_bc, payload, created_at)
		VALUES ('orders', now() - interval '1 hour', 'a', 's', '{}', now() - interval '1 hour')`)
	old := regexp.MustCompile(`(?m)^outbox_oldest_undelivered_seconds\{table="outbox_events"\} 36\d\d`)
	var down string
	e.eventually("the sink is down and the event late", func() bool {
		down = scraped(`outbox_relay_ready 0`, `outbox_sink_down{sink="default"} 1`)
		return old.MatchString(down)
	})
	states = append(states, down)

	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	states = append(states, scraped(append(well, `outbox_published_total{table="outbox_events"} 1`)...))

	if err := relay.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	relay.wait()
	states = append(states, "") // nobody answers the scrape
	_, url = e.relaying()
	states = append(states, scraped(well...))

	testenv.Promtool(t, "test", "rules", firing(t, states, [][]string{
		nil, {"OutboxLate", "OutboxNotReady", "OutboxSinkDown"}, nil, {"OutboxNoRelay"}, nil}))
}

// firing writes the test of the rules that these alerts, and no others, fire at the end of each
// state.
func firing(t *testing.T, states []string, want [][]string) string {
	t.Helper()
	rules, err := filepath.Abs("../../deploy/prometheus/outbox.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	const minutes = 15
	series := map[string][]string{} // its value in each state
	sample := regexp.MustCompile(`(?m)^(outbox_\w+)(?:\{(.*)\})? (\S+)$`)
	for n, state := range states {
		for _, s := range sample.FindAllStringSubmatch(state, -1) {
			name := fmt.Sprintf(`%s{%s}`, s[1], strings.Trim(s[2]+`,job="shop",instance="a"`, ","))
			if series[name] == nil {
				series[name] = slices.Repeat([]string{"_"}, len(states))
			}
			series[name][n] = s[3]
		}
	}
	var file strings.Builder
	fmt.Fprintf(&file, "rule_files: [%q]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n", rules)
	for name, values := range series {
		for i, v := range values {
			values[i] = fmt.Sprintf("%sx%d", v, minutes-1)
			if v == "_" {
				values[i] = fmt.Sprintf("_x%d", minutes)
			}
		}
		fmt.Fprintf(&file, "      - {series: '%s', values: %q}\n", name, strings.Join(values, " "))
	}
	file.WriteString("    promql_expr_test:\n")
	for n, alerts := range want {
		var samples []string
		for _, a := range alerts {
			samples = append(samples, fmt.Sprintf(`{labels: '{alertname="%s"}', value: 1}`, a))
		}
		fmt.Fprintf(&file, "      - {expr: 'count by (alertname) (ALERTS{alertstate=\"firing\"})', eval_time: %dm, "+
			"exp_samples: [%s]}\n", (n+1)*minutes-1, strings.Join(samples, ", "))
	}
	path := filepath.Join(t.TempDir(), "alerts.yml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
