package delivery_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	driver "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outboxrelay/outbox/examples/encore/delivery"
	"github.com/outboxrelay/outbox/internal/store/pgmigrations"
	"github.com/outboxrelay/outbox/internal/test/testenv"
	"github.com/outboxrelay/outbox/internal/test/tier"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// The service's folder is applied by golang-migrate, on which Encore is built. Two orders are
// placed, one is rolled back, and the two events arrive.
func TestOrders(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), testenv.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	record, err := driver.WithInstance(stdlib.OpenDBFromPool(pool), &driver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := migrate.NewWithDatabaseInstance("file://../orders/migrations", "orders", record)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Up(); err != nil {
		t.Fatal(err)
	}
	if source, database := m.Close(); source != nil || database != nil { // it holds a connection of the pool
		t.Fatal(source, database)
	}
	for total, commit := range map[int64]bool{10: true, 20: false, 30: true} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := delivery.Place(t.Context(), tx, total); err != nil {
			t.Fatal(err)
		}
		end := tx.Rollback
		if commit {
			end = tx.Commit
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), tier.Patience())
	defer cancel()
	var mu sync.Mutex
	var got []string
	err = delivery.Run(ctx, pool, func(_ context.Context, m delivery.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if got = append(got, m.Topic+" "+m.Payload); len(got) == 2 {
			cancel()
		}
		return nil
	})
	if all := strings.Join(got, "\n"); err != nil || len(got) != 2 || !strings.Contains(all, `"total": 10`) ||
		!strings.Contains(all, `"total": 30`) {
		t.Fatalf("got %s, %v", all, err)
	}
}

// The folder has all that this release needs: nothing is left to export.
func TestFolderIsComplete(t *testing.T) {
	t.Parallel()
	files, err := pgmigrations.Export("../orders/migrations", pgmigrations.Encore)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Written {
			t.Errorf("%s was missing: commit it", f.File)
		}
	}
}
