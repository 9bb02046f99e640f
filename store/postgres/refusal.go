package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
)

// SQLSTATEs that mean something of their own here.
const (
	lockNotAvailable = "55P03"
	queryCanceled    = "57014"
	readOnly         = "25006"
	diskFull         = "53100"
)

// code is the SQLSTATE of an error by which the server answered, or "".
func code(err error) string {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return ""
	}
	return server.Code
}

func transient(err error) bool { return strings.HasPrefix(code(err), "40") }

// passes tells whether a refusal is of the moment: somebody else's transaction or lock. The outcome is tried again in
// seconds; as an error of its row it would wait for somebody to act.
func passes(err error) bool { return transient(err) || code(err) == lockNotAvailable }

// refused tells whether a server that is well did not take a request: for what a row contains, or because somebody's
// trigger, policy or limit says so. It is not well while it starts or stops (57P), runs out of connections, disk or
// memory (53, 58), or takes no writes (25006). Nor is it when the connection is the trouble (08).
func refused(err error) bool {
	c := code(err)
	switch {
	case c == "", c == readOnly, strings.HasPrefix(c, "57P"):
		return false
	}
	switch c[:2] {
	case "08", "53", "58":
		return false
	}
	return true
}

// ofTheData tells whether the server refused what a row contains, which trying again does not change.
func ofTheData(err error) bool { return pgtable.OfTheData(code(err)) }

// ofAccess tells whether the server refused a statement for what it names: a right, a table or a column that is not
// there, but also what somebody's trigger or policy says.
func ofAccess(err error) bool { return strings.HasPrefix(code(err), "42") }

// whole returns an *outbox.RefusedError that says what to do if the server takes an error's statement for no row of the
// table. For class 42 what is checked at the start is checked again: it finds a right that was taken away, and nothing
// where a trigger or a policy refuses some row.
func (s *store) whole(ctx context.Context, err error) error {
	switch {
	case code(err) == readOnly:
		s.pool.Reset() // a session keeps the default_transaction_read_only that it began with
		err = fmt.Errorf("%w: the database takes no writes: end default_transaction_read_only where it is set (ALTER ROLE, "+
			"ALTER DATABASE or ALTER SYSTEM, each with RESET), or give the relay the URL of the primary", err)
	case code(err) == diskFull:
		err = fmt.Errorf("%w: free space on the database server's disk", err)
	case ofAccess(err):
		err = s.checkSettles(ctx)
	default:
		return nil
	}
	if err == nil {
		return nil
	}
	return &outbox.RefusedError{Err: err, Whole: true}
}
