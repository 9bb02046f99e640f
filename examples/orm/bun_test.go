package orm

import (
	"context"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
)

type bunOrder struct {
	bun.BaseModel `bun:"table:orders"`
	ID            string `bun:",pk"`
	Total         int
}

// bun: the transaction is the bun.Tx itself.
func TestBun(t *testing.T) { everyWay(t, bunShop) }

func bunShop(t *testing.T, s shop) {
	db := bun.NewDB(openSQL(t, s.url), pgdialect.New())
	writer := newWriter(t)
	s.try(t, func(ctx context.Context, id string, total int, end error) error {
		return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&bunOrder{ID: id, Total: total}).Exec(ctx); err != nil {
				return err
			}
			if err := writer.Write(ctx, tx, placed(id, total)); err != nil {
				return err
			}
			return end
		})
	})
	refuse(t, db)
}
