package pgmigrations_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

// versions is Status in short: set=current/latest, ! for dirty, and the number of pending files.
func versions(t *testing.T, url string) string {
	t.Helper()
	all, err := pgmigrations.Status(t.Context(), url, pgmigrations.Sets...)
	if err != nil {
		t.Fatal(err)
	}
	var short []string
	for _, s := range all {
		dirty := ""
		if s.Dirty {
			dirty = "!"
		}
		short = append(short, fmt.Sprintf("%s=%d/%d%s pending %d", s.Set, s.Current, s.Latest, dirty, len(s.Pending)))
	}
	return strings.Join(short, ", ")
}

// newest is how many files each set has. That there are so many says each new one, here alone.
var newest = map[string]uint{"core": 7, "events": 1, "crawl": 2}

// applied is what versions says where these sets are applied and the others are not.
func applied(sets ...string) string {
	var short []string
	for _, set := range pgmigrations.Sets {
		n, pending := newest[set], uint(0)
		if !slices.Contains(sets, set) {
			pending = n
		}
		short = append(short, fmt.Sprintf("%s=%d/%d pending %d", set, n-pending, n, pending))
	}
	return strings.Join(short, ", ")
}

var everything = applied(pgmigrations.Sets...)

func TestUpFromNothingAndAgain(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	if got := versions(t, url); got != applied() {
		t.Fatalf("before: %s", got)
	}
	for range 2 {
		up(t, url)
		if got := versions(t, url); got != everything {
			t.Fatalf("after: %s", got)
		}
	}
	for set, want := range newest {
		if got := pgmigrations.Required(set); got != want {
			t.Errorf("Required(%s) = %d, want %d", set, got, want)
		}
	}
	if got := pgmigrations.Required("nosuch"); got != 0 {
		t.Errorf("Required(nosuch) = %d, want 0", got)
	}
}

