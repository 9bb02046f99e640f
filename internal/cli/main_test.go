package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/app"
	"github.com/outboxrelay/outbox/internal/cli"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

var binary string

// TestMain builds the command once: what runs beside a test is the real binary.
func TestMain(m *testing.M) {
	if os.Getenv(groupProcess) != "" {
		if err := runGroup(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var flags []string
	if raceDetector {
		flags = append(flags, "-race", "-gcflags=modernc.org/...=-race=false") // see RACE in the Makefile
	}
	var err error
	if binary, err = testenv.BuildCommand(flags...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	testenv.AtOnce(4)
	testenv.Main(m)
}

// login returns e with a login that is a member of a group role.
func (e env) login(group string) env {
	e.t.Helper()
	exec1(e, fmt.Sprintf(`DO $$ BEGIN CREATE ROLE %[1]s_login LOGIN IN ROLE %[1]s;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`, group))
	e.database = strings.Replace(e.database, "postgres@", group+"_login@", 1)
	return e
}

// owner returns e with a login that owns what outbox_owner does.
func (e env) owner() env { return e.login("outbox_owner") }

// result is how a run of the command ended.
type result struct {
	code     int
	out, err string
}

// env is a database and a Redis to run commands with; either may be absent.
type env struct {
	t        *testing.T
	database string
	redis    string
	extra    []string
}

func (e env) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + e.t.TempDir(), "OUTBOX_DATABASE_URL=" + e.database,
		"OUTBOX_SINK=" + e.redis,
		"GORACE=atexit_sleep_ms=0", // else each run ends with a second of waiting for further races
	}, e.extra...)
	return cmd
}

// run runs the command to its end: within this process, unless it must have one of its own. A
// process costs a tenth of a second of processor time before it does anything.
func (e env) run(stdin string, args ...string) result {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), tier.Patience())
	defer cancel()
	cmd := e.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	code := 0
	if slices.ContainsFunc(e.extra, ofTheProcess) {
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			e.t.Fatalf("run outbox %s: %v", strings.Join(args, " "), err)
		}
		code = cmd.ProcessState.ExitCode()
	} else {
		code = cli.Main(ctx, args, cli.Streams{In: cmd.Stdin, Out: &out, Err: &errs}, cmd.Environ(), app.Sinks())
	}
	if ctx.Err() != nil {
		e.t.Fatalf("outbox %s did not end:\n%s%s", strings.Join(args, " "), &out, &errs)
	}
	return result{code, out.String(), errs.String()}
}

// ofTheProcess tells whether a variable is read from the environment of the process, and not from
// that which cli.Main is given.
func ofTheProcess(variable string) bool {
	return !strings.HasPrefix(variable, "OUTBOX_")
}

// ok runs the command, which must succeed, and returns what it printed.
func (e env) ok(stdin string, args ...string) string {
	e.t.Helper()
	r := e.run(stdin, args...)
	if r.code != 0 {
		e.t.Fatalf("outbox %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.out, r.err)
	}
	return r.out
}

// says runs a command line, which must end with this exit code and say these texts on either
// stream.
func (e env) says(code int, line string, texts ...string) {
	e.t.Helper()
	r := e.run("", strings.Fields(line)...)
	if r.code != code {
		e.t.Errorf("outbox %s: exit code %d, want %d:\n%s%s", line, r.code, code, r.out, r.err)
	}
	contains(e.t, r.out+r.err, texts...)
}

// eventually waits until something holds.
func (e env) eventually(what string, holds func() bool) {
	e.t.Helper()
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > tier.Patience() {
			e.t.Fatalf("never: %s", what)
		}
	}
}

// step is a command line, and what it says and ends with.
type step struct {
	args, says string
	code       int
}

// listOf is what every list prints with -o json.
type listOf[T any] struct {
	Items      []T
	NextCursor string
}

// process is a command that runs beside the test.
type process struct {
	t          *testing.T
	cmd        *exec.Cmd
	out, err   *stream
	ended      chan struct{}
	endedError error
}

// start starts the command; the test ends it, if need be with SIGKILL.
func (e env) start(args ...string) *process { e.t.Helper(); return e.startBinary(e.command, args...) }

// startBinary is start of another program.
func (e env) startBinary(command func(context.Context, ...string) *exec.Cmd, args ...string) *process {
	e.t.Helper()
	p := &process{t: e.t, cmd: command(context.Background(), args...), ended: make(chan struct{})}
	p.out, p.err = newStream(), newStream()
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	if err := p.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	go func() {
		p.endedError = p.cmd.Wait()
		close(p.ended)
	}()
	e.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has usually ended
		<-p.ended
		if e.t.Failed() {
			e.t.Logf("outbox %s wrote:\n%s%s", strings.Join(args, " "), p.out, p.err)
		}
	})
	return p
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(tier.Patience()):
		p.t.Fatal("the command did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// stream collects what a process writes.
type stream struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed and replaced at each write
}

func newStream() *stream { return &stream{more: make(chan struct{})} }

func (s *stream) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.more)
	s.more = make(chan struct{})
	return s.text.Write(b)
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// lines returns the complete lines so far.
func (s *stream) lines() (lines []string) {
	r := bufio.NewReader(strings.NewReader(s.String()))
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return lines
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
}

