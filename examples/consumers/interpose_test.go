package consumers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/outbox/internal/test/tier"
)

// guard stands between a program and its database, and keeps the server's word of one commit from
// the program.
type guard struct {
	url       string
	silent    atomic.Bool   // that commit has come
	committed chan struct{} // closed then
}

// written is what a program sends before that commit. It prepares the statement once for a
// connection.
const written = `INSERT INTO "outbox_log"`

// interpose returns a guard that withholds the answer to the first commit of messages, and whatever
// follows.
func interpose(t *testing.T, databaseURL string) *guard {
	t.Helper()
	server, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	query := server.Query()
	socket := filepath.Join(query.Get("host"), ".s.PGSQL."+query.Get("port"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	g := &guard{committed: make(chan struct{}),
		url: fmt.Sprintf("postgres://postgres@%s%s?sslmode=disable", listener.Addr(), server.Path)}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("unix", socket)
			if err != nil {
				_ = client.Close()
				continue
			}
			writes := &spotted{Writer: upstream}
			go func() {
				_, _ = io.Copy(writes, client) // until the program is gone
				_ = upstream.Close()
			}()
			go func() {
				_ = g.answers(client, upstream, &writes.seen) // until either side is gone
				_ = client.Close()
			}()
		}
	}()
	return g
}

// spotted is a connection on which what is written may be seen. The statement is in one packet: it
// is short.
type spotted struct {
	io.Writer
	seen atomic.Bool
}

func (s *spotted) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(written)) {
		s.seen.Store(true)
	}
	return s.Writer.Write(b)
}

// answers passes the server's messages on. Each has a type, its length and a body.
func (g *guard) answers(client io.Writer, upstream io.Reader, writes *atomic.Bool) error {
	head := make([]byte, 5)
	for {
		if _, err := io.ReadFull(upstream, head); err != nil {
			return err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(upstream, body); err != nil {
			return err
		}
		if head[0] == 'C' && string(body) == "COMMIT\x00" && writes.Load() && g.silent.CompareAndSwap(false, true) {
			close(g.committed)
		}
		if !g.silent.Load() {
			if _, err := client.Write(append(head[:5:5], body...)); err != nil {
				return err
			}
		}
	}
}

// strike kills the program once its commit has come, before it hears of that.
func (g *guard) strike(t *testing.T, program *exec.Cmd) {
	t.Helper()
	select {
	case <-g.committed:
	case <-time.After(tier.Patience()):
		t.Fatalf("the program has not committed: there was nothing to kill it after")
	}
	if err := program.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}
