package testenv

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// Where packagers put servers that are not on PATH: Debian and Ubuntu, Red Hat, Homebrew on ARM and
// on Intel.
var serverDirs = []string{
	"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
	"/opt/homebrew/bin", "/usr/local/bin", "/usr/sbin",
}

// findProgram returns the path of a server program: the one on PATH, or the last of the first
// serverDirs pattern that has it (postgresql/16 sorts after postgresql/15).
func findProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range serverDirs {
		found, err := filepath.Glob(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("find %s: %w", name, err)
		}
		found = slices.DeleteFunc(found, func(path string) bool {
			_, err := exec.LookPath(path) // a link may lead to a program that was removed
			return err != nil
		})
		if len(found) > 0 {
			return slices.Max(found), nil
		}
	}
	return "", fmt.Errorf("find %s: %w; run: make deps", name, errMissing)
}

// errMissing is the error of a program that is not installed.
var errMissing = errors.New("not installed")

// ExamplesNeed leaves out the examples of a package whose server is not installed, unless a tier
// was selected: examples cannot be skipped otherwise. TestMain calls it.
func ExamplesNeed(program string) {
	if _, err := find(program); err != nil && os.Getenv(tier.Variable) == "" {
		_ = flag.Set("test.skip", "^Example") // the flag exists and takes any pattern
	}
}

// Installed ends t unless the servers' programs are installed. See [tier.Missing].
func Installed(t testing.TB, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := find(name); err != nil {
			fatal(t, err)
		}
	}
}

// find returns the path of a server's program.
func find(name string) (string, error) {
	switch name {
	case "initdb":
		return findInitdb()
	case "chromium":
		return findBrowser()
	case "rabbitmq-server":
		return findRabbitMQ()
	}
	return findProgram(name)
}

// fatal ends t with an error of a Start function. See [tier.Missing] for a missing program.
func fatal(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errMissing) {
		tier.Missing(t, err)
	}
	t.Fatal(err)
}

// postgresVariable names the PostgreSQL server of the tests: the folder of its programs, or a major
// version, which is looked for where packages put it and where `make deps POSTGRES=18` does.
// Without it the tests take any (findProgram).
const postgresVariable = "OUTBOX_TEST_POSTGRES"

// findInitdb returns the path of the initdb beside the server that is wanted.
func findInitdb() (string, error) {
	wanted := os.Getenv(postgresVariable)
	if wanted == "" {
		return findProgram("initdb")
	}
	dirs := []string{wanted}
	if version, err := strconv.Atoi(wanted); err == nil {
		cache, err := os.UserCacheDir()
		if err != nil || os.Getuid() == 0 { // root's servers run as another user, who does not get into root's home
			cache = "/var/cache"
		}
		dirs = []string{
			fmt.Sprintf("/usr/lib/postgresql/%d/bin", version), fmt.Sprintf("/usr/pgsql-%d/bin", version),
			fmt.Sprintf("/opt/homebrew/opt/postgresql@%d/bin", version),
			filepath.Join(cache, "outbox", fmt.Sprintf("postgres-%d", version), "bin"),
		}
	}
	for _, dir := range dirs {
		if path, err := exec.LookPath(filepath.Join(dir, "initdb")); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("find initdb of PostgreSQL %s (%s) in %s: %w; run: make deps POSTGRES=%s",
		wanted, postgresVariable, strings.Join(dirs, ", "), errMissing, wanted)
}

// serverUser returns the user that servers run as. It is nil, our own user, unless we are root:
// PostgreSQL refuses to run as root. Then it is the user postgres that the PostgreSQL package
// creates, or nobody without that package.
func serverUser() (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	account, err := user.Lookup("postgres")
	if err != nil {
		account, err = user.Lookup("nobody")
	}
	if err != nil {
		return nil, fmt.Errorf("find a user to run servers as instead of root: %w", err)
	}
	uid, uidErr := strconv.ParseUint(account.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(account.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, fmt.Errorf("read user %s: %w", account.Username, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// maxSocketPath is the longest Unix socket path that works everywhere: Linux takes 107 bytes, macOS
// 103.
const maxSocketPath = 103

// memoryDir is a directory in memory, or "" where there is none with room for the databases of a
// test binary. Making a database and dropping it again took 90 ms there, and 490 on a disk
// (measured).
func memoryDir() string {
	const dir, room = "/dev/shm", 2 << 30
	var disk syscall.Statfs_t
	if syscall.Statfs(dir, &disk) != nil || uint64(disk.Bavail)*uint64(disk.Bsize) < room {
		return ""
	}
	return dir
}

// privateDir makes the directory of one server within parent (os.TempDir), owned by the server's
// user and closed to others.
func privateDir(parent string, owner *syscall.Credential) (string, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	if len(filepath.Join(parent, "outbox-1234567890", ".s.PGSQL.12345")) > maxSocketPath {
		parent = "/tmp" // macOS and CI systems have long ones
	}
	dir, err := os.MkdirTemp(parent, "outbox-")
	if err != nil {
		return "", fmt.Errorf("make server directory: %w", err)
	}
	if owner != nil {
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			return "", fmt.Errorf("make server directory: %w", errors.Join(err, os.Remove(dir)))
		}
	}
	return dir, nil
}

// Ports of servers are not the kernel's choice (port 0). That comes from the range of outgoing
// connections (from 32768 on Linux), one of which could take the port while the server is down for
// a Restart. The bound leaves port + 10000, a Redis Cluster's second port, below that range too.
const firstPort, endPort = 20000, 22768

// nextPort counts from where this process began. A server listens a while after its port was
// chosen, and no other test of the process is given the port meanwhile; one of another process
// hardly ever, for it began elsewhere.
var nextPort = func() *atomic.Int64 {
	n := new(atomic.Int64)
	n.Store(rand.Int64N(endPort - firstPort))
	return n
}()

// freePort returns a loopback port nobody listens on now.
func freePort() (int, error) {
	for range 100 {
		if port := firstPort + int(nextPort.Add(1)%(endPort-firstPort)); portFree(port) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("find a free port: 100 tried between %d and %d, all taken", firstPort, endPort)
}

// portTaken reports whether a server did not start because its port was in use. The other user may
// be gone by now: freePort of another process listens for a moment.
func portTaken(port int, err error) bool {
	return !portFree(port) || strings.Contains(strings.ToLower(err.Error()), "address already in use")
}

func portFree(port int) bool {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	return err == nil && listener.Close() == nil
}
