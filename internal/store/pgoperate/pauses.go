package pgoperate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// Pauses are what operators have paused. They need the rights of outbox_operator; reading is also outbox_reader's. It
// is safe for concurrent use.
type Pauses struct{ pool *pgxpool.Pool }

var _ operate.Pauses = (*Pauses)(nil)

// OpenPauses answers with a *outbox.SchemaError where the database has no table of pauses yet.
func OpenPauses(ctx context.Context, pool *pgxpool.Pool) (*Pauses, error) {
	if err := pgschema.CheckTable(ctx, pool, "outbox_pauses", nil); err != nil {
		return nil, err
	}
	return &Pauses{pool}, nil
}

// Pauses implements operate.Pauses.
func (p *Pauses) Pauses(ctx context.Context) ([]operate.Pause, error) {
	all, err := readPauses(ctx, p.pool, nil)
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	return all, nil
}

// readPauses returns those that concern a table, nil for all.
func readPauses(ctx context.Context, db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}, table *string) ([]operate.Pause, error) {
	sql, err := plain("pause_list")
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, sql, table)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[operate.Pause])
	for i := range all {
		all[i].Table, all[i].To = operate.TableAndSink(all[i].Table)
	}
	return all, err
}

// Pause implements operate.Pauses.
func (p *Pauses) Pause(ctx context.Context, pause operate.Pause) error {
	if _, err := p.change(ctx, "pause", "pause_add", pause, pause.Reason, pause.Actor); err != nil {
		return fmt.Errorf("pause: %w", err)
	}
	return nil
}

// Resume implements operate.Pauses.
func (p *Pauses) Resume(ctx context.Context, pause operate.Pause) (bool, error) {
	found, err := p.change(ctx, "resume", "pause_remove", pause)
	if err != nil {
		return false, fmt.Errorf("resume: %w", err)
	}
	return found, nil
}

// change runs a statement for what a pause names, and records it if it changed something.
func (p *Pauses) change(
	ctx context.Context, action, statement string, pause operate.Pause, args ...any,
) (changed bool, err error) {
	sql, err := plain(statement)
	if err != nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if pause.Table != "" {
			if pause.Table, err = pgtable.Name(ctx, tx, pause.Table); err != nil {
				return err
			}
		}
		tag, err := tx.Exec(ctx, sql, append([]any{pause.Name(), pause.Topic, pause.Destination}, args...)...)
		if changed = tag.RowsAffected() > 0; err != nil || !changed {
			return err
		}
		by := deadletter.Operator{Actor: pause.Actor, Reason: pause.Reason}
		return pgtable.Audit(ctx, tx, by, action, 0, pause.Names(), nil)
	})
	return changed, err
}
