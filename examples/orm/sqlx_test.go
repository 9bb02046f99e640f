package orm

import (
	"context"
	"testing"

	"github.com/jmoiron/sqlx"
)

// sqlx: the transaction is the *sqlx.Tx itself.
func TestSQLX(t *testing.T) { everyWay(t, sqlxShop) }

func sqlxShop(t *testing.T, s shop) {
	db := sqlx.NewDb(openSQL(t, s.url), "pgx")
	writer := newWriter(t)
	s.try(t, func(ctx context.Context, id string, total int, end error) error {
		tx, err := db.BeginTxx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		order := map[string]any{"id": id, "total": total}
		if _, err := tx.NamedExecContext(ctx, "INSERT INTO orders (id, total) VALUES (:id, :total)", order); err != nil {
			return err
		}
		if err := writer.Write(ctx, tx, placed(id, total)); err != nil {
			return err
		}
		if end != nil {
			return end
		}
		return tx.Commit()
	})
	refuse(t, db)
}
