package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/inbox"
)

// Transactions are those of an open file, for the handlers of a group (package inbox/group). They
// take turns with all that writes into the file.
func Transactions(db *DB) inbox.Transactions[*sql.Tx] {
	return inbox.Transactions[*sql.Tx]{
		Inbox: newInbox[*sql.Tx],
		Do: func(ctx context.Context, fn func(*sql.Tx) error) error {
			err := db.inTx(ctx, fn)
			if errors.Is(err, ErrBusy) || errors.Is(err, ErrReplaced) || errors.Is(err, ErrReadOnly) {
				return outbox.Unavailable(err)
			}
			return err
		},
	}
}
