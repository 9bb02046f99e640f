package sqlite

import (
	"time"

	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
)

// The statements of this package take and return times in so many places that
// internal/store/sqlitetime has short names here.

func stamp(t time.Time) string { return sqlitetime.Stamp(t) }

func parseTime(s string) (time.Time, error) { return sqlitetime.Parse(s) }
