package pgmigrations_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/google/uuid"
	pgx5 "github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

// golangMigrate runs a folder as golang-migrate's command does, or as Encore does, which is
// golang-migrate with the record of a version in the same simple query as its file.
func golangMigrate(t *testing.T, url, dir string, format pgmigrations.Format) *migrate.Migrate {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range contents(t, dir) {
		if format == pgmigrations.Encore {
			number, _, _ := strings.Cut(name, "_")
			text += fmt.Sprintf(";\nINSERT INTO schema_migrations VALUES (%s, false) ON CONFLICT (version) DO UPDATE SET "+
				"dirty = false;", number)
		}
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	source, err := iofs.New(files, ".")
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgx5.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	driver, err := pgx.WithInstance(stdlib.OpenDB(*config), &pgx.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrate.NewWithInstance("folder", source, "database", driver)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = m.Close() })
	return m
}

func folderUp(t *testing.T, url string, sets ...string) *migrate.Migrate {
	t.Helper()
	dir := t.TempDir()
	if len(sets) == 0 {
		sets = pgmigrations.Sets
	}
	exported(t, dir, pgmigrations.GolangMigrate, sets...)
	m := golangMigrate(t, url, dir, pgmigrations.GolangMigrate)
	if err := m.Up(); err != nil {
		t.Fatal(err)
	}
	return m
}

// tool says who has applied what, by Status.
func by(t *testing.T, url string) (text string) {
	t.Helper()
	all, err := pgmigrations.Status(t.Context(), url, pgmigrations.Sets...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		text += fmt.Sprintf("%s=%d by %q; ", s.Set, s.Current, s.By)
	}
	return text
}

var byGolangMigrate = appliedBy("golang-migrate or Encore")

// appliedBy is what by says where a tool, or "", has applied all sets.
func appliedBy(tool string) (text string) {
	for _, set := range pgmigrations.Sets {
		text += fmt.Sprintf("%s=%d by %q; ", set, newest[set], tool)
	}
	return text
}

// withoutRecords is the catalog but for what migration tools keep for themselves.
func withoutRecords(t *testing.T, conn *pgx5.Conn) (all []string) {
	t.Helper()
	for _, line := range catalog(t, conn) {
		if !strings.Contains(line, "outbox_migrations_") && !strings.Contains(line, "schema_migrations") {
			all = append(all, line)
		}
	}
	return all
}

