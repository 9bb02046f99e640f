package integration

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

// architecture has the walk between these lines.
const (
	architecture = "../../../docs/architecture.md"
	walkBegins   = "<!-- walk: written by TestWalk -->\n"
	walkEnds     = "<!-- /walk -->\n"
)

// The files that an event executes on its way, from Write to the sink's answer, are those that
// docs/architecture.md names. OUTBOX_WALK=write writes them there.
func TestWalk(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	folder := t.TempDir()
	program := filepath.Join(folder, "walk")
	run(t, "go", "build", "-cover", "-covermode=atomic", "-coverpkg=github.com/outboxrelay/outbox/...", "-o", program,
		"./walk")
	page, err := os.ReadFile(architecture)
	noError(t, err)
	before, rest, ok := strings.Cut(string(page), walkBegins)
	known, after, ends := strings.Cut(rest, walkEnds)
	if !ok || !ends {
		t.Fatalf("%s has no place for the walk", architecture)
	}
	database := testenv.Database(t)
	noError(t, migrations.Up(t.Context(), database, "core"))
	redis := "redis://" + testenv.RedisServer(t).Addr()
	var walked string
	for n := 0; n == 0 || n < 3 && walked != known; n++ { // on a busy machine an idle relay may claim, and ping
		walked = walk(t, program, database, redis, filepath.Join(folder, strconv.Itoa(n)))
	}
	if os.Getenv("OUTBOX_WALK") == "write" {
		noError(t, os.WriteFile(architecture, []byte(before+walkBegins+walked+walkEnds+after), 0o600))
	} else if known != walked {
		t.Errorf("%s names other files: run this test with OUTBOX_WALK=write. It has:\n%s", architecture, known)
	}
}

// walk executes the program and returns what it has executed, for the page.
func walk(t *testing.T, program, database, redis, folder string) string {
	t.Helper()
	noError(t, os.Mkdir(folder, 0o700))
	run(t, program, database, redis, folder)
	idle := executed(t, filepath.Join(folder, "idle"))
	written := without(executed(t, filepath.Join(folder, "write")), idle)
	published := without(without(executed(t, filepath.Join(folder, "publish")), idle), written)
	if len(idle) == 0 || len(written) == 0 || len(published) == 0 {
		t.Fatalf("executed by an idle relay %v, to write %v, to publish %v", idle, written, published)
	}
	var b strings.Builder
	list := func(title string, files []string) {
		b.WriteString("\n" + title + ":\n\n    " + strings.Join(files, "\n    ") + "\n")
	}
	list("To write", written)
	list("From the claim to the sink's answer, beyond what an idle relay executes", published)
	b.WriteString("\n")
	t.Logf("%d files to write, %d to publish, %d idle:\n%s\n%s", len(written), len(published), len(idle), b.String(),
		strings.Join(idle, "\n"))
	return b.String()
}

// executed are the files of which something was executed, without the module's path.
func executed(t *testing.T, folder string) []string {
	t.Helper()
	profile := filepath.Join(folder, "profile")
	run(t, "go", "tool", "covdata", "textfmt", "-i="+folder, "-o="+profile)
	text, err := os.ReadFile(profile)
	noError(t, err)
	files := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		file, block, _ := strings.Cut(strings.TrimSpace(line), ":")
		file = strings.TrimPrefix(file, "github.com/outboxrelay/outbox/")
		if block != "" && !strings.HasSuffix(block, " 0") && strings.HasSuffix(file, ".go") &&
			!strings.HasPrefix(file, "internal/test/") {
			files[file] = true
		}
	}
	return slices.Sorted(maps.Keys(files))
}

func without(all, those []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(file string) bool { return slices.Contains(those, file) })
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}
