package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// A credential that is missing is named, with the file; one that is there counts.
func TestCredentials(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	path, err := binary()
	noError(t, err)
	dir := t.TempDir()
	file := filepath.Join(dir, "outbox.database-url")
	ask := func(env ...string) (string, int) {
		cmd := exec.Command(path, "config", "print", "-o", "json")
		cmd.Env = append(env, "OUTBOX_DATABASE_URL_FILE="+file, "PATH="+os.Getenv("PATH"))
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	want := func(out string, code, wanted int, texts ...string) {
		t.Helper()
		for _, text := range texts {
			if code != wanted || !strings.Contains(out, text) || strings.Contains(out, "hunter2") {
				t.Errorf("exit code %d, want %d and %q:\n%s", code, wanted, text, out)
			}
		}
	}
	out, code := ask()
	want(out, code, 2, "OUTBOX_DATABASE_URL_FILE: open "+file+
		": no such file or directory: put the value of database there")
	noError(t, os.WriteFile(file, nil, 0o600))
	out, code = ask()
	want(out, code, 2, file+" is empty")
	noError(t, os.WriteFile(file, make([]byte, 64<<10+1), 0o600))
	out, code = ask()
	want(out, code, 2, "more than 65536 bytes")
	noError(t, os.WriteFile(file, []byte("postgres://relay:hunter2@db.example/shop\n"), 0o600))
	out, code = ask()
	want(out, code, 0, "db.example", `"from": "OUTBOX_DATABASE_URL_FILE"`)
	out, code = ask("OUTBOX_DATABASE_URL=postgres://relay@other.example/shop")
	want(out, code, 0, "other.example")
}
