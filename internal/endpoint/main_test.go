package endpoint

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/pgcold"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/test/sqlitetest"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/sink/webhook"
	"github.com/outboxrelay/outbox/store/postgres/migrations"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// database is one with an empty table of endpoints.
type database struct {
	cold.Database
	t *testing.T
}

// onStores runs a test on each of the databases.
func onStores(t *testing.T, run func(db database)) {
	t.Run("postgres", func(t *testing.T) {
		url := testenv.Prepared(t, "core",
			func(ctx context.Context, url string) error { return migrations.Up(ctx, url, "core") })
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		run(database{pgcold.DB{Pool: pool}, t})
	})
	t.Run("sqlite", func(t *testing.T) { run(database{sqlitecold.DB{File: sqlitetest.Files(t)(t)}, t}) })
}

// exec runs a statement, and one returns the first column of its first row.
func (db database) exec(statement string, args ...any) {
	db.t.Helper()
	err := cold.Write(db.t.Context(), db, func(tx *cold.Tx) error {
		_, err := tx.Exec(db.t.Context(), statement, args...)
		return err
	})
	if err != nil {
		db.t.Fatal(err)
	}
}

func (db database) one(statement string) (n int) {
	db.t.Helper()
	err := cold.Read(db.t.Context(), db, func(tx *cold.Tx) error {
		rows, err := tx.Query(db.t.Context(), statement)
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Next()
		return rows.Scan(&n)
	})
	if err != nil {
		db.t.Fatal(err)
	}
	return n
}

// open opens the endpoints of the table.
func (db database) open() *Endpoints {
	db.t.Helper()
	e, err := db.try("webhook:table?allow=private,http&key=env:TEST_ENDPOINT_KEY")
	if err != nil {
		db.t.Fatal(err)
	}
	return e
}

func (db database) try(url string) (*Endpoints, error) {
	return Open(db.t.Context(), url, nil, func(context.Context) (cold.Database, error) { return db, nil })
}

// secret is one that a receiver has.
var secret = webhook.Secret("whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("0123456789abcdef", 2))))

// aKey is a key of 32 times a letter.
func aKey(letter string) string {
	return base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
}

func ring(t *testing.T, keys ...string) keyring {
	t.Helper()
	t.Setenv("TEST_ENDPOINT_KEY", strings.Join(keys, ",\n "))
	r, err := readKeyring("env:TEST_ENDPOINT_KEY")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var by = Change{Action: "endpoint-add", Actor: "me", Reason: "because"}
