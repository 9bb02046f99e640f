package pgoperate

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// replayNames is what the templates replay_*.sql are given.
type replayNames struct {
	sqltable.Layout
	Columns []string
}

// replayStatement fills one in.
func (b *Browser) replayStatement(ctx context.Context, tx pgx.Tx, name string) (string, error) {
	t, err := parseSQL()
	if err != nil {
		return "", err
	}
	names := replayNames{Layout: pgtable.Quote(b.layout)}
	if name == "replay_insert" {
		if names.Columns, err = pgtable.StoredColumns(ctx, tx, b.layout.Table); err != nil {
			return "", err
		}
	}
	return t.Statement(name, names)
}

func (b *Browser) checkDelivered(d operate.Delivered) error {
	if _, err := b.check(operate.Filter{Tenant: d.Tenant, Key: d.Key}); err != nil {
		return err
	}
	return d.Check(b.layout)
}

// Replayable implements operate.Replayer. It needs SELECT on outbox_archive.
func (b *Browser) Replayable(
	ctx context.Context, d operate.Delivered,
) (places []operate.Place, until time.Time, err error) {
	if err := b.checkDelivered(d); err != nil {
		return nil, until, err
	}
	err = b.read(ctx, d.Tenant, func(tx pgx.Tx) error {
		sql, err := b.replayStatement(ctx, tx, "replay_find")
		if err != nil {
			return err
		}
		name, err := pgtable.Name(ctx, tx, b.layout.Table)
		if err != nil {
			return err
		}
		bound, err := plain("replay_until")
		if err != nil {
			return err
		}
		var asked *time.Time
		if !d.Until.IsZero() {
			asked = &d.Until
		}
		if err := tx.QueryRow(ctx, bound, asked).Scan(&until); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sql, d.Since, until, pgtable.Like(d.Topic), pgtable.Null(d.Key), pgtable.Null(d.Tenant),
			pgtable.Null(d.Destination), name)
		if err != nil {
			return err
		}
		places, err = pgx.CollectRows(rows, pgx.RowToStructByName[operate.Place])
		return err
	})
	if err != nil {
		return nil, until, fmt.Errorf("look for delivered events of %s: %w", b.layout.Table, err)
	}
	return places, until, nil
}

// ReplayPage implements operate.Replayer. It needs the rights of outbox_operator.
func (b *Browser) ReplayPage(ctx context.Context, r operate.Replay, places []operate.Place) (n int, err error) {
	if err := b.checkDelivered(r.Delivered); err != nil {
		return 0, err
	}
	for attempt := 1; ; attempt++ {
		err = b.inTx(ctx, r.Tenant, pgx.ReadWrite, func(tx pgx.Tx) error {
			n, err = b.replayPage(ctx, tx, r, places)
			return err
		})
		if err == nil {
			return n, nil
		}
		if attempt == pgtable.Attempts || !pgtable.Deadlocked(err) {
			return 0, fmt.Errorf("replay events of %s: %w", b.layout.Table, err)
		}
	}
}

func (b *Browser) replayPage(
	ctx context.Context, tx pgx.Tx, r operate.Replay, places []operate.Place,
) (n int, err error) {
	name, err := pgtable.Name(ctx, tx, b.layout.Table)
	if err != nil {
		return 0, err
	}
	for _, archived := range []bool{true, false} {
		var positions []int64
		var ids []uuid.UUID
		for _, p := range places {
			if p.Archived == archived {
				positions, ids = append(positions, p.Position), append(ids, p.ID)
			}
		}
		if len(ids) == 0 {
			continue
		}
		statement, args := "replay_revive", []any{positions, ids, r.Until, pgtable.Null(r.Destination)}
		if archived {
			statement, args = "replay_insert", append(args, name)
		}
		sql, err := b.replayStatement(ctx, tx, statement)
		if err != nil {
			return 0, err
		}
		tag, err := tx.Exec(ctx, sql, args...)
		if err != nil {
			return 0, err
		}
		n += int(tag.RowsAffected())
	}
	if n == 0 {
		return 0, nil
	}
	return n, pgtable.Audit(ctx, tx, deadletter.Operator{Actor: r.Actor, Reason: r.Reason}, "replay", n, r.Delivered,
		map[string]any{"table": name, "run": r.Run, "delivered": true})
}
