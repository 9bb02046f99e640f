package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/internal/store/uuid7"
)

// store is an outbox table that a relay can serve. It is safe for concurrent use.
type store struct {
	db         *DB
	layout     outbox.Layout
	sql        statements
	fair       fairness
	name       string // of the table in its leases
	of         string // the name of the table whose events these are
	reader     string // sqltable.ReaderOf
	origin     uint64 // see outbox.Delivery
	trusted    bool   // the table's own checks see to it that payloads are JSON
	maxPayload int    // bytes; a longer one is a defect
}

// maxPayload is below what a broker answers by closing the connection, and so the whole relay would
// wait for ever (Redis: 512 MB).
const maxPayload = 256 << 20

var _ outbox.DeliveryStore = (*store)(nil)

// Backlog counts undelivered rows up to limit.
func (s *store) Backlog(ctx context.Context, limit int) (outbox.Backlog, error) {
	b, err := s.backlog(ctx, limit)
	if err != nil {
		return outbox.Backlog{}, fmt.Errorf("read backlog of %s: %w", s.layout.Table, explain(err))
	}
	return b, nil
}

func (s *store) backlog(ctx context.Context, limit int) (b outbox.Backlog, err error) {
	stmt, err := s.sql.backlog.on(ctx, s.db.read)
	if err != nil {
		return b, err
	}
	var written sql.NullString
	var id sqltable.Text
	if err := stmt.QueryRowContext(ctx, limit).Scan(&b.Count, &written, &id); err != nil {
		return b, err
	}
	oldest, err := parseTime(written.String)
	if err != nil { // none, or what is no time: the claim says so
		parsed, _ := sqltable.ParseID(id)
		oldest = uuid7.Time(parsed)
	}
	if !oldest.IsZero() {
		b.Oldest = max(time.Since(oldest), 0)
	}
	return b, nil
}

// fairness is how a table's tenants share a claim. The zero value is that of a table whose claims
// cannot be shared.
type fairness struct {
	tenants, claim prepared

	// Where the next fair claim begins, by the first of its lanes. Each of a relay's workers goes
	// round on its own: taking turns at one circle, one of two workers would meet the same half of
	// the tenants for ever.
	mu   sync.Mutex
	last map[int16]any
}
