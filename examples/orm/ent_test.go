package orm

import (
	"context"
	"testing"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"

	"github.com/outboxrelay/outbox/examples/orm/ent"
)

// ent: the transaction is the generated *ent.Tx itself, of code that is generated with --feature
// sql/execquery.
func TestEnt(t *testing.T) { everyWay(t, entShop) }

func entShop(t *testing.T, s shop) {
	client := ent.NewClient(ent.Driver(entsql.OpenDB(dialect.Postgres, openSQL(t, s.url))))
	writer := newWriter(t)
	s.try(t, func(ctx context.Context, id string, total int, end error) error {
		tx, err := client.Tx(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := tx.Order.Create().SetID(id).SetTotal(total).Exec(ctx); err != nil {
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
	refuse(t, client)
}

// Without that feature a transaction of ent's driver can be given to the writer, for code that uses
// the driver alone.
func TestEntDriver(t *testing.T) { everyWay(t, entDriverShop) }

func entDriverShop(t *testing.T, s shop) {
	driver := entsql.OpenDB(dialect.Postgres, openSQL(t, s.url))
	writer := newWriter(t)
	s.try(t, func(ctx context.Context, id string, total int, end error) error {
		begun, err := driver.Tx(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = begun.Rollback() }()
		tx := begun.(*entsql.Tx)
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, total) VALUES ($1, $2)", id, total); err != nil {
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
	refuse(t, driver)
}
