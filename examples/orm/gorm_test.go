package orm

import (
	"context"
	"fmt"
	"testing"

	driver "gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"
)

type gormOrder struct {
	ID    string `gorm:"primaryKey"`
	Total int
}

func (gormOrder) TableName() string { return "orders" }

// GORM: the transaction is tx.Statement.ConnPool, with PrepareStmt and without.
func TestGORM(t *testing.T) {
	for _, prepare := range []bool{true, false} {
		t.Run(fmt.Sprintf("PrepareStmt %t", prepare), func(t *testing.T) {
			everyWay(t, func(t *testing.T, s shop) { gormShop(t, s, prepare) })
		})
	}
}

func gormShop(t *testing.T, s shop, prepare bool) {
	if prepare && s.url != s.direct {
		return // prepared statements are what PgBouncer before 1.21 cannot have
	}
	db, err := gorm.Open(driver.Open(s.url), &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if handle, err := db.DB(); err == nil {
		t.Cleanup(func() { _ = handle.Close() })
	}
	writer := newWriter(t)
	s.try(t, func(ctx context.Context, id string, total int, end error) error {
		return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if err := tx.Create(&gormOrder{ID: id, Total: total}).Error; err != nil {
				return err
			}
			if err := writer.Write(ctx, tx.Statement.ConnPool, placed(id, total)); err != nil {
				return err
			}
			return end
		})
	})
	refuse(t, db.Statement.ConnPool)
}
