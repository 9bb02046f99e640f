package postgres

import (
	"context"
	"fmt"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// SQLSTATEs.
const (
	undefinedTable = "42P01"
	noRight        = "42501"
)

// whole returns an *outbox.RefusedError that says what to do if the server takes an error's
// statement for no row of the table. For class 42 what is checked at the start is checked again: it
// finds a right that was taken away, and nothing where a trigger or a policy refuses some row.
func (s *store) whole(ctx context.Context, err error) error {
	switch {
	case pgtable.Code(err) == pgtable.ReadOnly:
		s.pool.Reset() // a session keeps the default_transaction_read_only that it began with
		err = fmt.Errorf("%w: the database takes no writes: end default_transaction_read_only where it is set (ALTER ROLE, "+
			"ALTER DATABASE or ALTER SYSTEM, each with RESET), or give the relay the URL of the primary", err)
	case pgtable.Code(err) == pgtable.DiskFull:
		err = fmt.Errorf("%w: free space on the database server's disk", err)
	case pgtable.OfAccess(err):
		err = s.checkSettles(ctx)
	default:
		return nil
	}
	if err == nil {
		return nil
	}
	return &outbox.RefusedError{Err: err, Whole: true}
}
