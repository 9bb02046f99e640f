package tables

import (
	"errors"
	"fmt"
	"strings"
)

// SchemaError says that the database lacks what a layout needs, and what to do about it.
type SchemaError struct {
	Table   string
	Missing []string // columns, or empty if the whole table is missing
	Remedy  string
}

func (e *SchemaError) Error() string {
	if len(e.Missing) == 0 {
		return fmt.Sprintf("table %s does not exist: %s", e.Table, e.Remedy)
	}
	return fmt.Sprintf("table %s is not what this program needs, it lacks %s: %s", e.Table, strings.Join(e.Missing, ", "), e.Remedy)
}

// ErrRowsHidden says that row-level security hides the table's rows from this role: a relay would see an empty table
// for ever.
var ErrRowsHidden = errors.New("row-level security hides the rows from this role")

// ErrNotAllowed says that this role lacks privileges on the table: a relay would go on failing.
var ErrNotAllowed = errors.New("this database role lacks privileges")

// ErrNoAge says that a table's layout names neither a time of delivery nor one of writing: nothing tells how old a row
// is.
var ErrNoAge = errors.New("nothing tells how old its rows are")
