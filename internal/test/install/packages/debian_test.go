package packages

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/testenv"
)

// debian is a root of its own, in which packages are installed. Its network is the machine's.
type debian struct{ root string }

// base has the files of a small Debian. Fetching them takes a minute or more, so they are kept.
const base = "/var/cache/outbox/debian-bookworm.tar"

func newDebian(t *testing.T) *debian {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a Debian of the test's own needs root")
	}
	if _, err := os.Stat(base); err != nil {
		noError(t, os.MkdirAll(filepath.Dir(base), 0o755))
		making := base + ".making.tar"
		testenv.Run(t, exec.Command("mmdebstrap", "--quiet", "--variant=minbase", "bookworm", making))
		noError(t, os.Rename(making, base))
	}
	d := &debian{t.TempDir()}
	noError(t, os.Chmod(d.root, 0o755)) // for user outbox
	noError(t, os.Chmod(filepath.Dir(d.root), 0o755))
	testenv.Run(t, exec.Command("tar", "-xpf", base, "-C", d.root, "--exclude=./dev/*"))
	// The programs of a package may ask for these.
	testenv.Run(t, exec.Command("cp", "-a", "/dev/null", "/dev/urandom", d.path("/dev")))
	return d
}

func (d *debian) path(name string) string { return filepath.Join(d.root, name) }

// run runs a command in it as root and returns what it printed.
func (d *debian) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command("chroot", append([]string{d.root}, args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C",
		"DEBIAN_FRONTEND=noninteractive"}
	return testenv.Run(t, cmd)
}

// fails is run for what must not succeed.
func (d *debian) fails(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("chroot", append([]string{d.root}, args...)...)
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("%v succeeds: %s", args, out)
	}
}

// install has dpkg install the package of a version.
func (d *debian) install(t *testing.T, version string) {
	t.Helper()
	testenv.Run(t, exec.Command("cp", file(t, version, "*.deb"), d.path("/outbox.deb")))
	d.run(t, "dpkg", "--install", "/outbox.deb")
}

// write writes a file that only root may read.
func (d *debian) write(t *testing.T, name, text string) {
	t.Helper()
	noError(t, os.MkdirAll(filepath.Dir(d.path(name)), 0o755))
	noError(t, os.WriteFile(d.path(name), []byte(text), 0o600))
}

// unit is a value of the unit that is installed.
func (d *debian) unit(t *testing.T, key string) (values []string) {
	t.Helper()
	text, err := os.ReadFile(d.path("/usr/lib/systemd/system/outbox.service"))
	noError(t, err)
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		t.Fatalf("the unit has no %s", key)
	}
	return values
}

// start does what systemd would do for the unit, as far as a process sees it: its user,
// credentials, variables and command. It returns when the process has said READY=1.
func (d *debian) start(t *testing.T) *daemon {
	t.Helper()
	if kind := d.unit(t, "Type"); kind[0] != "notify" {
		t.Fatalf("Type=%s", kind)
	}
	user := d.unit(t, "User")[0]
	state, credentials := "/var/lib/"+d.unit(t, "StateDirectory")[0], "/run/credentials/outbox.service"
	noError(t, os.MkdirAll(d.path(credentials), 0o755))
	for _, name := range d.unit(t, "LoadCredential") {
		text, err := os.ReadFile(d.path("/etc/credstore/" + name))
		noError(t, err)
		noError(t, os.WriteFile(d.path(credentials+"/"+name), text, 0o600))
	}
	d.run(t, "chown", "-R", user, credentials)
	d.run(t, "install", "-d", "-m", "0700", "-o", user, "-g", user, state)

	socket := d.path("/run/notify")
	_ = os.Remove(socket)
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	noError(t, err)
	defer conn.Close()
	noError(t, os.Chmod(socket, 0o777))

	args := append([]string{"--userspec=" + user + ":" + d.unit(t, "Group")[0], d.root},
		strings.Fields(d.unit(t, "ExecStart")[0])...)
	cmd := exec.Command("chroot", args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "NOTIFY_SOCKET=/run/notify", "WATCHDOG_USEC=120000000"}
	for _, variables := range d.unit(t, "Environment") {
		cmd.Env = append(cmd.Env, strings.Fields(strings.ReplaceAll(variables, "%d", credentials))...)
	}
	for _, name := range d.unit(t, "EnvironmentFile") {
		text, err := os.ReadFile(d.path(strings.TrimPrefix(name, "-")))
		noError(t, err)
		cmd.Env = append(cmd.Env, strings.Fields(string(text))...)
	}
	p := background(t, cmd)
	ready := make(chan struct{})
	go func() {
		text := make([]byte, 64<<10)
		for {
			n, err := conn.Read(text)
			if err != nil {
				return
			}
			for lines := bufio.NewScanner(strings.NewReader(string(text[:n]))); lines.Scan(); {
				if lines.Text() == "READY=1" {
					close(ready)
					return
				}
			}
		}
	}()
	select {
	case <-ready:
	case <-p.ended:
		t.Fatalf("it ended: %s", &p.log)
	case <-time.After(5 * time.Minute):
		t.Fatal("it does not become ready")
	}
	return p
}

// mode is what ls says of a file: its mode, owner and group.
func (d *debian) mode(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(d.run(t, "stat", "--format=%a %U:%G", name))
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
