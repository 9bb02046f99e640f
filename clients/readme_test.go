package clients

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// example returns the block of a client's README that has a text.
func example(t *testing.T, readme, text string) string {
	t.Helper()
	page, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```[a-z]+\n(.*?)^```$").FindAllStringSubmatch(string(page), -1) {
		if strings.Contains(m[1], text) {
			return m[1]
		}
	}
	t.Fatalf("%s: no example has %q", readme, text)
	return ""
}

// The examples are run as they stand.
func TestReadmes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	run := w.run1(t)
	w.post(t, "/v1/runs/"+run+"/complete", "{}")
	out := w.run("typescript", "env", "RUN="+run, "node", "--input-type=module", "--eval",
		example(t, "typescript/README.md", "runEvents(run)"))
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[2], "3 RUN_COMPLETED") {
		t.Errorf("the stream is %q", lines)
	}
	w.run("python", "env", "PYTHONPATH=src", python(t), "-c", example(t, "python/README.md", "write(connection"))
	if n := w.query("SELECT count(*) FROM outbox_events WHERE aggregate_id = '42'"); n != 1 {
		t.Errorf("%d events were written", n)
	}
}
