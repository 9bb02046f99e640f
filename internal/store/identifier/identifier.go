// Package identifier knows what can be a name in SQL.
//
// Guaranteed: what passes can be quoted, and PostgreSQL does not cut it.
//
// Not guaranteed: that something of that name exists.
package identifier

import (
	"errors"
	"fmt"
	"strings"
)

// CheckTable refuses what can be no name of a table, alone or with a schema before it.
func CheckTable(table string) error {
	parts := strings.Split(table, ".")
	if len(parts) > 2 {
		return fmt.Errorf("%q has more than a schema and a name", table)
	}
	for _, p := range parts {
		if err := Check(p); err != nil {
			return err
		}
	}
	return nil
}

// Check refuses what PostgreSQL would cut or cannot hold. Anything else is safe, because it is
// quoted.
func Check(s string) error {
	switch {
	case s == "":
		return errors.New("is empty")
	case len(s) > 63:
		return fmt.Errorf("%q is longer than PostgreSQL's 63 bytes for a name", s)
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%q contains NUL", s)
	}
	return nil
}
