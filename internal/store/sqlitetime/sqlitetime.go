// Package sqlitetime is how times are kept in SQLite's tables: as text, because SQLite has no type
// for them.
//
// Guaranteed: of two times that [Stamp] wrote the earlier is the smaller text, so that an index on
// them is in the order of time. [Parse] reads what SQLite's own functions write.
//
// Not guaranteed: more than microseconds, which is what PostgreSQL keeps.
package sqlitetime

import (
	"fmt"
	"time"
)

// Form is how times are stored: UTC, of one width, so that the order of the text is the order of
// time.
const Form = "2006-01-02T15:04:05.000000Z"

// Stamp is a time as it is stored, to the microsecond as in PostgreSQL.
func Stamp(t time.Time) string { return t.UTC().Format(Form) }

// Parse reads a stored time. Plain SQL may have written it in another of SQLite's forms; without a
// zone it is UTC, as all of SQLite's functions take it.
func Parse(s string) (time.Time, error) {
	for _, form := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999",
		"2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(form, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("read time %q: want the form %s", s, Form)
}

// Farthest is the latest end of a lease that anybody can have asked for. Nothing bounds a lease's
// time, and others may ask for another than the caller; nobody is likely to ask for ten times as
// much, or for more than ten minutes. What ends later was written before the clock was set back.
func Farthest(now time.Time, ttl time.Duration) time.Time {
	return now.Add(max(10*ttl, 10*time.Minute))
}
