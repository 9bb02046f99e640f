package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/tables"
)

// Store is an outbox table that a relay can serve. It is safe for concurrent use.
type Store struct {
	pool       sessions
	layout     outbox.Layout
	sql        statements
	intern     interner
	claims     claimSize
	fair       fairness
	name       string // of the table in its leases: one, whatever the layout calls it
	origin     uint64 // see outbox.Delivery
	maxPayload int    // bytes of a payload as text; a longer one is a defect
}

// maxPayload is what jsonb itself can hold. Only numbers with large exponents are longer as text, up to 15,000 times:
// one message of them is more than Redis takes (512 MB), which it answers by closing the connection, and so the whole
// relay would wait for ever.
const maxPayload = 256 << 20

var _ tables.Store = (*Store)(nil)

// Open returns the store of a table after checking that the table fits the layout, and that the caller may see its
// rows. pool should come from Connect: one of the caller's own sends the relay's settings with every statement. A table
// that is missing or older than the layout needs is an *outbox.SchemaError.
func Open(ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout) (*Store, error) {
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
	s := &Store{pool: sessions, layout: layout, sql: sql, maxPayload: maxPayload}
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if err := s.checkTypes(ctx); err != nil {
		return nil, err
	}
	if err := s.findFairness(ctx); err != nil {
		return nil, err
	}
	if s.name, s.origin, err = identify(ctx, pool, layout.Table); err != nil {
		return nil, err
	}
	return s, nil
}

// Backlog counts undelivered rows up to limit.
func (s *Store) Backlog(ctx context.Context, limit int) (tables.Backlog, error) {
	var b tables.Backlog
	var written *time.Time
	var id *uuid.UUID
	var now time.Time
	if err := s.pool.QueryRow(ctx, s.sql.backlog, limit).Scan(&b.Count, &written, &id, &now); err != nil {
		return tables.Backlog{}, fmt.Errorf("read backlog of %s: %w", s.layout.Table, err)
	}
	if written == nil && id != nil {
		if t := outbox.TimeOfID(*id); !t.IsZero() {
			written = &t
		}
	}
	if written != nil {
		b.Oldest = max(now.Sub(*written), 0)
	}
	return b, nil
}
