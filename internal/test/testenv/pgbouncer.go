package testenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// PgBouncer is a running private PgBouncer, a pooler in front of one PostgreSQL server. Its methods
// may be called from several goroutines.
type PgBouncer struct {
	server *server
	argv   []string
	port   int
}

// StartPgBouncer starts a pooler for all databases of a server, in transaction mode unless settings
// say otherwise; they are those of pgbouncer.ini, e.g. "pool_mode": "statement". It trusts
// everybody, as the server does. ctx bounds the start, not its life. Errors name the missing
// program, or carry the end of its log.
func StartPgBouncer(ctx context.Context, behind *Postgres, settings map[string]string) (*PgBouncer, error) {
	program, err := findProgram("pgbouncer")
	if err != nil {
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	s, err := newServer("pgbouncer", "", syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	b := &PgBouncer{server: s}
	if err := b.create(ctx, program, behind, settings); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return b, nil
}

func (b *PgBouncer) create(
	ctx context.Context, program string, behind *Postgres, settings map[string]string,
) (err error) {
	file := filepath.Join(b.server.dir, "pgbouncer.ini")
	b.argv = []string{program, file}
	for {
		if b.port, err = freePort(); err != nil {
			return fmt.Errorf("start pgbouncer: %w", err)
		}
		all := map[string]string{
			"listen_addr": "127.0.0.1", "listen_port": strconv.Itoa(b.port), "unix_socket_dir": "", "auth_type": "any",
			"pool_mode":   "transaction",
			"admin_users": "postgres", "default_pool_size": "10", "max_client_conn": "500", "server_login_retry": "1",
		}
		maps.Copy(all, settings)
		var text strings.Builder
		fmt.Fprintf(&text, "[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\n", behind.port)
		for _, name := range slices.Sorted(maps.Keys(all)) {
			fmt.Fprintf(&text, "%s = %s\n", name, all[name])
		}
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil { // it runs as another user when we are root
			return fmt.Errorf("start pgbouncer: %w", err)
		}
		err = b.server.start(ctx, b.ready, b.argv...)
		if err == nil || !portTaken(b.port, err) {
			return err
		}
		// Somebody took the port between freePort and the pooler.
	}
}

// ready asks the pooler's own console, so it does not need the server.
func (b *PgBouncer) ready(ctx context.Context) error {
	_, err := b.Console(ctx, "SHOW VERSION")
	return err
}

// Console runs a command on the pooler's console, such as SHOW POOLS, and returns its rows as text.
func (b *PgBouncer) Console(ctx context.Context, command string) (rows [][]string, err error) {
	conn, err := pgx.Connect(ctx, b.URL("pgbouncer"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	results, err := conn.PgConn().Exec(ctx, command).ReadAll() // the console knows the simple protocol only
	for _, r := range results {
		for _, row := range r.Rows {
			texts := make([]string, len(row))
			for i, v := range row {
				texts[i] = string(v)
			}
			rows = append(rows, texts)
		}
	}
	return rows, err
}

// Addr is the pooler's TCP address on the loopback interface, host:port.
func (b *PgBouncer) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(b.port)) }

// URL connects the superuser to a database through the pooler.
func (b *PgBouncer) URL(database string) string {
	return (&url.URL{Scheme: "postgres", User: url.User("postgres"), Host: b.Addr(), Path: "/" + database,
		RawQuery: "sslmode=disable"}).String()
}

// Log is what the pooler has logged so far.
func (b *PgBouncer) Log() (string, error) {
	text, err := os.ReadFile(b.server.logPath())
	return string(text), err
}

// Stop ends the pooler. A second call does nothing.
func (b *PgBouncer) Stop() error { return b.server.close() }

// Kill ends it with SIGKILL: clients lose their connections, and the server's sessions end as their
// sockets close.
func (b *PgBouncer) Kill() error { return b.server.end(syscall.SIGKILL) }

// Ended is closed when the pooler that runs now has ended.
func (b *PgBouncer) Ended() <-chan struct{} {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.server.process.exited
}

// Restart starts it again on the same port. A running one is killed first.
func (b *PgBouncer) Restart() error {
	if err := b.Kill(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	return b.server.start(ctx, b.ready, b.argv...)
}

// Pooled starts a pooler for this test alone in front of the server that Database shares, and stops
// it when t ends. The returned function turns a URL of Database into one through the pooler.
func Pooled(t testing.TB, settings map[string]string) (*PgBouncer, func(databaseURL string) string) {
	t.Helper()
	b := PgBouncerServer(t, sharedPostgres(t), settings)
	return b, func(databaseURL string) string { return b.URL(nameOf(t, databaseURL)) }
}

// PgBouncerServer starts a pooler for this test alone in front of a server, and stops it when t
// ends.
func PgBouncerServer(t testing.TB, behind *Postgres, settings map[string]string) *PgBouncer {
	t.Helper()
	b, err := StartPgBouncer(t.Context(), behind, settings)
	return stopAfter(t, b, err)
}
