package sqlite

import (
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/outboxrelay/outbox"
)

// whole says of an error by which the file takes no row of a settle, or no lease, at all that it is
// so, and what to do.
func whole(err error) error {
	err = explain(err)
	if errors.Is(err, ErrReplaced) || errors.Is(err, ErrDamaged) || errors.Is(err, ErrNotSQLite) {
		return &outbox.RefusedError{Err: err, Whole: true}
	}
	var failure *driver.Error
	if !errors.As(err, &failure) {
		return err
	}
	switch failure.Code() & 0xff {
	case codes.SQLITE_FULL:
		err = fmt.Errorf("%w: free space on its disk", err)
	case codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN, codes.SQLITE_PERM, codes.SQLITE_IOERR:
		err = fmt.Errorf("%w: let this process write the file, the files beside it and their folder", err)
	default:
		return err
	}
	return &outbox.RefusedError{Err: err, Whole: true}
}
