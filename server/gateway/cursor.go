package gateway

import (
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox/server/crawl"
)

// A cursor of a list of runs is opaque to clients. It is base64url of a version, the microseconds of the last run's
// time, which are all that PostgreSQL keeps, and its id. It is not signed: it says where to go on, not what one may
// see.
const (
	cursorVersion = 1
	cursorSize    = 1 + 8 + 16
)

func formatCursor(c crawl.Cursor) string {
	if c == (crawl.Cursor{}) {
		return ""
	}
	b := binary.BigEndian.AppendUint64([]byte{cursorVersion}, uint64(c.CreatedAt.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(b, c.ID[:]...))
}

var errCursor = &crawl.FieldError{Field: "cursor", Problem: "is none that this API has given"}

func parseCursor(s string) (crawl.Cursor, error) {
	if s == "" {
		return crawl.Cursor{}, nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != cursorSize || b[0] != cursorVersion {
		return crawl.Cursor{}, errCursor
	}
	c := crawl.Cursor{CreatedAt: time.UnixMicro(int64(binary.BigEndian.Uint64(b[1:]))).UTC(), ID: uuid.UUID(b[9:])}
	// Beyond what PostgreSQL's timestamps hold it would be an error of the database.
	if y := c.CreatedAt.Year(); y < 1 || y > 9999 {
		return crawl.Cursor{}, errCursor
	}
	return c, nil
}
