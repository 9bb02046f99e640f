package pgtable

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATEs that mean something of their own here.
const (
	LockNotAvailable = "55P03"
	Duplicate        = "23505"
	QueryCanceled    = "57014"
	ReadOnly         = "25006"
	DiskFull         = "53100"
)

// Code is the SQLSTATE by which the server answered a statement, or "". What it says to one who
// wants to connect (a password was changed) is about no statement.
func Code(err error) string {
	var server *pgconn.PgError
	var connecting *pgconn.ConnectError
	if !errors.As(err, &server) || errors.As(err, &connecting) {
		return ""
	}
	return server.Code
}

// Transient tells whether the server ended the transaction for another's sake, so that the same may
// well succeed now.
func Transient(err error) bool { return strings.HasPrefix(Code(err), "40") }

// Passes tells whether a refusal is of the moment: somebody else's transaction or lock. The outcome
// is tried again in seconds; as an error of its row it would wait for somebody to act.
func Passes(err error) bool { return Transient(err) || Code(err) == LockNotAvailable }

// Unwell tells whether a server, or a pooler, answers of itself and not of the statement: it starts
// or stops (57P), takes no writes (25006), runs out of connections, disk or memory (53, 58), or the
// connection is the trouble (08), or a pooler's login (28).
func Unwell(err error) bool {
	c := Code(err)
	return slices.ContainsFunc([]string{"08", ReadOnly, "28", "53", "57P", "58"},
		func(class string) bool { return strings.HasPrefix(c, class) })
}

// Refused tells whether a server that is well did not take a request: for what a row contains, or
// because somebody's trigger, policy or limit says so.
func Refused(err error) bool { return Code(err) != "" && !Unwell(err) }

// OfTheData tells whether the server refused what a row contains, which trying again does not
// change: more rows than one (21), data exceptions (22), integrity constraints (23), limits of the
// program (54), damaged data (XX001).
func OfTheData(err error) bool {
	c := Code(err)
	return c != "" && slices.Contains([]string{"21", "22", "23", "54"}, c[:2]) || c == "XX001"
}

// OfAccess tells whether the server refused a statement for what it names: a right, a table or a
// column that is not there, but also what somebody's trigger or policy says.
func OfAccess(err error) bool { return strings.HasPrefix(Code(err), "42") }

// TimeLimit marks the end of a claim by the server's statement_timeout, so that the relay asks for
// less.
func TimeLimit(ctx context.Context, err error) error {
	if Code(err) == QueryCanceled && ctx.Err() == nil {
		return errors.Join(context.DeadlineExceeded, err)
	}
	return err
}