func TestExportedFolderMakesTheSameTables(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	_, made := database(t)
	want := withoutRecords(t, made)
	for _, format := range []pgmigrations.Format{pgmigrations.GolangMigrate, pgmigrations.Encore} {
		t.Run(string(format), func(t *testing.T) {
			t.Parallel()
			url, dir := testenv.Database(t), t.TempDir()
			conn := connect(t, url)
			// The folder grows, and the user's own migration stands in it.
			exported(t, dir, format, "core")
			core := pgmigrations.Required("core") // the user's own migration stands where its last step would
			take(t, dir, fmt.Sprintf("*_outbox_core_%03d_*", core))
			put(t, dir, map[pgmigrations.Format]string{
				pgmigrations.GolangMigrate: fmt.Sprintf("%06d_shop.up.sql", core),
				pgmigrations.Encore:        fmt.Sprintf("%d_shop.up.sql", core),
			}[format],
				"CREATE TABLE shop (id int);\nDROP TABLE shop;\n")
			put(t, dir, map[pgmigrations.Format]string{
				pgmigrations.GolangMigrate: fmt.Sprintf("%06d_shop.down.sql", core),
				pgmigrations.Encore:        fmt.Sprintf("%d_shop.down.sql", core),
			}[format], "SELECT 1;\n")
			if err := golangMigrate(t, url, dir, format).Up(); err != nil {
				t.Fatal(err)
			}
			if got := by(t, url); !strings.HasPrefix(got,
				fmt.Sprintf(`core=%d by "golang-migrate or Encore"; events=0 by ""`, core-1)) {
				t.Error(got)
			}
			exported(t, dir, format, pgmigrations.Sets...)
			m := golangMigrate(t, url, dir, format)
			if err := m.Up(); err != nil {
				t.Fatal(err)
			}
			if got := withoutRecords(t, conn); !reflect.DeepEqual(got, want) {
				t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if got := by(t, url); got != byGolangMigrate {
				t.Error(got)
			}
			up(t, url) // has nothing to do
			up(t, url, "core", "crawl")
			if got := by(t, url); got != byGolangMigrate {
				t.Error("after up:", got)
			}
			plan, err := pgmigrations.Plan(t.Context(), url)
			if err != nil || len(plan.Tables) > 0 || len(plan.Notes) != 3 {
				t.Errorf("plan: %+v, %v", plan, err)
			}
			delivers(t, url)
			if format == pgmigrations.Encore {
				return // which goes one way
			}
			if err := m.Down(); err != nil {
				t.Fatal(err)
			}
			if left := withoutRecords(t, conn); len(left) > 0 {
				t.Errorf("after down there is %v", left)
			}
			if got := by(t, url); strings.Contains(got, "golang-migrate") {
				t.Error(got)
			}
		})
	}
}

// delivers checks that a relay starts on the database.
func delivers(t *testing.T, url string) {
	t.Helper()
	db, err := postgres.Connect(t.Context(), url, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	messages := outboxtest.Relay(t, db)
	run(t, connect(t, url),
		"INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload) VALUES ($1, 'order.placed', now(), "+
			"'shop', '{}')", uuid.New())
	if got := messages.Next(t); got.Topic != "order.placed" {
		t.Errorf("got %+v", got)
	}
}

// What up leaves to another tool it says, and changes nothing.
func TestUpLeavesTheTablesOfAnotherTool(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url := testenv.Database(t)
	conn := connect(t, url)
	m := folderUp(t, url, "core", "crawl")
	before := catalog(t, conn)
	if err := pgmigrations.Up(t.Context(), url); err != nil { // events was not chosen
		t.Error(err)
	}
	for _, sets := range [][]string{{"events"}, {"core", "events"}} {
		if err := pgmigrations.Up(t.Context(), url, sets...); !errors.Is(err, pgmigrations.ErrOwned) ||
			!strings.Contains(err.Error(), "outbox migrate export --set core,events") {
			t.Errorf("up of %v: %v", sets, err)
		}
	}
	if err := pgmigrations.Down(t.Context(), url, 1, "crawl"); !errors.Is(err, pgmigrations.ErrOwned) {
		t.Errorf("down: %v", err)
	}
	if !reflect.DeepEqual(before, catalog(t, conn)) {
		t.Error("something changed")
	}
	if err := m.Steps(-1); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{pgmigrations.Up(t.Context(), url), pgmigrations.Up(t.Context(), url, "core", "crawl"),
		planError(t, url)} {
		if !errors.Is(err, pgmigrations.ErrOwned) ||
			!strings.Contains(err.Error(), "golang-migrate or Encore up to version 1 and lacks 002_crawl_outbox") {
			t.Errorf("up without crawl/002: %v", err)
		}
	}
}

func planError(t *testing.T, url string) error {
	_, err := pgmigrations.Plan(t.Context(), url)
	return err
}

// From up to another tool: the versions are recorded there, and up's records dropped.
func TestHandOverToAnotherTool(t *testing.T) {
	t.Parallel()
	url, conn := database(t)
	dir := t.TempDir()
	exported(t, dir, pgmigrations.GolangMigrate, pgmigrations.Sets...)
	m := golangMigrate(t, url, dir, pgmigrations.GolangMigrate)
	var steps uint
	for _, set := range pgmigrations.Sets {
		steps += pgmigrations.Required(set)
	}
	if err := m.Force(int(steps)); err != nil {
		t.Fatal(err)
	}
	run(t, conn, "DROP TABLE outbox_migrations_core, outbox_migrations_events, outbox_migrations_crawl")
	if got := by(t, url); got != byGolangMigrate {
		t.Error(got)
	}
	if err := m.Up(); !errors.Is(err, migrate.ErrNoChange) {
		t.Error(err)
	}
	up(t, url)
	// Run instead of recorded they change nothing either.
	before := catalog(t, conn)
	if err := m.Force(-1); err != nil {
		t.Fatal(err)
	}
	if err := m.Up(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, catalog(t, conn)) {
		t.Error("the files changed something")
	}
}

// Each step leaves a trace by which Status knows it, whoever applied it.
func TestStatusKnowsEachStepByItsTrace(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for _, set := range pgmigrations.Sets {
		t.Run(set, func(t *testing.T) {
			t.Parallel()
			url, conn := database(t)
			if set == "core" {
				for _, other := range pgmigrations.Sets[1:] {
					if err := pgmigrations.Down(t.Context(), url, pgmigrations.All, other); err != nil {
						t.Fatal(err)
					}
				}
			}
			for version := pgmigrations.Required(set); version > 0; version-- {
				run(t, conn, "ALTER TABLE outbox_migrations_"+set+" RENAME TO elsewhere")
				want := fmt.Sprintf(`%s=%d by "hand"`, set, version)
				if got := by(t, url); !strings.Contains(got, want) {
					t.Errorf("%s, want %s", got, want)
				}
				run(t, conn, "ALTER TABLE elsewhere RENAME TO outbox_migrations_"+set)
				if err := pgmigrations.Down(t.Context(), url, 1, set); err != nil {
					t.Fatal(err)
				}
			}
			if got := by(t, url); !strings.Contains(got, set+`=0 by ""`) {
				t.Error(got)
			}
		})
	}
}

// The tables of the seeds are refused before anything of theirs changes, and adopted ones go on.
func TestExportedFolderRefusesTheTablesOfSeeds(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		ddl   []string
		table string
	}{
		"ADR-004": {[]string{"adr004"}, "outbox_events"},
		"FR-006":  {[]string{"fr006"}, "crawl_events"},
		"FR-007":  {[]string{"fr006", "fr007"}, "crawl_events"},
		"FR-005":  {[]string{"fr005"}, "run_outbox or run_events"},
		"05-01":   {[]string{"plan0501"}, "apps"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, dir := testenv.Database(t), t.TempDir()
			conn := connect(t, url)
			for _, file := range tt.ddl {
				ddl, err := os.ReadFile("testdata/" + file + ".sql")
				if err != nil {
					t.Fatal(err)
				}
				run(t, conn, string(ddl))
			}
			mine := func() (lines []string) {
				for _, line := range withoutRecords(t, conn) {
					for word := range strings.SplitSeq(tt.table, " or ") {
						if strings.Contains(line, word) {
							lines = append(lines, line)
						}
					}
				}
				return lines
			}
			before := mine()
			exported(t, dir, pgmigrations.GolangMigrate, pgmigrations.Sets...)
			m := golangMigrate(t, url, dir, pgmigrations.GolangMigrate)
			if err := m.Up(); err == nil || !strings.Contains(err.Error(), "table "+tt.table+" is there already") {
				t.Fatalf("up: %v", err)
			}
			if !reflect.DeepEqual(before, mine()) || one[bool](t, conn, "SELECT to_regclass('outbox_lanes') IS NOT NULL") {
				t.Error("refused, and changed something")
			}
			up(t, url)
			after := withoutRecords(t, conn)
			if err := m.Force(-1); err != nil {
				t.Fatal(err)
			}
			if err := m.Up(); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(after, withoutRecords(t, conn)) {
				t.Error("the files changed something that up had adopted")
			}
		})
	}
}

