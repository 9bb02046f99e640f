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
			var own error // that fn returned
			err := db.inTx(ctx, func(tx *sql.Tx) error {
				own = fn(tx)
				return own
			})
			return classOf(err, own, db.check)
		},
	}
}

// classOf returns the error of a transaction with its class. own is the error that the handler
// returned. It may come from another file, so it counts as an attempt unless this file was
// replaced. This file is not busy, because the transaction has its write lock.
func classOf(err, own error, check func() error) error {
	var refusal *outbox.RefusedError
	switch {
	case err == nil:
		return nil
	case own != nil:
		if replaced := check(); replaced != nil {
			return outbox.Unavailable(errors.Join(err, replaced))
		}
		return err
	case errors.Is(err, ErrBusy), errors.Is(err, ErrReplaced), errors.Is(err, ErrReadOnly),
		errors.As(whole(err), &refusal): // its disk is full, or fails
		return outbox.Unavailable(err)
	}
	return err
}