// await waits for a line that contains text and returns it.
func (p *process) await(s *stream, text string) string {
	p.t.Helper()
	deadline := time.After(tier.Patience())
	for {
		s.mu.Lock()
		more := s.more
		s.mu.Unlock()
		for _, line := range s.lines() {
			if strings.Contains(line, text) {
				return line
			}
		}
		select {
		case <-more:
		case <-p.ended:
			if !strings.Contains(s.String(), text) {
				p.t.Fatalf("the command ended without %q", text)
			}
		case <-deadline:
			p.t.Fatalf("no %q", text)
		}
	}
}

// migrated returns the environment of a new database with all tables, and no Redis.
func migrated(t *testing.T) env {
	t.Helper()
	return env{t: t, database: testenv.Prepared(t, "all",
		func(ctx context.Context, url string) error {
			return pgmigrations.Up(ctx, url, "core", "events", "crawl")
		})}
}

// onPostgres are the tests of onStores that run on PostgreSQL in the tier "test" too.
var onPostgres = []string{"TestAdmin", "TestDeadLettersEndToEnd", "TestMigrate", "TestRelayEndToEnd",
	"TestServeEndToEnd", "TestTokens"}

// onStores runs a test on each database, with all tables and without Redis. Commands have the same
// results on both. In the tier "test" it runs on SQLite alone, except for the tests of onPostgres.
func onStores(t *testing.T, test func(t *testing.T, e env)) {
	t.Parallel()
	quick := slices.Contains(onPostgres, t.Name())
	for name, database := range stores {
		t.Run(name, func(t *testing.T) {
			if name == "postgres" && !quick {
				tier.Full(t)
			}
			t.Parallel()
			if name == "postgres" {
				test(t, migrated(t))
				return
			}
			e := env{t: t, database: database(t)}
			e.ok("", "migrate", "up", "--set", "core,events,crawl")
			test(t, e)
		})
	}
}

// stores make the URL of a database without tables.
var stores = map[string]func(testing.TB) string{
	"postgres": testenv.Database,
	"sqlite":   func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "outbox.db") },
}

// empty returns an environment like e with a database without tables.
func (e env) empty() env {
	name := "postgres"
	if e.onFile() {
		name = "sqlite"
	}
	e.database = stores[name](e.t)
	return e
}

// onFile tells whether the database is SQLite's.
func (e env) onFile() bool { return strings.HasPrefix(e.database, "sqlite:") }

// or returns what is right for e's database.
func (e env) or(postgres, sqlite string) string {
	if e.onFile() {
		return sqlite
	}
	return postgres
}

// pools has the test's own connection to each database: one for each question would be most of what
// questions cost.
var pools sync.Map // by test and URL

func (e env) pool() *pgxpool.Pool {
	e.t.Helper()
	key := fmt.Sprintf("%p %s", e.t, e.database)
	if found, ok := pools.Load(key); ok {
		return found.(*pgxpool.Pool)
	}
	cfg, err := pgxpool.ParseConfig(e.database)
	if err != nil {
		e.t.Fatal(err)
	}
	cfg.MaxConns = 2
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec         // tables change between questions
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) { // and servers die
		return conn.Ping(ctx) == nil, nil
	}
	pool, err := pgxpool.NewWithConfig(e.t.Context(), cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	found, raced := pools.LoadOrStore(key, pool)
	if raced {
		pool.Close()
		return found.(*pgxpool.Pool)
	}
	e.t.Cleanup(func() { pools.Delete(key); pool.Close() })
	return pool
}

// query returns the single value of a statement.
func query[T any](e env, statement string, args ...any) (v T) {
	e.t.Helper()
	if e.onFile() {
		db := e.file()
		defer func() { _ = db.Close() }() // nothing was written
		if err := db.QueryRowContext(e.t.Context(), parameter.ReplaceAllString(statement, "?$1"),
			args...).Scan(&v); err != nil {
			e.t.Fatalf("%s: %v", statement, err)
		}
		return v
	}
	if err := e.pool().QueryRow(e.t.Context(), statement, args...).Scan(&v); err != nil {
		e.t.Fatalf("%s: %v", statement, err)
	}
	return v
}

func exec1(e env, statement string, args ...any) {
	e.t.Helper()
	if e.onFile() {
		db := e.file()
		_, err := db.ExecContext(e.t.Context(), parameter.ReplaceAllString(statement, "?$1"), args...)
		if err = errors.Join(err, db.Close()); err != nil {
			e.t.Fatalf("%s: %v", statement, err)
		}
		return
	}
	if _, err := e.pool().Exec(e.t.Context(), statement, args...); err != nil {
		e.t.Fatalf("%s: %v", statement, err)
	}
}

// parameter is one in PostgreSQL's spelling, which SQLite takes for a name.
var parameter = regexp.MustCompile(`\$([0-9])`)

// file opens e's database beside the command.
func (e env) file() *sql.DB {
	e.t.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(e.database, "sqlite:")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		e.t.Fatal(err)
	}
	return db
}
