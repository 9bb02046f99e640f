package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

const mostBytes = 30 << 20 // compressed

func TestMain(m *testing.M) { testenv.Main(m) }

// Two builds, each of a folder of its own, are one image, whole and small, of a static program for
// each architecture.
func TestImage(t *testing.T) {
	path, digest := built(t)
	if again, second := built(t); digest != second {
		t.Errorf("two builds differ: %s is %s, %s is %s", path, digest, again, second)
	}
	index := opened(t, path)
	if of, err := index.Digest(); err != nil || of.String() != digest {
		t.Errorf("the script says %s, the layout %s, %v", digest, of, err)
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		image := imageFor(t, index, arch)
		if err := validate.Image(image); err != nil {
			t.Errorf("%s: %v", arch, err)
		}
		checkConfig(t, image, arch)
		if size := compressed(t, image); size > mostBytes {
			t.Errorf("%s has %d bytes, want %d at most", arch, size, mostBytes)
		} else {
			t.Logf("%s: %.1f MB compressed, index %s", arch, float64(size)/1e6, digest)
		}
		checkStatic(t, filepath.Join(unpacked(t, image), program), machine)
	}
}

func checkConfig(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	c, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if c.Architecture != arch || c.OS != "linux" || c.Config.User != user || c.Created.IsZero() {
		t.Errorf("%s is %s/%s for user %q of %s", arch, c.OS, c.Architecture, c.Config.User, c.Created)
	}
	for _, label := range []string{"version", "revision", "source", "created"} {
		if c.Config.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("%s has no label for its %s", arch, label)
		}
	}
}

func checkStatic(t *testing.T, path string, machine elf.Machine) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dynamic := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
	if f.Machine != machine || dynamic {
		t.Errorf("the program is for %s, dynamic: %v; want %s", f.Machine, dynamic, machine)
	}
}

// The image delivers as it would in a cluster: a user without rights, on a file system that takes
// no writes.
func TestImageDelivers(t *testing.T) {
	path, _ := built(t)
	root := unpacked(t, imageFor(t, opened(t, path), "amd64"))
	server := testenv.PostgresServer(t, testenv.PostgresConfig{})
	redis := testenv.RedisServer(t)
	address := free(t)
	in := container{t, root, []string{"OUTBOX_DATABASE_URL=" + server.TCPURL("postgres"),
		"OUTBOX_SINK=" + redis.URL(), "OUTBOX_LISTEN=" + address}}

	if out, err := in.run("", "version"); err != nil || !strings.Contains(out, "VERSION") {
		t.Fatalf("version: %v\n%s", err, out)
	}
	if out, err := in.run("", "init", "--file", "/outbox.yaml"); err == nil || !strings.Contains(out, "read-only file system") {
		t.Errorf("a file can be written: %v\n%s", err, out)
	}
	if out, err := in.run("", "migrate", "up"); err != nil {
		t.Fatalf("migrate up: %v\n%s", err, out)
	}
	if out, err := in.run("", "ready"); err == nil || !strings.Contains(out, "connection refused") {
		t.Errorf("it is ready before there is a relay: %v\n%s", err, out)
	}
	relay := in.start("relay")
	in.until("ready", func() bool { _, err := in.run("", "ready"); return err == nil })
	if uid := owner(t, relay.Process.Pid); uid != strings.Split(user, ":")[0] {
		t.Errorf("the relay runs as user %s", uid)
	}
	tail := in.command("tail", "order.placed")
	seen := new(written)
	tail.Stdout = seen
	in.launch(tail)
	// The tail listens at some time: events are written until it has seen one.
	in.until("an event arrives", func() bool {
		if out, err := in.run(`{"id": 42}`, "write", "--topic", "order.placed", "--key", "42"); err != nil {
			t.Fatalf("write: %v\n%s", err, out)
		}
		return strings.Contains(seen.String(), `"id": 42`) || strings.Contains(seen.String(), `"id":42`)
	})
	if err := redis.Kill(); err != nil {
		t.Fatal(err)
	}
	in.until("not ready", func() bool {
		out, err := in.run("", "ready")
		return err != nil && strings.Contains(out, "not ready: ") && strings.Contains(out, "Redis")
	})
}

// What cannot be meant is refused and leaves nothing.
func TestImageRefuses(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image")
	for want, try := range map[string]struct {
		out, epoch string
		programs   []string
	}{
		"SOURCE_DATE_EPOCH":  {out, "yesterday", []string{"amd64=image_test.go"}},
		"that is not there":  {t.TempDir(), "1", []string{"amd64=image_test.go"}},
		"no program":         {out, "1", nil},
		"with amd64 or":      {out, "1", []string{"s390x=image_test.go"}},
		"no such file or di": {out, "1", []string{"amd64=nothing"}},
	} {
		if err := new(build).write(try.out, try.epoch, try.programs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", try, err, want)
		}
		if _, err := os.Stat(out); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v leaves something: %v", try, err)
		}
	}
}

// built runs the script of make image.
func built(t *testing.T) (path, digest string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "image")
	cmd := exec.CommandContext(t.Context(), "bash", "../../scripts/image.sh", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return path, strings.TrimSpace(string(out))
}

// opened is the index of a layout, which has one.
func opened(t *testing.T, path string) v1.ImageIndex {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := outer.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("the layout names %+v, %v", manifest, err)
	}
	index, err := outer.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func imageFor(t *testing.T, index v1.ImageIndex, arch string) v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if m.Platform.Architecture == arch && m.Platform.OS == "linux" {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
	}
	t.Fatalf("the index has no image for %s: %+v", arch, manifest)
	return nil
}

func compressed(t *testing.T, image v1.Image) (size int64) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			t.Fatal(err)
		}
		size += n
	}
	return size
}

// unpacked is the image's file system, owned by root.
func unpacked(t *testing.T, image v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	content := mutate.Extract(image)
	defer content.Close()
	cmd := exec.CommandContext(t.Context(), "tar", "-x", "--no-same-permissions", "-C", dir)
	cmd.Stdin = content
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v\n%s", err, out)
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil { //nolint:gosec // another user is to run what is there
			t.Fatal(err)
		}
	}
	return dir
}

// container runs what an unpacked image has as its user, on a file system that is read-only. The
// mount is in a namespace of the process, and goes with it. Only root may.
type container struct {
	t    *testing.T
	root string
	env  []string
}

func (c container) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), "unshare", append([]string{"--mount", "--propagation", "private", "sh", "-ec",
		`mount --bind -o ro "$0" "$0"; exec chroot --userspec=` + user + ` "$0" /` + program + ` "$@"`, c.root}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, c.env...)
	return cmd
}

func (c container) run(stdin string, args ...string) (string, error) {
	cmd := c.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (c container) start(args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := c.command(args...)
	log := new(written)
	cmd.Stdout, cmd.Stderr = log, log
	c.launch(cmd)
	c.t.Cleanup(func() {
		if c.t.Failed() {
			c.t.Logf("outbox %v wrote:\n%s", args, log)
		}
	})
	return cmd
}

func (c container) launch(cmd *exec.Cmd) {
	c.t.Helper()
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill() // the test's context may have done it
		_ = cmd.Wait()
	})
}

func (c container) until(what string, holds func() bool) {
	c.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > tier.Patience() {
			c.t.Fatalf("never: %s", what)
		}
	}
}

// written is what a process has written so far.
type written struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *written) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(b)
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// free is a loopback address that nobody listens on.
func free(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// owner is the user that a process runs as.
func owner(t *testing.T, pid int) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ps", "-o", "uid=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
