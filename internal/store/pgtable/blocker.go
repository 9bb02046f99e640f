package pgtable

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// blockerPatience bounds the search for a blocking session.
const blockerPatience = 500 * time.Millisecond

// NameBlocker is for the error of a statement that waited too long. If a session has the table or
// its rows locked, NameBlocker returns the error with the session's name and with the SQL that ends
// it. Any other error is returned as it is. The search does not stop if ctx has expired.
func NameBlocker(ctx context.Context, db Querier, table string, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && Code(err) != LockNotAvailable {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blockerPatience)
	defer cancel()
	statement, unknown := files.Statement("blocker", nil)
	var blocker string
	if unknown != nil || db.QueryRow(ctx, statement, QuoteTable(table)).Scan(&blocker) != nil {
		return err // no session blocks the table, or the server does not answer
	}
	return fmt.Errorf("%w; %s", err, blocker)
}
