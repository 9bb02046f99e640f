package crawl

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestScriptsAreListed(t *testing.T) {
	t.Parallel()
	crawlers, err := Scripts(0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range crawlers {
		names = append(names, c.Name)
	}
	if fmt.Sprint(names) != "[script:checkout script:short]" {
		t.Errorf("got %v", names)
	}
	files, err := fs.Glob(embedded, "scripts/*")
	if err != nil || len(files) != len(crawlers) {
		t.Errorf("%d crawlers of files %v, error %v", len(crawlers), files, err)
	}
}

// The embedded scripts play from beginning to end, at their own pace and at another.
func TestScriptsPlay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		crawler     string
		speed       float64
		least, most time.Duration
		steps       int
		events      int // with those of the worker
	}{
		{"script:checkout", 1, 60 * time.Second, 90 * time.Second, 333, 1001},
		{"script:checkout", 10, 6 * time.Second, 9 * time.Second, 333, 1001},
		{"script:checkout", -1, 0, 0, 333, 1001},
		{"script:short", 0, 2 * time.Second, 2 * time.Second, 10, 36},
	} {
		t.Run(fmt.Sprint(c.crawler, c.speed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				crawlers, err := Scripts(c.speed)
				if err != nil {
					t.Fatal(err)
				}
				m := &memory{}
				run := m.has(t, c.crawler, func(r *stored) { r.MaxSteps = 1000 })
				start(t, m, WorkerConfig{}, crawlers...)
				pass(2 * time.Minute)
				r := m.get(run)
				took := r.events[len(r.events)-1].CreatedAt.Sub(r.CreatedAt)
				if r.Status != Completed || r.at.Steps != c.steps || len(r.events) != c.events || took < c.least || took > c.most {
					t.Errorf("%s (%s) after %s, %d steps, %d events", r.Status, r.Error, took, r.at.Steps, len(r.events))
				}
				shots := map[string]bool{}
				for _, e := range r.events {
					for _, name := range []string{"{n}", "{step}", "{sha256}"} {
						if strings.Contains(string(e.Payload), name) {
							t.Fatalf("%s was not filled in: %s", name, e.Payload)
						}
					}
					var shot struct{ Screenshot, SHA256 string }
					if err := json.Unmarshal(e.Payload, &shot); err != nil {
						t.Fatal(err)
					}
					if e.Type == ScreenshotCaptured && (shots[shot.Screenshot] || shots[shot.SHA256] || len(shot.SHA256) != 64) {
						t.Fatalf("a screenshot like one before: %s", e.Payload)
					}
					shots[shot.Screenshot], shots[shot.SHA256] = true, true
				}
			})
		})
	}
}

func TestScriptRepeats(t *testing.T) {
	t.Parallel()
	c, err := Script("x.json", strings.NewReader(`{"name": "x", "description": "d", "steps": [
		{"node": "A", "events": [{"type": "PROCESSING", "payload": {"s": "{step}", "n": "{n}"}}]},
		{"repeat": 2, "steps": [{"steps": [{"node": "B"}]}, {"repeat": 2, "steps": [{"events": [{"type": "PROCESSING", "payload": "{n} {step}"}]}]}]}
	]}`), -1)
	if err != nil || c.Name != "script:x" || c.First != "A" || len(c.Nodes) != 3 {
		t.Fatalf("got %+v, error %v", c, err)
	}
	var got []string
	next, state := c.First, json.RawMessage(nil)
	for next != "" {
		r, err := c.Nodes[next].Visit(t.Context(), Run{}, state)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range r.Events {
			got = append(got, next+string(e.Payload))
		}
		next, state = r.Next, r.State
	}
	want := `[A{"s":"0001","n":"1"} Step"1 0003" Step"2 0004" Step"1 0006" Step"2 0007"]`
	if fmt.Sprint(got) != want {
		t.Errorf("got  %v\nwant %s", got, want)
	}
	for _, state := range []string{`7`, `-1`, `"1"`, `{`} {
		if r, err := c.Nodes["A"].Visit(t.Context(), Run{}, json.RawMessage(state)); err == nil ||
			!strings.Contains(err.Error(), "one of 7 steps") {
			t.Errorf("with state %s it played %+v, error %v", state, r, err)
		}
	}
}

func TestScriptErrorsNameTheStep(t *testing.T) {
	t.Parallel()
	steps := func(s string) string { return `{"name": "x", "steps": [{"wait": "1s"}, ` + s + `]}` }
	for script, want := range map[string]string{
		``:                                     "EOF",
		`{"name": "x"}`:                        "steps is empty",
		`{"steps": [{}]}`:                      "name is required",
		`{"nam": "x"}`:                         `unknown field "nam"`,
		`{"name": "x"} {}`:                     "something behind its end",
		steps(`{"wate": "1s"}`):                `unknown field "wate"`,
		steps(`{"wait": "1"}`):                 "missing unit",
		steps(`{"wait": "-1s"}`):               "-1s is negative",
		steps(`{"repeat": -1, "steps": [{}]}`): "steps[1]: repeat is -1",
		steps(`{"repeat": 2}`):                 "steps[1].steps is empty",
		steps(`{"wait": "1s", "steps": [{}]}`): "steps[1]: repeat and steps make it a list",
		steps(`{"steps": [{"events": [{"type": "RUN_STARTED"}]}]}`): "steps[1].steps[0]: events[0].type " +
			"RUN_STARTED cannot be appended",
		steps(`{"events": [{"type": "A"}, {"type": "a", "payload": 1}]}`):     "steps[1]: events[1].type must be of",
		steps(`{"events": [{"type": "A", "payload": "\u0000"}]}`):             "steps[1]: events[0].payload contains",
		steps(`{"repeat": 1000, "steps": [{"repeat": 1000, "steps": [{}]}]}`): "more than 100000 steps",
	} {
		if c, err := Script("f.json", strings.NewReader(script), 1); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(err.Error(), "read script f.json: ") {
			t.Errorf("%s: got %+v, error %v, want %s", script, c, err, want)
		}
	}
}