func TestUpAppliesCoreFirstWhateverTheOrder(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	up(t, url, "crawl", "core", "crawl")
	if got, want := versions(t, url), applied("core", "crawl"); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestUpNamesTheCommandWhenCoreIsMissing(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	for _, set := range []string{"events", "crawl"} {
		err := pgmigrations.Up(t.Context(), url, set)
		if !errors.Is(err, migration.ErrCoreMissing) ||
			!strings.Contains(err.Error(), "outbox migrate up --set core,"+set) {
			t.Errorf("Up(%s): %v", set, err)
		}
	}
	if got := versions(t, url); got != applied() {
		t.Fatalf("something was applied: %s", got)
	}
}

func TestUnknownSetListsTheKnownOnes(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"up":    pgmigrations.Up(t.Context(), "postgres://nobody@127.0.0.1:1/none", "core", "cor"),
		"down":  pgmigrations.Down(t.Context(), "postgres://nobody@127.0.0.1:1/none", 1, "cor"),
		"print": pgmigrations.Print(&bytes.Buffer{}, "cor"),
	} {
		if err == nil || !strings.Contains(err.Error(), `"cor": the known sets are core, events, crawl`) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPrintedSQLMakesTheSameSchema(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	if err := pgmigrations.Print(&printed, pgmigrations.Sets...); err != nil {
		t.Fatal(err)
	}
	byHand := connect(t, testenv.Database(t))
	run(t, byHand, printed.String())
	_, migrated := database(t)
	run(t, migrated, "DROP TABLE outbox_migrations_core, outbox_migrations_events, outbox_migrations_crawl")
	if got, want := catalog(t, byHand), catalog(t, migrated); !reflect.DeepEqual(got, want) {
		t.Errorf("by hand:\n%s\nmigrated:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestUpFromTenProcesses(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := testenv.Database(t)
	var children [10]*exec.Cmd
	var outputs [10]bytes.Buffer
	for i := range children {
		children[i] = childCommand(t, "up", url)
		children[i].Stderr = &outputs[i]
		if err := children[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for i, command := range children {
		if err := command.Wait(); err != nil {
			t.Errorf("process %d: %v: %s", i, err, &outputs[i])
		}
	}
	if got := versions(t, url); got != everything {
		t.Fatal(got)
	}
}

// PostgreSQL rolls the file of a process back that is killed, and with it the record of its
// version.
func TestUpAfterAProcessWasKilled(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	up(t, url, "core")
	up(t, url, "crawl")
	if err := pgmigrations.Down(t.Context(), url, int(newest["crawl"])-1, "crawl"); err != nil {
		t.Fatal(err)
	}
	// Stop crawl/002 in its middle: its foreign key needs a lock on crawl_runs.
	blocker := connect(t, url)
	run(t, blocker, "BEGIN; LOCK TABLE crawl_runs IN ACCESS EXCLUSIVE MODE")

	command := childCommand(t, "up", url)
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	awaitLock(t, connect(t, url), "crawl_runs")
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	want := fmt.Sprintf("crawl=1/%d pending %d", newest["crawl"], newest["crawl"]-1)
	if got := versions(t, url); !strings.Contains(got, want) {
		t.Fatalf("after the kill: %s", got)
	}
	run(t, blocker, "ROLLBACK")

	up(t, url)
	if got := versions(t, url); got != everything {
		t.Fatalf("after the next Up: %s", got)
	}
}

// awaitLock returns when somebody waits for a lock on the table.
func awaitLock(t *testing.T, conn *pgx.Conn, table string) {
	t.Helper()
	const waiting = "SELECT count(*) FROM pg_locks WHERE relation = to_regclass($1) AND NOT granted"
	for deadline := time.Now().Add(tier.Patience()); one[int](t, conn, waiting,
		table) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody ever waited for a lock on %s", table)
		}
	}
}

// The mark says nothing about whether the file ran: for every file, both must be repaired into the
// same schema.
func TestUpRepairsEveryDirtyMark(t *testing.T) {
	t.Parallel()
	_, fresh := database(t)
	want := catalog(t, fresh)
	for _, set := range pgmigrations.Sets {
		for version := range pgmigrations.Required(set) + 1 {
			for _, ran := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s/%d/ran=%v", set, version, ran), func(t *testing.T) {
					if version != pgmigrations.Required(set) {
						tier.Full(t)
					}
					t.Parallel()
					url, conn := database(t)
					if set == "core" { // as it was when core was under way
						url = testenv.Prepared(t, "core",
							func(ctx context.Context, url string) error { return pgmigrations.Up(ctx, url, "core") })
						conn = connect(t, url)
					}
					steps := int(pgmigrations.Required(set) - version)
					if !ran {
						steps++ // the file of the marked version, or for 0 the one that Down was taking away, is gone
					}
					if steps > 0 && steps <= int(pgmigrations.Required(set)) {
						if err := pgmigrations.Down(t.Context(), url, steps, set); err != nil {
							t.Fatal(err)
						}
					}
					marked := int(version)
					if marked == 0 {
						marked = -1 // how golang-migrate marks taking the first file away
					}
					table := "outbox_migrations_" + set
					run(t, conn, "CREATE TABLE IF NOT EXISTS "+table+" (version bigint NOT NULL PRIMARY KEY, dirty boolean NOT NULL)")
					run(t, conn, "DELETE FROM "+table)
					run(t, conn, "INSERT INTO "+table+" VALUES ($1, true)", marked)
					if err := pgmigrations.Down(t.Context(), url, 1, set); err == nil ||
						!strings.Contains(err.Error(), "outbox migrate up --set "+set) {
						t.Errorf("Down on a dirty set: %v", err)
					}
					up(t, url)
					if got := versions(t, url); got != everything {
						t.Error(got)
					}
					if got := catalog(t, conn); !reflect.DeepEqual(got, want) {
						t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
					}
				})
			}
		}
	}
}

func TestUpOnASchemaNewerThanThisBuild(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	run(t, conn, "UPDATE outbox_migrations_core SET version = 99")
	up(t, url)
	if got := versions(t, url); !strings.HasPrefix(got, fmt.Sprintf("core=99/%d pending 0", newest["core"])) {
		t.Fatal(got)
	}
	run(t, conn, "UPDATE outbox_migrations_core SET dirty = true")
	if err := pgmigrations.Up(t.Context(), url, "core"); err == nil || !strings.Contains(err.Error(), "newer build") {
		t.Errorf("Up: %v", err)
	}
}

func TestUpStopsWithItsContext(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	holder := connect(t, url)
	run(t, holder, "SELECT pg_advisory_lock($1)", int64(0x6f7574626f78))

	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- pgmigrations.Up(ctx, url) }()
	const asking = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND state = 'idle' " +
		"AND datname = current_database() AND query LIKE '%pg_try_advisory_lock(%'"
	for one[int](t, holder, asking) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("Up while another migrates, cancelled: %v", err)
	} else if who := fmt.Sprintf("process %d, login ", holder.PgConn().PID()); !strings.Contains(err.Error(), who) {
		t.Errorf("Up does not name who holds the lock: %v, want %s…", err, who)
	}
	if got := versions(t, url); got != applied() {
		t.Fatal(got)
	}
	run(t, holder, "SELECT pg_advisory_unlock_all()")
	up(t, url)
}

