package sqliteoperate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/deadletter"
	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// Pauses are what operators have paused. It is safe for concurrent use.
type Pauses struct{ db *sqlite.DB }

var _ operate.Pauses = (*Pauses)(nil)

// OpenPauses answers with a *outbox.SchemaError where the file has no table of pauses yet.
func OpenPauses(ctx context.Context, db *sqlite.DB) (*Pauses, error) {
	if _, err := file(db).CheckTable(ctx, "outbox_pauses", nil); err != nil {
		return nil, err
	}
	return &Pauses{db}, nil
}

// Pauses implements operate.Pauses.
func (p *Pauses) Pauses(ctx context.Context) (all []operate.Pause, err error) {
	err = file(p.db).Snapshot(ctx, func(tx *sql.Tx) error {
		all, err = readPauses(ctx, tx, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", sqlitefile.Explain(err))
	}
	return all, nil
}

// readPauses returns those that concern a table, nil for all.
func readPauses(ctx context.Context, tx *sql.Tx, table any) (all []operate.Pause, err error) {
	text, err := plain("pause_list")
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, text, table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var one operate.Pause
		var at string
		if err := rows.Scan(&one.Table, &one.Topic, &one.Destination, &one.Reason, &one.Actor, &at); err != nil {
			return nil, err
		}
		if one.At, err = sqlitetime.Parse(at); err != nil {
			return nil, err
		}
		one.Table, one.To = operate.TableAndSink(one.Table)
		all = append(all, one)
	}
	return all, rows.Err()
}

// Pause implements operate.Pauses.
func (p *Pauses) Pause(ctx context.Context, pause operate.Pause) error {
	now := sqlitetime.Stamp(time.Now())
	if _, err := p.change(ctx, "pause", "pause_add", pause, pause.Reason, pause.Actor, now); err != nil {
		return fmt.Errorf("pause: %w", sqlitefile.Explain(err))
	}
	return nil
}

// Resume implements operate.Pauses.
func (p *Pauses) Resume(ctx context.Context, pause operate.Pause) (bool, error) {
	found, err := p.change(ctx, "resume", "pause_remove", pause)
	if err != nil {
		return false, fmt.Errorf("resume: %w", sqlitefile.Explain(err))
	}
	return found, nil
}

// change runs a statement for what a pause names, and records it if it changed something.
func (p *Pauses) change(
	ctx context.Context, action, statement string, pause operate.Pause, args ...any,
) (changed bool, err error) {
	text, err := plain(statement)
	if err != nil {
		return false, err
	}
	if pause.Table != "" {
		if pause.Table, err = file(p.db).Spelled(ctx, pause.Table); err != nil { // as the leases have it
			return false, err
		}
	}
	err = sqlitefile.InTx(ctx, p.db, func(tx *sql.Tx) error {
		result, err := tx.ExecContext(ctx, text, append([]any{pause.Name(), pause.Topic, pause.Destination}, args...)...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		if changed = n > 0; err != nil || !changed {
			return err
		}
		by := deadletter.Operator{Actor: pause.Actor, Reason: pause.Reason}
		return sqlitetable.Audit(ctx, tx, by, action, 0, pause.Names(), nil)
	})
	return changed, err
}
