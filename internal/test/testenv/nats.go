package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// NATSVariable holds, in a process that is to be a NATS server, the file of its configuration. The
// server is a package of Go and no program of the system: a test binary that starts servers looks
// for the variable in its TestMain, and runs one. This package must not import it, or all who
// import a store would have its lines in their go.sum.
const NATSVariable = "OUTBOX_TEST_NATS"

// NATSConfig says how a server differs from a single one with JetStream that syncs every write to
// disk.
type NATSConfig struct {
	// Text is configuration after this package's own, e.g. "max_payload: 4096".
	Text string
	// NoSync leaves it to the system when writes get to the disk. A killed server loses nothing by
	// it.
	NoSync bool
	// NoJetStream leaves JetStream off.
	NoJetStream bool
}

// NATS is a running private NATS server, a child of this process and of the same binary. Its
// methods may be called from several goroutines.
type NATS struct {
	server *server
	argv   []string
	name   string // that no other server has
	port   int
	route  int            // the port for other servers of its cluster
	held   []net.Listener // keep both ports until it starts
}

// NATSServer starts a server for this test alone and stops it when t ends.
func NATSServer(t testing.TB, config NATSConfig) *NATS {
	t.Helper()
	return NATSCluster(t, 1, config)[0]
}

// NATSCluster starts so many servers that know each other, and stops them when t ends. They elect
// their leaders in their own time.
func NATSCluster(t testing.TB, size int, config NATSConfig) []*NATS {
	t.Helper()
	servers := make([]*NATS, size)
	var routes []string
	for i := range servers {
		n, err := newNATS()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(n.release(), n.server.close()); err != nil {
				t.Error(err)
			}
		})
		servers[i] = n
		routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", n.route))
	}
	for i, n := range servers {
		name := fmt.Sprintf("server-%d", i)
		cluster := ""
		if size > 1 {
			cluster = fmt.Sprintf("cluster { name: test, listen: \"127.0.0.1:%d\", routes: [%s] }\n", n.route,
				strings.Join(routes, ", "))
		}
		if err := n.start(t.Context(), name, cluster, config); err != nil {
			t.Fatal(err)
		}
	}
	return servers
}

func newNATS() (*NATS, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start nats: %w", err)
	}
	s, err := newServer("nats", "", syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	s.user = nil // who else may read the binary of a test?
	n := &NATS{server: s, argv: []string{program}}
	for _, port := range []*int{&n.port, &n.route} {
		if *port, err = n.hold(); err != nil {
			return nil, errors.Join(fmt.Errorf("start nats: %w", err), n.release(), s.close())
		}
	}
	return n, nil
}

// hold takes a free port, and keeps it from others until release. The servers of a cluster are told
// of each other before the first starts, so that a while passes.
func (n *NATS) hold() (int, error) {
	for {
		port, err := freePort()
		if err != nil {
			return 0, err
		}
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			n.held = append(n.held, listener)
			return port, nil
		}
	}
}

func (n *NATS) release() (err error) {
	for _, listener := range n.held {
		err = errors.Join(err, listener.Close())
	}
	n.held = nil
	return err
}

func (n *NATS) start(ctx context.Context, name, cluster string, config NATSConfig) error {
	n.name = name + "-" + filepath.Base(n.server.dir)
	for {
		text := fmt.Sprintf("listen: \"127.0.0.1:%d\"\nserver_name: %s\n%s", n.port, n.name, cluster)
		if !config.NoJetStream {
			sync := "always"
			if config.NoSync {
				sync = "2m" // the server's default
			}
			text += fmt.Sprintf("jetstream { store_dir: %q, sync_interval: %s }\n", filepath.Join(n.server.dir, "data"), sync)
		}
		if err := n.Configure(text + config.Text); err != nil {
			return err
		}
		n.server.env = []string{NATSVariable + "=" + n.file()}
		if err := n.release(); err != nil {
			return fmt.Errorf("start nats: %w", err)
		}
		err := n.server.start(ctx, n.ready, n.argv...)
		if err == nil || cluster != "" || !portTaken(n.port, err) {
			return err
		}
		// Somebody took the port between freePort and the server. Of a cluster, the others know
		// this one's.
		if n.port, err = freePort(); err != nil {
			return fmt.Errorf("start nats: %w", err)
		}
	}
}

func (n *NATS) file() string { return filepath.Join(n.server.dir, "nats.conf") }

// Config is the text that the server was started with.
func (n *NATS) Config() (string, error) {
	text, err := os.ReadFile(n.file())
	return string(text), err
}

// Configure changes the text for the next Restart or Reload.
func (n *NATS) Configure(text string) error {
	if err := os.WriteFile(n.file(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("configure nats: %w", err)
	}
	return nil
}

// Reload has the running server read its configuration again, in its own time.
func (n *NATS) Reload() error { return syscall.Kill(n.PID(), syscall.SIGHUP) }

// ready wants the greeting, with which a server says that it takes clients, and that it is this
// one: a stranger may have taken the port.
func (n *NATS) ready(ctx context.Context) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", n.Addr())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.Contains(line, strconv.Quote(n.name)) {
		err = fmt.Errorf("greets with %.100q", line)
	}
	return err
}

// Addr is the server's TCP address on the loopback interface, host:port.
func (n *NATS) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)) }

// URL is Addr in the form that clients take.
func (n *NATS) URL() string { return "nats://" + n.Addr() }

// PID is the process id of the server.
func (n *NATS) PID() int { return n.server.pid() }

// Dir is the server's private directory.
func (n *NATS) Dir() string { return n.server.dir }

// Log is what the server has logged so far.
func (n *NATS) Log() (string, error) {
	text, err := os.ReadFile(n.server.logPath())
	return string(text), err
}

// Kill ends the server with SIGKILL and keeps what it has stored.
func (n *NATS) Kill() error { return n.server.end(syscall.SIGKILL) }

// Restart starts the server again on the same directory and ports; a running one is killed first.
// It returns when the server takes clients.
func (n *NATS) Restart() error {
	if err := n.Kill(); err != nil {
		return err
	}
	return n.server.start(context.Background(), n.ready, n.argv...)
}
