package sqlite

import (
	sqldriver "database/sql/driver"
	"time"

	driver "modernc.org/sqlite"
)

// now gives SQLite the function NOW(), which FR-005's UPDATE calls and SQLite lacks: the time in
// the form in which the tables hold it. Statements of this process can call it; another program's
// SQLite has no such function. It is registered when the program starts, for the reason that
// fingerprinting gives. An application that has registered a NOW of its own keeps it.
var _ = driver.RegisterScalarFunction("now", 0,
	func(*driver.FunctionContext, []sqldriver.Value) (sqldriver.Value, error) {
		return stamp(time.Now()), nil
	})
