// Package sqlitefile is what all that opens an SQLite file has in common: its name for the driver,
// what its errors mean, and a transaction that ends.
//
// Guaranteed: an error that Explain has named is still the driver's; a transaction of InTx is over
// when it returns.
//
// Not guaranteed: that nobody else has the file. Package store/sqlite watches that.
package sqlitefile

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/outboxrelay/outbox"
)

// What callers of package store/sqlite branch on, and know by its names.
var (
	ErrNoFile    = errors.New("there is no such file")
	ErrNotSQLite = errors.New("it is no SQLite database")
	ErrBusy      = errors.New("another transaction has the file's write lock")
	ErrReadOnly  = errors.New("the file cannot be written to by this process")
	ErrDamaged   = errors.New("the file is damaged: put a backup in its place, or save what can be read with: " +
		"sqlite3 FILE .recover | sqlite3 NEWFILE")
	ErrReplaced = errors.New("the file was deleted or replaced while it was open: start every process that has it " +
		"open again")
)

// BusyFor is how long a transaction waits for one of another process, or of another handle of this
// one, before it gives up with SQLITE_BUSY. It is longer than a relay's settle may last (10 s).
// Writers of one process queue in Go and do not come to that.
const BusyFor = 30 * time.Second

// Source is the driver's name for a file. busy_timeout comes first: turning WAL on takes a lock.
func Source(path, mode, lock string, pragmas ...string) string {
	q := url.Values{"mode": {mode}, "_txlock": {lock}}
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", BusyFor.Milliseconds()))
	for _, p := range append(pragmas, "foreign_keys(1)", "temp_store(MEMORY)") {
		q.Add("_pragma", p)
	}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: path}).EscapedPath(), RawQuery: q.Encode()}).String()
}

// Explain gives an error of SQLite's the name that callers branch on (ErrBusy, ErrReadOnly, …),
// where it has one: for statements of the caller's own. What package store/sqlite returns is
// explained already.
func Explain(err error) error {
	return Classify(err, "for "+BusyFor.String()+
		" another process, or another handle of this one, has kept it: look for a transaction that is left open there, or "+
		"a tool that copies the file")
}

// Classify is Explain where SQLITE_BUSY has another reason.
func Classify(err error, whyBusy string) error {
	var failure *driver.Error
	if !errors.As(err, &failure) {
		return err
	}
	var sentinel error
	switch code := failure.Code(); {
	case code == codes.SQLITE_READONLY_DBMOVED:
		sentinel = ErrReplaced
	case code&0xff == codes.SQLITE_READONLY:
		sentinel = ErrReadOnly
	case code&0xff == codes.SQLITE_NOTADB:
		sentinel = ErrNotSQLite
	case code&0xff == codes.SQLITE_CORRUPT:
		sentinel = ErrDamaged
	case code&0xff == codes.SQLITE_BUSY:
		sentinel = ErrBusy
	}
	switch {
	case sentinel == nil || errors.Is(err, sentinel): // an inner call has said it
		return err
	case errors.Is(sentinel, ErrBusy):
		return fmt.Errorf("%w: %s: %w", sentinel, whyBusy, err)
	}
	return fmt.Errorf("%w: %w", sentinel, err)
}

// OfTheData tells whether the file refused what a row contains, which trying again does not change.
func OfTheData(err error) bool {
	var failure *driver.Error
	if !errors.As(err, &failure) {
		return false
	}
	switch failure.Code() & 0xff {
	case codes.SQLITE_CONSTRAINT, codes.SQLITE_TOOBIG, codes.SQLITE_MISMATCH:
		return true
	}
	return false
}

// Passes tells whether a failure to open something can go away while one waits: another process
// keeps the file locked.
func Passes(err error) bool {
	var failure *driver.Error
	var schema *outbox.SchemaError
	switch {
	case errors.Is(err, ErrNoFile), errors.Is(err, ErrNotSQLite), errors.Is(err, ErrDamaged),
		errors.Is(err, ErrReadOnly), errors.As(err, &schema):
		return false
	case errors.Is(err, ErrBusy):
		return true
	case errors.As(err, &failure):
		code := failure.Code() & 0xff
		return code == codes.SQLITE_BUSY || code == codes.SQLITE_LOCKED
	}
	return true
}
