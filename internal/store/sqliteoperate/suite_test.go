package sqliteoperate

import (
	"testing"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/endpoint"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/retention"
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
			Browser: func(t *testing.T, layout outbox.Layout) operate.Browser {
				t.Helper()
				return browser(t, db, layout)
			},
			Pauses: func(t *testing.T) operate.Pauses {
				t.Helper()
				p, err := OpenPauses(t.Context(), db)
				if err != nil {
					t.Fatal(err)
				}
				return p
			},
			Debts: func(t *testing.T) ([]operate.Debt, error) { return Debts(t.Context(), db) },
			MoveDebt: func(t *testing.T, m operate.DebtMove, limit int) (operate.DebtMoved, error) {
				return MoveDebt(t.Context(), db, m, limit)
			},
			Troubles: func(t *testing.T) ([]operate.Trouble, error) { return Troubles(t.Context(), db) },
			Endpoints: func(t *testing.T) endpoint.Table {
				t.Helper()
				e, err := OpenEndpoints(t.Context(), db)
				if err != nil {
					t.Fatal(err)
				}
				return e
			},
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
