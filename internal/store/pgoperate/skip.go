package pgoperate

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Undelivered implements operate.Browser.
func (b *Browser) Undelivered(ctx context.Context, s operate.Selection) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	if _, err := b.check(operate.Filter{Tenant: s.Tenant, Key: s.Key}); err != nil {
		return 0, err
	}
	err = b.read(ctx, s.Tenant, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, b.sql.undelivered, chosen(s)...).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("count undelivered events of %s: %w", b.layout.Name(), err)
	}
	return n, nil
}

// SkipPage implements operate.Browser. It needs the rights of outbox_operator. The rows die as in a relay's settle, but
// nobody's lease is asked for: whoever has claimed them settles rows that are not undelivered any more, and changes
// nothing.
func (b *Browser) SkipPage(ctx context.Context, s operate.Selection, by operate.Skip, limit int) (n int, err error) {
	if s.None() {
		return 0, nil
	}
	if _, err := b.check(operate.Filter{Tenant: s.Tenant, Key: s.Key}); err != nil {
		return 0, err
	}
	err = b.inTx(ctx, s.Tenant, pgx.ReadWrite, func(tx pgx.Tx) error {
		n, err = b.skip(ctx, tx, s, by, limit)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("skip events of %s: %w", b.layout.Name(), err)
	}
	return n, nil
}

func (b *Browser) skip(
	ctx context.Context, tx pgx.Tx, s operate.Selection, by operate.Skip, limit int,
) (n int, err error) {
	rows, err := tx.Query(ctx, b.sql.skip, append(chosen(s), limit)...)
	if err != nil {
		return 0, err
	}
	var dead pgtable.Deaths
	var rec outbox.Record
	failure := []outbox.Failure{by.Failure()}
	into := []any{&rec.Position, &rec.ID, &rec.Generation, &rec.Attempts, &rec.TenantID}
	_, err = pgx.ForEachRow(rows, into, func() error {
		dead.Add(&outbox.Outcome{Record: &rec, State: outbox.Dead, Attempts: rec.Attempts, Failures: failure})
		return nil
	})
	if err != nil || dead.Records == 0 {
		return 0, err
	}
	if b.layout.App == "" { // else the rows have their application
		apps, err := plain("settle_apps")
		if err != nil {
			return 0, err
		}
		if _, err := tx.Exec(ctx, apps, dead.Tenants); err != nil {
			return 0, err
		}
	}
	nobody := []any{"", uuid.Nil, []int16{}, []int64{}}
	err = tx.QueryRow(ctx, b.sql.skipDead, append(nobody, dead.Args(b.layout.Table)...)...).Scan(&n)
	if err != nil {
		return 0, err
	}
	if n != dead.Records { // they are locked
		return 0, fmt.Errorf("%d of %d rows died", n, dead.Records)
	}
	operator := deadletter.Operator{Actor: by.Actor, Reason: by.Reason}
	detail := operate.AuditOf(b.layout)
	detail["run"] = by.Run
	return n, pgtable.Audit(ctx, tx, operator, "skip", n, s, detail)
}
