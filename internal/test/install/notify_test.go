package install

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/sink"
)

// manager hears what systemd would.
type manager struct {
	socket string
	mu     sync.Mutex
	heard  []string
	beat   time.Time // the last WATCHDOG=1
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{socket: filepath.Join(t.TempDir(), "notify")}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	noError(t, err)
	t.Cleanup(func() { conn.Close() })
	go func() {
		text := make([]byte, 64<<10)
		for {
			n, err := conn.Read(text)
			if err != nil {
				return
			}
			m.mu.Lock()
			for line := range strings.SplitSeq(string(text[:n]), "\n") {
				if line == "WATCHDOG=1" {
					m.beat = time.Now()
				} else {
					m.heard = append(m.heard, line)
				}
			}
			m.mu.Unlock()
		}
	}()
	return m
}

func (m *manager) has(line string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.heard {
		if strings.HasPrefix(l, line) {
			return true
		}
	}
	return false
}

func (m *manager) beaten() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.beat
}

// systemd hears what a process waits for, that it serves once its servers are there, and that it
// stops.
func TestSystemdIsTold(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	path, err := binary()
	noError(t, err)
	m := newManager(t)
	socket, err := url.Parse(testenv.Database(t))
	noError(t, err)
	noError(t, pgmigrations.Up(t.Context(), socket.String(), pgmigrations.Sets...))
	door, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	door.Close() // until somebody answers behind it
	away := url.URL{Scheme: "postgres", User: socket.User, Host: door.Addr().String(), Path: socket.Path,
		RawQuery: "sslmode=disable"}
	cmd := exec.Command(path, "serve", "--auth", "none", "--http", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), "OUTBOX_DATABASE_URL="+away.String(), "OUTBOX_SINK="+testenv.RedisServer(t).URL(),
		"NOTIFY_SOCKET="+m.socket, "WATCHDOG_USEC=120000000")
	serving := start(t, cmd)
	testenv.Eventually(t, "it says what it waits for", func() bool {
		return m.has("STATUS=not ready: waiting for database ")
	})
	if m.has("READY=1") {
		t.Error("READY=1 before its database is there")
	}
	door, err = net.Listen("tcp", door.Addr().String())
	noError(t, err)
	defer door.Close()
	go func() {
		for {
			in, err := door.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("unix", socket.Query().Get("host")+"/.s.PGSQL."+socket.Query().Get("port"))
			if err != nil {
				in.Close()
				continue
			}
			go pipe(in, out)
			go pipe(out, in)
		}
	}()
	testenv.Eventually(t, "it is ready", func() bool { return m.has("READY=1") && m.has("STATUS=serving") })
	testenv.Eventually(t, "it gives a sign of life", func() bool { return !m.beaten().IsZero() })
	noError(t, serving.Process.Signal(syscall.SIGTERM))
	<-serving.ended
	if !m.has("STOPPING=1") {
		t.Error("no STOPPING=1")
	}
	if code := serving.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// pipe copies until either end closes, and closes to.
func pipe(to io.WriteCloser, from io.Reader) {
	_, _ = io.Copy(to, from) // it ends with one of them
	to.Close()
}

// A relay whose loop stands still gives no sign of life, whatever else of the process moves. One
// whose sink only fails goes on giving it.
func TestWatchdogIsOfTheLoop(t *testing.T) {
	tier.Full(t)
	m := newManager(t)
	t.Setenv("NOTIFY_SOCKET", m.socket)
	t.Setenv("WATCHDOG_USEC", "800000")
	stuck, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	driver := sink.Driver{Schemes: []string{"mud"}, Example: "mud: holds whoever publishes",
		Open: func(context.Context, string, sink.Options) (sink.Sink, error) {
			return mud{outbox.SinkFunc(func(context.Context, outbox.Delivery) error {
				once.Do(func() { close(stuck) })
				<-release // whatever the context says
				return nil
			})}, nil
		}}
	database := "OUTBOX_DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "outbox.db")
	main := func(ctx context.Context, stdin string, args ...string) int {
		return cli.Main(ctx, args, cli.Streams{In: strings.NewReader(stdin), Out: io.Discard, Err: os.Stderr},
			[]string{database, "OUTBOX_SINK=mud:"}, append(app.Sinks(), driver))
	}
	if code := main(t.Context(), "", "migrate", "up"); code != 0 {
		t.Fatal("no tables")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() { ended <- main(ctx, "", "relay", "--log-level", "error") }()
	testenv.Eventually(t, "it lives", func() bool { return m.has("READY=1") && !m.beaten().IsZero() })
	if code := main(t.Context(), "{}", "write", "--topic", "order.placed"); code != 0 {
		t.Fatal("nothing is written")
	}
	<-stuck
	testenv.Eventually(t, "no sign of life comes", func() bool { return time.Since(m.beaten()) > 3*time.Second })
	was := m.beaten()
	close(release)
	testenv.Eventually(t, "it lives again", func() bool { return m.beaten().After(was) })
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

type mud struct{ outbox.SinkFunc }

func (mud) Close() error { return nil }

func (mud) Abilities() outbox.Abilities { return outbox.Abilities{} }
