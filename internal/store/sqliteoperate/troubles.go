package sqliteoperate

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/outboxrelay/outbox/internal/store/operate"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// Troubles returns what hinders the relays.
func Troubles(ctx context.Context, db *sqlite.DB) (all []operate.Trouble, err error) {
	text, err := plain("troubles")
	if err != nil {
		return nil, err
	}
	err = file(db).Snapshot(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, text, sqlitetime.Stamp(time.Now()))
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var t operate.Trouble
			var since sql.NullString
			var health []byte
			if err := rows.Scan(&t.Relay, &t.Of, &since, &health); err != nil {
				return err
			}
			if t.Since, err = sqlitetime.ParseNull(since); err != nil {
				return err
			}
			if err := t.Tell(health); err != nil {
				return err
			}
			all = append(all, t)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("ask what hinders relays: %w", sqlitefile.Explain(err))
	}
	return all, nil
}
