package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// CollectPage implements deadletter.Store. The role needs INSERT on job_dlq and apps beside what it reads with, as
// outbox_operator has it; with one that sees one tenant at a time it is a outbox.ErrRowsHidden.
func (d *deadLetters) CollectPage(
	ctx context.Context, table string, by deadletter.Operator, limit int,
) (n int, err error) {
	t, known := d.tables[table]
	if !known || t.layout.Status == "" {
		return 0, nil // a table that is not there has no dead rows, and of one without a status they left
	}
	q := t.query(letterQuery{Limit: limit, DefaultTenant: eventrow.DefaultTenant})
	turn, err := plain("dlq_collect_turn")
	if err != nil {
		return 0, err
	}
	err = d.inTx(ctx, "", pgx.ReadWrite, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, turn, table); err != nil {
			return err
		}
		if t.layout.App == "" {
			apps, args, err := q.render("dlq_collect_apps")
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, apps, args...); err != nil {
				return err
			}
		}
		n, err = change(ctx, tx, "dlq_collect", q, func(n int) error {
			return pgtable.Audit(ctx, tx, by, "collect", n, deadletter.Filter{Table: table}, nil)
		})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("collect dead letters of %s: %w", table, err)
	}
	return n, nil
}
