package packages

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

const module = "github.com/outboxrelay/outbox"

// block is what the README has one type to install in a way.
func block(t *testing.T, way string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	noError(t, err)
	found := regexp.MustCompile("(?s)<!-- install: " + way + " -->\n```sh\n(.*?)```\n").FindSubmatch(text)
	if found == nil {
		t.Fatalf("the README has no block for %s", way)
	}
	return string(found[1])
}

// The README's lines for an archive and for a package do what they say, where there is nothing but
// them.
func TestReadmeOnDebian(t *testing.T) {
	tier.All(t)
	for way, pattern := range map[string]string{"archive": "*.tar.gz", "package": "*.deb"} {
		d := newDebian(t)
		testenv.Run(t, exec.Command("cp", file(t, first, pattern), d.path("/root")))
		out := d.run(t, "sh", "-ec", "cd /root\n"+block(t, way))
		if !strings.Contains(out, "v"+first+" ") {
			t.Errorf("%s: it prints\n%s", way, out)
		}
	}
}

// Go installs the module from a proxy, and the program has the module's version.
func TestReadmeGoInstall(t *testing.T) {
	tier.All(t)
	proxy := filepath.Join(t.TempDir(), "cache")
	folder := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	noError(t, os.MkdirAll(folder, 0o755))
	const version = "v0.1.0"
	put := func(name, text string) {
		noError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	git := func(args ...string) string {
		return testenv.Run(t, exec.Command("git", append([]string{"-C", root}, args...)...))
	}
	put("list", version+"\n")
	put(version+".info", `{"Version": "`+version+`", "Time": "2026-11-26T00:00:00Z"}`)
	put(version+".mod", git("show", "HEAD:go.mod"))
	pack := []string{"archive", "--format=zip", "--prefix=" + module + "@" + version + "/", "-o",
		filepath.Join(folder, version+".zip"), "HEAD", "--", "."}
	for _, nested := range strings.Fields(git("ls-files", "*/go.mod")) {
		pack = append(pack, ":!"+filepath.Dir(nested)) // a module of its own
	}
	git(pack...)
	gopath := t.TempDir()
	cache := strings.TrimSpace(testenv.Run(t, exec.Command("go", "env", "GOMODCACHE")))
	cmd := exec.Command("sh", "-ec", block(t, "go"))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOPATH="+gopath, "GOMODCACHE="+filepath.Join(gopath, "mod"),
		// As the release was compiled, of which it takes what it can; of the sums those of the
		// other modules are known.
		"GOFLAGS=-modcacherw -trimpath -buildvcs=false", "CGO_ENABLED=0", "GOSUMDB=off",
		"GOPROXY=file://"+proxy+",file://"+filepath.Join(cache, "cache", "download"), "GOBIN=")
	if out := testenv.Run(t, cmd); !strings.Contains(out, version+" ") {
		t.Errorf("it prints\n%s", out)
	}
}

// The source is built from a clone. Of the address alone the test makes that of this repository.
func TestReadmeSource(t *testing.T) {
	tier.All(t)
	here, err := filepath.Abs(root)
	noError(t, err)
	cmd := exec.Command("sh", "-ec", block(t, "source"))
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "GOFLAGS=-trimpath -buildvcs=false", "CGO_ENABLED=0",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+here+".insteadOf",
		"GIT_CONFIG_VALUE_0=https://"+module)
	if out := testenv.Run(t, cmd); !regexp.MustCompile(`(?m)^(v0|devel)`).MatchString(out) {
		t.Errorf("it prints\n%s", out)
	}
}
