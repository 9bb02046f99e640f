package orm

import (
	"context"
	"database/sql"
	"testing"
)

// dbtx, queries and createOrder are what sqlc generates with sql_package "database/sql" (sqlc.dev,
// db.go and query.sql.go).
type dbtx interface {
	ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...interface{}) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...interface{}) *sql.Row
}

type queries struct{ db dbtx }

const createOrder = `INSERT INTO orders (id, total) VALUES ($1, $2)`

func (q *queries) createOrder(ctx context.Context, id string, total int64) error {
	_, err := q.db.ExecContext(ctx, createOrder, id, total)
	return err
}

// sqlc: the transaction is the one that the queries are given, as *sql.Tx or as DBTX. (With
// sql_package "pgx/v5" it is a pgx.Tx: postgres.NewWriter.)
func TestSQLC(t *testing.T) { everyWay(t, sqlcShop) }

func sqlcShop(t *testing.T, s shop) {
	db := openSQL(t, s.url)
	writer := newWriter(t)
	placeIn := func(ctx context.Context, tx dbtx, id string, total int) error {
		if err := (&queries{tx}).createOrder(ctx, id, int64(total)); err != nil {
			return err
		}
		return writer.Write(ctx, tx, placed(id, total))
	}
	s.try(t, func(ctx context.Context, id string, total int, end error) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := placeIn(ctx, tx, id, total); err != nil {
			return err
		}
		if end != nil {
			return end
		}
		return tx.Commit()
	})
	refuse(t, db)
}
