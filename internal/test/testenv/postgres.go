package testenv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// PostgresConfig says how a server differs from PostgreSQL's own defaults. The zero value is right
// for tests.
type PostgresConfig struct {
	// Fsync keeps PostgreSQL's durability as it is, for measurements. Off by default: tests survive
	// no power cut. What was committed survives Kill either way, since a commit still hands its WAL
	// to the operating system.
	Fsync bool
	// Settings are server settings as in postgresql.conf, e.g. "wal_level": "logical". They win
	// over this package's own.
	Settings map[string]string
	// SmallDisk, in MiB, puts the data on a disk of that size, for tests that fill it (Fill). A new
	// cluster takes about 40. Needs root.
	SmallDisk int
	// Clock lets SetClock move the server's clock. Needs libfaketime.
	Clock bool

	inMemory bool // the data are kept in memory if there is room for them
}

// Postgres is a running private PostgreSQL server. Its methods may be called from several
// goroutines.
type Postgres struct {
	server *server
	config PostgresConfig
	argv   []string // of the postmaster
	port   int
}

// StartPostgres creates a cluster with superuser postgres, starts it and returns when it answers
// queries. ctx bounds the start, not the life of the server. Errors name the missing program, or
// carry the end of the server's log.
func StartPostgres(ctx context.Context, config PostgresConfig) (*Postgres, error) {
	initdb, err := findInitdb()
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	// initdb and postgres must be of one version; a link on PATH says nothing about its neighbours.
	if initdb, err = filepath.EvalSymlinks(initdb); err != nil {
		return nil, fmt.Errorf("start postgres: find initdb: %w: %w; run: make deps", errMissing, err)
	}
	parent := ""
	if config.inMemory {
		parent = memoryDir()
	}
	s, err := newServer("postgres", parent, syscall.SIGQUIT)
	if err != nil {
		return nil, err
	}
	p := &Postgres{server: s, config: config}
	if config.Clock {
		err = s.ownClock()
	}
	if err == nil {
		err = p.create(ctx, initdb)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return p, nil
}

func (p *Postgres) create(ctx context.Context, initdb string) (err error) {
	data := filepath.Join(p.server.dir, "data")
	locale := "C.UTF-8"
	if runtime.GOOS == "darwin" {
		locale = "C" // macOS has no C.UTF-8
	}
	args := []string{initdb, "-D", data, "-U", "postgres", "-A", "trust", "--no-sync", "--locale=" + locale, "-E", "UTF8"}
	if p.config.SmallDisk > 0 {
		if err := p.server.smallDisk(p.config.SmallDisk); err != nil {
			return err
		}
		args = append(args, "--wal-segsize=1") // MiB; of 16 a small disk would hold nothing else
	}
	if err := p.initialize(ctx, data, args); err != nil {
		return err
	}
	for {
		if p.port, err = freePort(); err != nil {
			return fmt.Errorf("start postgres: %w", err)
		}
		p.argv = append([]string{filepath.Join(filepath.Dir(initdb), "postgres"), "-D", data}, p.settings()...)
		err = p.server.start(ctx, p.ready, p.argv...)
		if err == nil || !portTaken(p.port, err) {
			return err
		}
		// Somebody took the port between freePort and the server.
	}
}

// initialize runs initdb, which costs a second of processor time. The clusters that packages share
// among their tests are copies of one that an earlier package has initialized, in bin/test. Other
// clusters are not copied: copies have the same system identifier.
//
// Packages do not share one running cluster. Claims of a log table wait for the oldest transaction
// of the whole cluster, and roles belong to it, so tests of one package would disturb another's.
func (p *Postgres) initialize(ctx context.Context, data string, initdb []string) error {
	root, err := repository()
	if err != nil || !p.config.inMemory {
		return p.server.finish(ctx, initdb...)
	}
	program, err := os.Stat(initdb[0])
	if err != nil {
		return err
	}
	template := filepath.Join(root, "bin", "test", fmt.Sprintf("cluster-%d-%x-%s", os.Getuid(), program.ModTime().Unix(),
		strings.ReplaceAll(strings.Trim(filepath.Dir(initdb[0]), "/"), "/", "-")))
	if _, err := os.Stat(template); err == nil {
		return copyTree(ctx, template, data)
	}
	if err := p.server.finish(ctx, initdb...); err != nil {
		return err
	}
	unfinished := template + "-" + strconv.Itoa(os.Getpid())
	if err := os.MkdirAll(filepath.Dir(template), 0o755); err != nil {
		return err
	}
	if err := copyTree(ctx, data, unfinished); err != nil {
		return err
	}
	if os.Rename(unfinished, template) != nil { // another package was faster
		return os.RemoveAll(unfinished)
	}
	return nil
}

// copyTree copies a folder with its owner.
func copyTree(ctx context.Context, from, to string) error {
	if out, err := exec.CommandContext(ctx, "cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s to %s: %w: %s", from, to, err, out)
	}
	return nil
}

