package migration

import (
	"slices"

	"github.com/outboxrelay/outbox"
)

// CheckColumns answers with an *outbox.SchemaError, whose remedy is the one for this table, if a
// table lacks one of the columns that are wanted. A table without columns is not there. same
// compares two names as the database does; nil: by the letter.
func CheckColumns(table string, have, want []string, same func(a, b string) bool) error {
	remedy := "add the columns or correct the layout"
	if len(have) == 0 {
		remedy = "make it or correct its name in the layout"
	}
	if set, ok := SetOf[table]; ok {
		remedy = "run: outbox migrate up --set " + set
	}
	if len(have) == 0 {
		return &outbox.SchemaError{Table: table, Remedy: remedy}
	}
	if same == nil {
		same = func(a, b string) bool { return a == b }
	}
	var missing []string
	for _, c := range want {
		if !slices.ContainsFunc(have, func(h string) bool { return same(h, c) }) && !slices.Contains(missing, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return &outbox.SchemaError{Table: table, Missing: missing, Remedy: remedy}
	}
	return nil
}