// A tool has applied core, and its folder is continued with what would be adopted: the first new
// file refuses it. Core is handed over to up, as docs/guide/adopting.md says, and up adopts it.
func TestContinuedFolderIsAdoptedAfterAHandOver(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	url, dir := testenv.Database(t), t.TempDir()
	conn := connect(t, url)
	exported(t, dir, pgmigrations.GolangMigrate, "core")
	if err := golangMigrate(t, url, dir, pgmigrations.GolangMigrate).Up(); err != nil {
		t.Fatal(err)
	}
	ddl, err := os.ReadFile("testdata/fr006.sql")
	if err != nil {
		t.Fatal(err)
	}
	run(t, conn, string(ddl))
	exported(t, dir, pgmigrations.GolangMigrate, "core", "crawl")
	m := golangMigrate(t, url, dir, pgmigrations.GolangMigrate)
	if err := m.Up(); err == nil || !strings.Contains(err.Error(), "table crawl_events is there already") {
		t.Fatalf("up: %v", err)
	}
	run(t, conn, "CREATE TABLE outbox_migrations_core (version bigint PRIMARY KEY, dirty boolean NOT NULL)")
	run(t, conn, "INSERT INTO outbox_migrations_core VALUES ($1, false)", int64(pgmigrations.Required("core")))
	up(t, url, "core", "crawl")
	after := withoutRecords(t, conn)
	if err := m.Force(int(pgmigrations.Required("core"))); err != nil {
		t.Fatal(err)
	}
	if err := m.Up(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(after, withoutRecords(t, conn)) {
		t.Error("the files changed something that up had adopted")
	}
}