// settings are the command line arguments -c name=value.
func (p *Postgres) settings() []string {
	settings := map[string]string{
		"listen_addresses":        "127.0.0.1",
		"port":                    strconv.Itoa(p.port),
		"unix_socket_directories": p.server.dir,
		"max_connections":         "200",
		"log_line_prefix":         "%m [%p] %q%u@%d ",
	}
	if !p.config.Fsync {
		settings["fsync"] = "off"
		settings["full_page_writes"] = "off"
		// synchronous_commit stays on: off would lose the last commits on Kill, and tests would
		// blame the outbox.

		// In files under data instead of /dev/shm, where a killed postmaster leaves them behind for
		// ever.
		settings["dynamic_shared_memory_type"] = "mmap"
	}
	if p.config.inMemory {
		settings["max_wal_size"] = "256MB"
		// It would start a process for each of the tests' databases in turn, and change plans at
		// times of its own.
		settings["autovacuum"] = "off"
	}
	maps.Copy(settings, p.config.Settings)
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	return args
}

func (p *Postgres) ready(ctx context.Context) error { return p.exec(ctx, "SELECT 1") }

// URL connects the superuser to a database over the Unix socket, in the form pgx and libpq
// understand.
func (p *Postgres) URL(database string) string {
	query := url.Values{"host": {p.server.dir}, "port": {strconv.Itoa(p.port)}}
	return (&url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/" + database,
		RawQuery: query.Encode()}).String()
}

// Addr is the server's TCP address on the loopback interface, host:port.
func (p *Postgres) Addr() string { return "127.0.0.1:" + strconv.Itoa(p.port) }

// TCPURL is the same as URL over the loopback interface, for tools that know no Unix sockets and
// for proxies between.
func (p *Postgres) TCPURL(database string) string {
	return (&url.URL{Scheme: "postgres", User: url.User("postgres"), Host: p.Addr(), Path: "/" + database,
		RawQuery: "sslmode=disable"}).String()
}

// Log is what the server has logged so far.
func (p *Postgres) Log() (string, error) {
	text, err := os.ReadFile(p.server.logPath())
	return string(text), err
}

// Dir is the server's private directory: cluster in data, log in log, and the Unix socket.
func (p *Postgres) Dir() string { return p.server.dir }

// PID is the process id of the postmaster.
func (p *Postgres) PID() int { return p.server.pid() }

// Stop ends the server, without a last checkpoint since its directory goes with it. A second call
// does nothing.
func (p *Postgres) Stop() error { return p.server.close() }

// Kill ends the postmaster with SIGKILL and keeps the data. Backends end when they notice, so a
// statement that is running may still commit; Restart waits for them.
func (p *Postgres) Kill() error { return p.server.end(syscall.SIGKILL) }

// Restart starts the server again on the same data, socket and port, after a Kill with crash
// recovery; a running one is shut down first. It returns when the server answers queries.
func (p *Postgres) Restart() error {
	if err := p.server.end(syscall.SIGINT); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	for {
		err := p.server.start(ctx, p.ready, p.argv...)
		if err == nil || errors.Is(err, errStopped) || ctx.Err() != nil {
			return err
		}
		// After a Kill a new postmaster ends at once while backends of the old one are attached to
		// its shared memory.
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
