package tables

import (
	"time"

	"github.com/google/uuid"
)

// Backlog is how far behind a table's relay is.
type Backlog struct {
	Count  int           // undelivered rows, those waiting for a retry included; counting stops at the limit asked for
	Oldest time.Duration // age of the oldest one by the database's clock; 0 if there is none or the table keeps no time
}

// TimeOfID returns the time in a UUIDv7, or zero for an id of another version.
func TimeOfID(id uuid.UUID) time.Time {
	if id.Version() != 7 {
		return time.Time{}
	}
	ms := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
	return time.UnixMilli(ms)
}
