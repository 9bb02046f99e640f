// Package uuid7 reads the time that an id tells.
//
// Guaranteed: nothing is read into an id of another version.
//
// Not guaranteed: that the time is right; it is by the clock of whoever drew the id.
package uuid7

import (
	"time"

	"github.com/google/uuid"
)

// Time returns the time in a UUIDv7, or zero for an id of another version.
func Time(id uuid.UUID) time.Time {
	if id.Version() != 7 {
		return time.Time{}
	}
	ms := int64(id[0])<<40 | int64(id[1])<<32 | int64(id[2])<<24 | int64(id[3])<<16 | int64(id[4])<<8 | int64(id[5])
	return time.UnixMilli(ms)
}

// First returns the least UUIDv7 of a time, which has milliseconds.
func First(t time.Time) (id uuid.UUID) {
	ms := uint64(t.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[8] = 0x70, 0x80
	return id
}

// Written returns when a row was written: at, or where nothing says so the time in its id, which
// may be none (zero).
func Written(at *time.Time, id uuid.UUID) time.Time {
	if at != nil {
		return *at
	}
	return Time(id)
}
