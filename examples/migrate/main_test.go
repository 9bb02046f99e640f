package migrate

import (
	"context"
	"database/sql"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/outboxtest"
	"github.com/outboxrelay/outbox/store/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// open returns a database in the two forms that the tests need.
func open(t *testing.T, url string) (*sql.DB, *pgx.Conn) {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { _ = db.Close() })
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return db, conn
}

// catalog is what is there, but for what migration tools keep for themselves.
func catalog(t *testing.T, conn *pgx.Conn) (all []string) {
	t.Helper()
	for _, line := range testenv.Catalog(t, conn) {
		if !strings.Contains(line, "outbox_migrations_") && !strings.Contains(line, "goose_db_version") &&
			!strings.Contains(line, "atlas_schema_revisions") {
			all = append(all, line)
		}
	}
	return all
}

// export writes a folder in two steps, as two releases would.
func export(t *testing.T, format pgmigrations.Format) string {
	t.Helper()
	dir := t.TempDir()
	for _, sets := range [][]string{{"core"}, {"events", "crawl"}} {
		if _, err := pgmigrations.Export(dir, format, sets...); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// applied checks a database to which the tool has applied its folder.
func applied(t *testing.T, url, tool string) {
	t.Helper()
	_, conn := open(t, url)
	reference := testenv.Database(t)
	if err := pgmigrations.Up(t.Context(), reference, "core", "events", "crawl"); err != nil {
		t.Fatal(err)
	}
	_, made := open(t, reference)
	if got, want := catalog(t, conn), catalog(t, made); !reflect.DeepEqual(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	all, err := pgmigrations.Status(t.Context(), url, pgmigrations.Sets...)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.By != tool || len(s.Pending) > 0 {
			t.Errorf("status: %+v", s)
		}
	}
	if err := pgmigrations.Up(t.Context(), url, "core", "events", "crawl"); err != nil {
		t.Errorf("up: %v", err)
	}

	db, err := postgres.Connect(t.Context(), url, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	messages := outboxtest.Relay(t, db)
	const event = "INSERT INTO outbox_events (id, event_topic, occurred_at, source_bc, payload) VALUES ($1, " +
		"'order.placed', now(), 'shop', '{}')"
	if _, err := conn.Exec(t.Context(), event, uuid.New()); err != nil {
		t.Fatal(err)
	}
	if got := messages.Next(t); got.Topic != "order.placed" {
		t.Errorf("got %+v", got)
	}
}
