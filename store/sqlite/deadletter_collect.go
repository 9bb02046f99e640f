package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
)

// CollectPage implements deadletter.Store.
func (d *deadLetters) CollectPage(
	ctx context.Context, table string, by deadletter.Operator, limit int,
) (n int, err error) {
	if table, err = d.db.file().Spelled(ctx, table); err != nil { // as the letters have it
		return 0, err
	}
	t, known := d.tables[table]
	if !known || t.layout.Status == "" {
		return 0, nil // a table that is not there has no dead rows, and of one without a status they left
	}
	err = d.db.inTx(ctx, func(tx *sql.Tx) (err error) {
		q := t.query(letterQuery{Limit: limit, Now: time.Now(), DefaultTenant: eventrow.DefaultTenant})
		if t.layout.App == "" {
			apps, err := q.render("dlq_collect_apps")
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, apps, q.Args...); err != nil {
				return err
			}
		}
		n, err = q.change(ctx, tx, "dlq_collect", func(n int) error {
			return sqlitetable.Audit(ctx, tx, by, "collect", n, deadletter.Filter{Table: table}, nil)
		})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("collect dead letters of %s: %w", table, explain(err))
	}
	return n, nil
}
