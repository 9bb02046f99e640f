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

// releases is the folder of the releases, each in a folder of its version. TestMain removes it.
var releases string

func TestMain(m *testing.M) {
	testenv.Main(m)
	_ = os.RemoveAll(releases) // a temporary directory, or none
}

// build builds two releases for this machine once, the first of them signed.
var build = sync.OnceValue(func() (err error) {
	if releases, err = os.MkdirTemp("", "outbox-dist-"); err != nil {
		return err
	}
	key := filepath.Join(releases, "key")
	out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "release", "-f", key).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make a key: %w\n%s", err, out)
	}
	for version, env := range map[string]string{first: "OUTBOX_SIGNING_KEY=" + key, second: ""} {
		cmd := exec.Command("bash", filepath.Join(root, "scripts/release.sh"))
		cmd.Env = append(os.Environ(), "VERSION=v"+version, "TARGETS="+target, "OUT="+filepath.Join(releases, version), env)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("release %s: %w\n%s", version, err, out)
		}
	}
	return nil
})

// dist returns the path of a file in the folder of the releases, which it builds if they are not built.
func dist(t *testing.T, elements ...string) string {
	t.Helper()
	noError(t, build())
	return filepath.Join(append([]string{releases}, elements...)...)
}

const target = "linux/amd64"

// file returns the one of a release's files that a pattern fits.
func file(t *testing.T, version, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(dist(t, version, pattern))
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
