package config

import (
	"strings"
	"testing"
	"time"
)

// What does not fit is said in the words of the file, in its order, and nothing is cut off.
func TestValuesThatDoNotFit(t *testing.T) {
	t.Parallel()
	c, err := load(t, `stream_limit: 1.5
batch: 10.9
workers: "2"
parts: 7
lease_ttl: 10sec
retention: 7d
dlq_retention: 2w
poll_max: [1s]
destination: [a, b]
table: {a: b}
token: 4711
listen: true
http: [a]
retry: 5
dedup_window: soon
run_limit_tenant: 99999999999999999999
max_attempts: postgres://u:hunter2@h
cors_origin: [1]
POLL_MAX: 3s
pollMax: 3s
poll-max: 3s
`, []string{"OUTBOX_RETENTION=7d", "OUTBOX_BATCH_BYTES=99999999999999999999", "OUTBOX_DEDUP_WINDOW=5"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		":1: stream_limit: 1.5 is no whole number", ":2: batch: 10.9 is no whole number",
		`:3: workers: "2" is no whole number: leave the quotes away`, ":4: parts: want a list, and not 7",
		`:5: lease_ttl: "10sec" is no time such as 5ms`,
		`:6: retention: "7d" is no time such as 5ms, 10s, 15m or 168h (a week)`,
		":7: dlq_retention: \"2w\" is no time such as 5ms, 10s, 15m or 168h (a week)",
		":8: poll_max: a list is no time", ":9: destination: want keys with values (name: value), and not a list",
		":10: table: want a list, and not keys with values",
		":11: token: want text, and not a number: put it in quotes", ":12: listen: want text, and not true",
		":13: http: want text, and not a list", ":14: retry: want a list, and not 5",
		`:15: dedup_window: "soon" is no time`, ":16: run_limit_tenant: ", ":17: max_attempts: the text (not shown",
		":18: cors_origin[0]: want text, and not a number",
		`:19: unknown key "POLL_MAX"`, `:20: unknown key "pollMax"`,
		`:21: unknown key "poll-max"`,
		"OUTBOX_BATCH_BYTES: 99999999999999999999 is too large",
		"OUTBOX_DEDUP_WINDOW: 5 needs a unit",
		`OUTBOX_RETENTION: "7d" is no time`,
	}
	err = c.Check(0)
	wantProblems(t, err, want...)
	if err == nil {
		return
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "4711") {
		t.Errorf("a secret is shown:\n%v", err)
	}
	rest := err.Error()
	for _, w := range want {
		_, after, ok := strings.Cut(rest, w)
		if !ok {
			t.Fatalf("%q is not in its place:\n%v", w, err)
		}
		rest = after
	}
}

func TestValuesThatFit(t *testing.T) {
	t.Parallel()
	c, err := load(t,
		"batch: 1e3\nbatch_bytes: 10.0\nretention: 0\ndlq_retention: 90m\ntable: a,b\ndestination: "+
			"{billing.outbox: x}\n---\n...\n", nil)
	if err == nil {
		t.Error("a second document is taken")
	}
	c, err = load(t,
		"batch: 1e3\nbatch_bytes: 10.0\nretention: 0\ndlq_retention: 90m\ntable: a,b\ndestination: "+
			"{billing.outbox: x}\n...\n", nil)
	if err != nil || c.Check(0) != nil {
		t.Fatal(err, c.Check(0))
	}
	if c.Batch != 1000 || c.BatchBytes != 10 || c.Retention.OlderThan != 0 ||
		c.Retention.LetterAge != 90*time.Minute || len(c.Table) != 2 || c.Destination["billing.outbox"] != "x" {
		t.Errorf("got %+v", c)
	}
}

// A file that is no YAML, or other YAML, is named once, with its line and without what is in it.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\tbatch: 1\n":                    "outbox.yaml: cannot be read as YAML: ",
		"token: hunter2: y\n":             "outbox.yaml: cannot be read as YAML: mapping values",
		"batch: 1\ntoken: hunter2: y\n":   "outbox.yaml:2: cannot be read as YAML: mapping values",
		"batch: 1\nworkers: 2\n]\n":       "outbox.yaml:2: cannot be read as YAML: did not find",
		"a: [\n":                          "outbox.yaml:1: cannot be read as YAML: did not find", // its end
		"batch: 1\nsink: *hunter2\n":      "outbox.yaml: cannot be read as YAML: a value begins with *",
		"batch: 1\nworkers: 1\nbatch: 2":  "outbox.yaml:3: cannot be read as YAML: mapping key",
		"batch: 1\n---\nbatch: 2\n":       "outbox.yaml:2: begins a second document",
		"batch: 1\n---\ntoken: hunter2: ": "outbox.yaml:3: cannot be read as YAML",
		"- a\n- b\n":                      "outbox.yaml:1: want settings such as batch: 500",
		"# x\nhunter2\n":                  "outbox.yaml:2: want settings such as batch: 500",
	} {
		_, err := load(t, text, nil)
		wantProblems(t, err, want)
		if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "!!") ||
			strings.Contains(err.Error(), "\n")) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"\n", "# nothing\n", "---\n", "null\n"} {
		if c, err := load(t, text, nil); err != nil || c.Check(0) != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