// Cancelled while a file runs or waits for a lock, Up finishes that file or leaves it, and stops
// before the next.
func TestUpStopsBetweenFiles(t *testing.T) {
	t.Parallel()
	url := testenv.Database(t)
	blocker := connect(t, url)
	// core/006 waits here until the context has ended: for the end of somebody who makes a table of
	// its name.
	up(t, url, "core")
	if err := pgmigrations.Down(t.Context(), url, 2, "core"); err != nil {
		t.Fatal(err)
	}
	run(t, blocker, "BEGIN; CREATE TABLE outbox_inbox_turn (one int)")
	cancel, result := waitingUp(t, url)
	cancel()
	run(t, blocker, "ROLLBACK")
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Fatalf("Up: %v", err)
	}
	if got := versions(t, url); strings.Contains(got, "!") {
		t.Fatal(got)
	}
}

func TestDown(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	for _, steps := range []int{0, -1} {
		if err := pgmigrations.Down(t.Context(), url, steps, "crawl"); err == nil || !strings.Contains(err.Error(), "All") {
			t.Errorf("Down of %d steps: %v", steps, err)
		}
	}
	if err := pgmigrations.Down(t.Context(), url, 1, "core"); !errors.Is(err, migration.ErrCoreNeeded) ||
		!strings.Contains(err.Error(), "--set events") {
		t.Errorf("Down of core below events: %v", err)
	}
	if got := versions(t, url); got != everything {
		t.Fatalf("a refused Down changed something: %s", got)
	}
	if err := pgmigrations.Down(t.Context(), url, 1, "crawl"); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("crawl=%d/%d pending 1", newest["crawl"]-1, newest["crawl"])
	if got := versions(t, url); !strings.HasSuffix(got, want) {
		t.Errorf("one step down: %s", got)
	}
	for _, set := range []string{"crawl", "events", "core", "core"} { // the second time there is nothing left
		if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, set); err != nil {
			t.Fatal(err)
		}
	}
	if got := versions(t, url); got != applied() {
		t.Errorf("all down: %s", got)
	}
	left := query[string](t, conn,
		"SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1")
	if len(left) > 0 {
		t.Errorf("tables left: %v", left)
	}
}

// The password must not be in any error: not in one about the URL itself, nor in one about the
// server or a statement.
func TestErrorsCarryNoSecret(t *testing.T) {
	t.Parallel()
	notOwner, conn := database(t)
	if err := pgmigrations.Down(t.Context(), notOwner, 1, "crawl"); err != nil {
		t.Fatal(err)
	}
	// crawl/002 will fail on it.
	run(t, conn, "CREATE FUNCTION crawl_outbox_tenant() RETURNS int LANGUAGE sql AS 'SELECT 1'")
	for name, url := range map[string]string{
		"not a URL":        "postgres://app:hunter2@%zz:5432/x",
		"bad escape":       "postgres://app:hunter2%@host/x",
		"space in it":      "postgres://app:hunter2 @host:port/x",
		"bad option":       "postgres://app:hunter2@host/x?sslmode=perhaps",
		"key-value form":   "host=127.0.0.1 port=1 password=hunter2 port=x",
		"nobody listening": "postgres://app:hunter2@127.0.0.1:1/x",
		"failing file":     strings.Replace(notOwner, "postgres://postgres@", "postgres://postgres:hunter2@", 1),
	} {
		for what, err := range map[string]error{
			"up":     pgmigrations.Up(t.Context(), url, "core", "crawl"),
			"down":   pgmigrations.Down(t.Context(), url, 1, "core"),
			"roles":  pgmigrations.ApplyRoles(t.Context(), strings.Replace(url, "test_", "nosuch_", 1)),
			"status": statusError(t, strings.Replace(url, "test_", "nosuch_", 1)),
		} {
			if err == nil {
				t.Errorf("%s, %s: no error", name, what)
			} else if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "//app") ||
				strings.Contains(err.Error(), "CREATE TABLE") {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
	}
	err := pgmigrations.Up(t.Context(), notOwner, "crawl")
	if err == nil || !strings.Contains(err.Error(), `apply crawl/002_crawl_outbox: `) ||
		!strings.Contains(err.Error(), `cannot change return type`) {
		t.Errorf("a failing file: %v", err)
	}
}

func statusError(t *testing.T, url string) error {
	_, err := pgmigrations.Status(t.Context(), url, pgmigrations.Sets...)
	return err
}
