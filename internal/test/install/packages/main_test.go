package packages

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

const root = "../../../.."

// The releases under test: the second is what the first is upgraded to.
const (
	first  = "0.1.0"
	second = "0.2.0"
)

// dist is where they are, each in a folder of its version.
var dist string

// TestMain builds two releases for this machine, the first of them signed.
func TestMain(m *testing.M) {
	var err error
	if dist, err = os.MkdirTemp("", "outbox-dist-"); err == nil {
		err = release()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testenv.Main(m)
	_ = os.RemoveAll(dist) // a temporary directory
}

func key() string { return filepath.Join(dist, "key") }

func release() error {
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a key: %w\n%s", err, out)
	}
	for version, env := range map[string]string{first: "OUTBOX_SIGNING_KEY=" + key(), second: ""} {
		cmd := exec.Command("bash", filepath.Join(root, "scripts/release.sh"))
		cmd.Env = append(os.Environ(), "VERSION=v"+version, "TARGETS="+target, "OUT="+filepath.Join(dist, version), env)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("release %s: %w\n%s", version, err, out)
		}
	}
	return nil
}

const target = "linux/amd64"

// file returns the one of a release's files that a pattern fits.
func file(t *testing.T, version, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, version, pattern))
	noError(t, err)
	if len(found) != 1 {
		t.Fatalf("%s of %s is %v", pattern, version, found)
	}
	return found[0]
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// log collects what a process writes.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
