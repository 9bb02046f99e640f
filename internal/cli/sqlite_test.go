package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A file that cannot be used ends every command at once, with the remedy: nobody else is going to
// mend it.
func TestSQLiteRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign := file("foreign.txt", "not a database\n")
	for _, f := range []struct {
		path string
		code int
		says string
	}{
		{filepath.Join(dir, "absent.db"), 1, "outbox migrate up"},
		{foreign, 1, "nothing was changed in this one"},
		{dir, 1, "name a file in it"},
		{file("nothing.db", ""), 1, "outbox migrate up without --set"},
		{spoiled(t, dir), 1, "damaged"},
		{"", 2, "names no file"},
		{":memory:", 2, "gone with the process"},
		{"x.db?mode=ro", 2, "write the file's path alone"},
		{"~/x.db", 2, "~ is not expanded"},
	} {
		for _, command := range []string{"serve --sink memory: --http 127.0.0.1:0 --auth none",
			"relay --sink unix:///no/such", "write --topic a", "events", "lanes", "dlq list", "token list", "purge --yes"} {
			if f.says == "damaged" && !strings.HasPrefix(command, "serve") && !strings.HasPrefix(command, "relay") {
				continue // only who serves a file reads all of it first
			}
			e := env{t: t, database: "sqlite:" + f.path}
			if r := e.run("1", strings.Fields(command)...); r.code != f.code || !strings.Contains(r.err, f.says) || r.out != "" {
				t.Errorf("%s on %s: exit code %d, want %d and %q:\n%s%s", command, f.path, r.code, f.code, f.says, r.out, r.err)
			}
		}
	}
	status := env{t: t, database: "sqlite:" + filepath.Join(dir, "absent.db")}
	if r := status.run("", "migrate", "status"); r.code != 0 || !strings.Contains(r.out, "absent") ||
		!strings.Contains(r.err, "absent.db does not exist") {
		t.Errorf("migrate status: exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	for path, says := range map[string]string{filepath.Join(dir, "no", "such.db"): "folder",
		foreign: "no SQLite database"} {
		e := env{t: t, database: "sqlite:" + path}
		if r := e.run("", "migrate", "up"); r.code != 1 || !strings.Contains(r.err, says) {
			t.Errorf("migrate up on %s: exit code %d, want 1 and %q:\n%s", path, r.code, says, r.err)
		}
	}
	if text, err := os.ReadFile(foreign); err != nil || string(text) != "not a database\n" {
		t.Errorf("the foreign file has %q, error %v", text, err)
	}
}

// spoiled returns a file with tables, some pages of which are zeros.
func spoiled(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "spoiled.db")
	env{t: t, database: "sqlite:" + path}.ok("", "migrate", "up")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for page := int64(20); page < 40; page++ {
		if _, err := f.WriteAt(make([]byte, 4096), page*4096); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// The parts of a process close the file together: what is left is the file alone, and everything is
// in it.
func TestSQLiteLeavesACleanFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a b#c%64.db")
	e := env{t: t, database: "sqlite://" + path}
	e.ok("", "migrate", "up", "--set", "core,crawl")
	g := e.serving("--sink", "memory:", "--auth", "none")
	lines := g.topic("order.placed")
	id := strings.TrimSpace(e.ok(`{"total":12}`, "write", "--topic", "order.placed"))
	awaitLine(t, lines, id)
	g.signal(syscall.SIGTERM)
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
	contains(t, e.ok("", "events", "show", id), "SENT", `{"total":12}`)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left are %v, error %v, want the file alone", left, err)
	}
}
