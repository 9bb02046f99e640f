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

// Debts returns what sinks of tables with routes have not taken. It answers with a *outbox.SchemaError where the file
// has no table of deliveries yet.
func Debts(ctx context.Context, db *sqlite.DB) (debts []operate.Debt, err error) {
	if _, err := file(db).CheckTable(ctx, "outbox_deliveries", nil); err != nil {
		return nil, err
	}
	text, err := plain("debts")
	if err != nil {
		return nil, err
	}
	now := time.Now()
	err = file(db).Snapshot(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, text, sqlitetime.Stamp(now))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var d operate.Debt
			var oldest sql.NullString
			if err := rows.Scan(&d.Sink, &d.Table, &d.Owed, &d.Retrying, &oldest, &d.Dead); err != nil {
				return err
			}
			if at, err := sqlitetime.Parse(oldest.String); err == nil {
				age := max(now.Sub(at).Seconds(), 0)
				d.Oldest = &age
			}
			debts = append(debts, d)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("count what sinks owe: %w", sqlitefile.Explain(err))
	}
	return debts, nil
}

// MoveDebt gives at most limit of the deliveries that a sink owes to another one, the oldest first, and records it. A
// relay that serves the sink could be publishing one of them.
func MoveDebt(
	ctx context.Context, db *sqlite.DB, m operate.DebtMove, limit int,
) (done operate.DebtMoved, err error) {
	text, err := plain("debts_move")
	if err != nil {
		return done, err
	}
	err = sqlitefile.InTx(ctx, db, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, text, m.Table, m.Sink, m.To, limit, sqlitetime.Stamp(time.Now()))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var had bool
			if err := rows.Scan(&had); err != nil {
				return err
			}
			if had {
				done.Had++
			} else {
				done.Moved++
			}
		}
		if err := rows.Err(); err != nil || done == (operate.DebtMoved{}) {
			return err
		}
		by := deadletter.Operator{Actor: m.Actor, Reason: m.Reason}
		return sqlitetable.Audit(ctx, tx, by, "move", done.Moved+done.Had, operate.Selection{All: true}, m.Detail(done))
	})
	if err != nil {
		return operate.DebtMoved{}, fmt.Errorf("move what %s owes of %s: %w", m.Sink, m.Table, sqlitefile.Explain(err))
	}
	return done, nil
}

// PendingLetters counts dead letters that are pending, up to limit of all.
func PendingLetters(ctx context.Context, db *sqlite.DB, limit int) (pending []operate.Pending, err error) {
	text, err := plain("letters_pending")
	if err != nil {
		return nil, err
	}
	err = file(db).Snapshot(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, text, limit)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var p operate.Pending
			if err := rows.Scan(&p.Source, &p.Table, &p.Letters); err != nil {
				return err
			}
			pending = append(pending, p)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("count pending letters: %w", sqlitefile.Explain(err))
	}
	return pending, nil
}
