package sqlite

import (
	"database/sql"
	"fmt"
	"time"
)

// timeForm is how times are stored: UTC, of one width, so that the order of the text is the order of time.
const timeForm = "2006-01-02T15:04:05.000000Z"

// stamp is a time as it is stored, to the microsecond as in PostgreSQL.
func stamp(t time.Time) string { return t.UTC().Format(timeForm) }

// parseTime reads a stored time. Plain SQL may have written it in another of SQLite's forms; without a zone it is UTC,
// as all of SQLite's functions take it.
func parseTime(s string) (time.Time, error) {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999",
		"2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(form, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("read time %q: want the form %s", s, timeForm)
}

// timePointer is parseTime for a column that may be NULL.
func timePointer(s sql.NullString) (*time.Time, error) {
	if !s.Valid {
		return nil, nil
	}
	t, err := parseTime(s.String)
	if err != nil {
		return nil, err
	}
	return &t, nil
}
