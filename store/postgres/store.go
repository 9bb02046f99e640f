package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/uuid7"
)

// store is an outbox table that a relay can serve. It is safe for concurrent use.
type store struct {
	pool       sessions
	layout     outbox.Layout
	sql        statements
	intern     interner
	claims     claimSize
	fair       fairness
	name       string // of the table in its leases: one, whatever the layout calls it
	of         string // the name of the table whose events these are
	origin     uint64 // see outbox.Delivery
	maxPayload int    // bytes of a payload as text; a longer one is a defect
}

// maxPayload is what jsonb itself can hold. Only numbers with large exponents are longer as text, up to 15,000 times.
// One message of them is more than Redis takes (512 MB). Redis answers it by closing the connection, and so the whole
// relay would wait for ever.
const maxPayload = 256 << 20

var _ outbox.DeliveryStore = (*store)(nil)

// openTable returns the store of a table after checking that the table fits the layout, and that the caller may see its
// rows. A table that is missing or older than the layout needs is an *outbox.SchemaError.
func openTable(ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout) (*store, error) {
	if err := layout.Validate(); err != nil {
		return nil, err
	}
	sql, err := statementsOf(layout)
	if err != nil {
		return nil, err
	}
	sessions, err := newSessions(pool)
	if err != nil {
		return nil, err
	}
	s := &store{pool: sessions, layout: layout, sql: sql, maxPayload: maxPayload}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if err := s.checkTypes(ctx); err != nil {
		return nil, err
	}
	if !layout.IsLog() {
		if err := s.findFairness(ctx); err != nil {
			return nil, err
		}
	}
	if s.name, s.of, s.origin, err = identify(ctx, pool, layout); err != nil {
		return nil, err
	}
	return s, nil
}

// Backlog counts undelivered rows up to limit.
func (s *store) Backlog(ctx context.Context, limit int) (outbox.Backlog, error) {
	return s.scanBacklog(s.pool.QueryRow(ctx, s.sql.backlog, limit))
}

func (s *store) scanBacklog(row pgx.Row) (outbox.Backlog, error) {
	var b outbox.Backlog
	var written *time.Time
	var id *uuid.UUID
	var now time.Time
	if err := row.Scan(&b.Count, &written, &id, &now); err != nil {
		return outbox.Backlog{}, fmt.Errorf("read backlog of %s: %w", s.layout.Table, err)
	}
	if written == nil && id != nil {
		if t := uuid7.Time(*id); !t.IsZero() {
			written = &t
		}
	}
	if written != nil {
		b.Oldest = max(now.Sub(*written), 0)
	}
	return b, nil
}
