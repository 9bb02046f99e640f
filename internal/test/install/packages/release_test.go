package packages

import (
	"debug/elf"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// What is released is whole: each file has its checksum and the checksums their signature, and what
// they sign is noticed when it is another.
func TestSignedChecksums(t *testing.T) {
	tier.All(t)
	folder := dist(t, first)
	check := exec.Command("sha256sum", "--check", "--strict", "checksums.txt")
	check.Dir = folder
	checked := strings.Count(testenv.Run(t, check), ": OK")
	entries, err := os.ReadDir(folder)
	noError(t, err)
	if want := len(entries) - 2; checked != want || want < 4 { // the checksums, and their signature
		t.Errorf("%d of %d files have a checksum", checked, want)
	}
	for _, e := range entries {
		info, err := e.Info()
		noError(t, err)
		t.Logf("%9d %s", info.Size(), e.Name())
	}
	public, err := os.ReadFile(dist(t, "key.pub"))
	noError(t, err)
	signers := filepath.Join(t.TempDir(), "signers")
	noError(t, os.WriteFile(signers, append([]byte("release "), public...), 0o600))
	verify := func(text string) error {
		cmd := exec.Command("ssh-keygen", "-Y", "verify", "-n", "outbox-release", "-f", signers, "-I", "release", "-s",
			filepath.Join(folder, "checksums.txt.sig"))
		cmd.Stdin = strings.NewReader(text)
		return cmd.Run()
	}
	text, err := os.ReadFile(filepath.Join(folder, "checksums.txt"))
	noError(t, err)
	noError(t, verify(string(text)))
	if verify("0"+string(text[1:])+" ") == nil {
		t.Error("checksums that nobody has signed are verified")
	}
}

// The archive has the program, which needs no library of the system, its manual and its
// completions; the SBOM names what is compiled in.
func TestArchive(t *testing.T) {
	tier.All(t)
	there := unpack(t)
	program, err := elf.Open(filepath.Join(there, "outbox"))
	noError(t, err)
	defer program.Close()
	if libraries, err := program.ImportedLibraries(); err != nil || len(libraries) > 0 {
		t.Errorf("it needs %v (%v)", libraries, err)
	}
	for _, name := range []string{"man/outbox.1", "man/outbox-relay.1", "completion/outbox.bash",
		"completion/outbox.zsh", "completion/outbox.fish", "outbox.service", "outbox.yaml", "LICENSE", "README.md",
		"CHANGELOG.md"} {
		if info, err := os.Stat(filepath.Join(there, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s is missing", name)
		}
	}
	var bom struct {
		BOMFormat  string
		Metadata   struct{ Component struct{ Version string } }
		Components []struct{ Name, Version string }
	}
	text, err := os.ReadFile(file(t, first, "*.cdx.json"))
	noError(t, err)
	noError(t, json.Unmarshal(text, &bom))
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != "v"+first || len(bom.Components) < 30 ||
		!strings.Contains(string(text), `"github.com/jackc/pgx/v5"`) {
		t.Errorf("the SBOM is a %q of %s with %d components", bom.BOMFormat, bom.Metadata.Component.Version,
			len(bom.Components))
	}
}

func unpack(t *testing.T) (folder string) {
	t.Helper()
	dir := t.TempDir()
	testenv.Run(t, exec.Command("tar", "-xzf", file(t, first, "*.tar.gz"), "-C", dir))
	found, err := filepath.Glob(dir + "/outbox_*")
	noError(t, err)
	if len(found) != 1 {
		t.Fatalf("the archive has %v", found)
	}
	return found[0]
}

// On a machine without Go the archive is enough: unpacked, started, and an event is delivered.
func TestFirstEventWithoutGo(t *testing.T) {
	tier.All(t)
	dir, began := t.TempDir(), time.Now()
	const path = "/usr/bin:/bin"
	if found, err := exec.Command("/usr/bin/env", "PATH="+path, "sh", "-c", "command -v go").Output(); err == nil {
		t.Fatalf("Go is at %s", found)
	}
	cmd := exec.Command("/bin/sh", "-ec", `
tar -xzf "$ARCHIVE"
cd outbox_*
export OUTBOX_DATABASE_URL=sqlite:first.db
./outbox migrate up >&2
echo '{"total": 12}' | ./outbox write --topic order.placed >&2
exec ./outbox relay`)
	redis := redisServer(t)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + path, "ARCHIVE=" + file(t, first, "*.tar.gz"),
		"OUTBOX_SINK=redis+stream://" + redis.addr + "?create=true"}
	background(t, cmd)
	testenv.Eventually(t, "the event is delivered", func() bool { return len(redis.events(t, "order.placed")) == 1 })
	t.Logf("first event delivered %.1f s after unpacking began", time.Since(began).Seconds())
}

// The same sources give the same files, whatever the folder and whatever was built before.
func TestBuiltTwice(t *testing.T) {
	tier.All(t)
	cmd := exec.Command("bash", filepath.Join(root, "scripts/release.sh"), "--twice")
	cmd.Env = append(os.Environ(), "TARGETS="+target, "VERSION=v"+first)
	out := testenv.Run(t, cmd)
	if !strings.Contains(out, "equal files") || strings.Count(out, "  outbox") < 4 {
		t.Errorf("it says\n%s", out)
	}
	t.Log(out)
}

// A machine that Go knows nothing of is refused before anything is built.
func TestUnknownArchitecture(t *testing.T) {
	tier.All(t)
	cmd := exec.Command("bash", filepath.Join(root, "scripts/release.sh"))
	out := filepath.Join(t.TempDir(), "dist")
	cmd.Env = append(os.Environ(), "TARGETS=linux/amd64 linux/vax", "OUT="+out)
	said, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(said), "Go builds nothing for linux/vax") {
		t.Errorf("%v: %s", err, said)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("something was built")
	}
}
