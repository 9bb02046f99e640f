package sqlitecold_test

import (
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/test/operatetest"
	"github.com/outboxrelay/outbox/internal/test/sqlitetest"
)

func TestStoreSuite(t *testing.T) {
	t.Parallel()
	file := sqlitetest.Files(t)
	operatetest.Suite(t, func(t *testing.T) operatetest.Harness {
		db := file(t)
		return operatetest.Harness{
			StoreHarness: sqlitetest.Harness(db),
			Operators:    operate.On(sqlitecold.DB{File: db}),
			Retention: func(t *testing.T, layout outbox.Layout) retention.Store {
				t.Helper()
				r, err := db.OpenRetention(t.Context(), layout)
				if err != nil {
					t.Fatal(err)
				}
				return r
			},
			LetterRetention: func(t *testing.T) retention.Store {
				t.Helper()
				r, err := db.OpenRetention(t.Context(), retention.Letters())
				if err != nil {
					t.Fatal(err)
				}
				return r
			},
		}
	})
}
