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
output: json
settle: 7
lease_ttl: 10sec
retention: 7d
max_attempts: []
poll_max: [1s]
destination: [[a], b]
table: {a: b}
token: 4711
database: {a: b}
http: [a]
retry: 5
dedup_window: soon
backoff_base: 1h 2
stream_limit_: postgres://u:hunter2@h
cors_origin: [{a: b}]
POLL_MAX: 3s
pollMax: 3s
poll-max: 3s
`, []string{"OUTBOX_RETENTION=7d", "OUTBOX_STREAM_LIMIT=99999999999999999999", "OUTBOX_DEDUP_WINDOW=5",
		"OUTBOX_MAX_ATTEMPTS=postgres://u:hunter2@h"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`:1: stream_limit: "1.5" is no whole number`, `:2: batch: "10.9" is no whole number`,
		`:3: unknown key "output"`,
		`:5: lease_ttl: "10sec" is no time such as 5ms, 10s, 15m or 168h (a week)`,
		":7: max_attempts: want one value, and not a list", ":8: poll_max: want one value, and not a list",
		":9: destination: want a list of texts, and not a list in it",
		":10: table: want a list, and not keys with values", `:11: unknown key "token"`,
		":12: database: want one value, and not keys with values",
		":13: http: want one value, and not a list", `:14: retry: want a list, and not "5"`,
		`:15: dedup_window: "soon" is no time`, `:16: backoff_base: "1h 2" is no time`, `:17: unknown key "stream_limit_"`,
		":18: cors_origin: want a list of texts, and not keys with values in it",
		`:19: unknown key "POLL_MAX"`, `:20: unknown key "pollMax"`,
		`:21: unknown key "poll-max"`,
		"OUTBOX_DEDUP_WINDOW: 5 needs a unit", "OUTBOX_MAX_ATTEMPTS: the text (not shown",
		"OUTBOX_STREAM_LIMIT: 99999999999999999999 is too large",
		`:4: settle: want TABLE=VALUE, in a file keys with values, and not "7"`,
		`OUTBOX_RETENTION: "7d" is no time such as 5ms, 10s, 15m or 168h (a week)`,
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
		"batch: 1_000\nstream_limit: \"10\"\nretention: {job_dlq: 90m}\ntable: a,b\ndestination: "+
			"{billing.outbox: x}\n---\n...\n", nil)
	if err == nil {
		t.Error("a second document is taken")
	}
	c, err = load(t,
		"batch: 1_000\nstream_limit: \"10\"\nretention: {job_dlq: 90m}\ntable: a,b\ndestination: "+
			"{billing.outbox: x}\n...\n", nil)
	if err != nil || c.Check(0) != nil {
		t.Fatal(err, c.Check(0))
	}
	if letters, _ := c.RetentionOf(Letters); c.Batch != 1000 || c.Serve.StreamLimit != 10 || letters != 90*time.Minute ||
		len(c.Table) != 2 || c.Destination.Of("billing.outbox") != "x" {
		t.Errorf("got %+v", c)
	}
}

// A file that is no YAML, or other YAML, is named once, with its line and without what is in it.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\tbatch: 1\n":                    "outbox.yaml: cannot be read as YAML: ",
		"token: hunter2: y\n":             "outbox.yaml: cannot be read as YAML: mapping values",
		"batch: 1\ntoken: hunter2: y\n":   "outbox.yaml: cannot be read as YAML: line 2: mapping values",
		"batch: 1\nworkers: 2\n]\n":       "outbox.yaml: cannot be read as YAML: line 2: did not find",
		"a: [\n":                          "outbox.yaml: cannot be read as YAML: line 1: did not find", // its end
		"batch: 1\nsink: *hunter2\n":      "outbox.yaml: cannot be read as YAML: a value begins with *",
		"batch: 1\nworkers: 1\nbatch: 2":  "outbox.yaml: cannot be read as YAML: line 3: mapping key",
		"batch: 1\n---\nbatch: 2\n":       "outbox.yaml:2: begins a second document",
		"batch: 1\n---\ntoken: hunter2: ": "outbox.yaml: cannot be read as YAML: line 3",
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
