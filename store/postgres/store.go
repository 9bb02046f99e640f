package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/pooler"
)

// store is an outbox table that a relay can serve. It is safe for concurrent use.
type store struct {
	pool   pooler.Sessions
	layout outbox.Layout
	sql    statements
	rows   pgtable.Reader
	fair   fairness
	sieve  pgtable.Sieve
	number *pgtable.Numbers
	name   string // of the table in its leases: one, whatever the layout calls it
	of     string // the name of the table whose events these are
	reader string // sqltable.ReaderOf
	origin uint64 // see outbox.Delivery
}

var _ outbox.DeliveryStore = (*store)(nil)

// Backlog counts undelivered rows up to limit.
func (s *store) Backlog(ctx context.Context, limit int) (outbox.Backlog, error) {
	counted, err := pgtable.ScanBacklog(s.pool.QueryRow(ctx, s.sql.backlog, limit), s.layout)
	return counted, pgtable.NameBlocker(ctx, s.pool, s.layout.Table, err)
}

// CheckNumbers returns an error if the numbers that the order of the table's events rests on are
// wrong.
func (s *store) CheckNumbers(ctx context.Context) error { return s.number.Check(ctx, true, true) }

// fairness is how a table's tenants share a claim. The zero value is that of a table whose claims
// cannot be shared.
type fairness struct {
	tenants, claim string // statements

	// Where the next fair claim begins, by the first of its lanes. Each of a relay's workers goes
	// round on its own: taking turns at one circle, one of two workers would meet the same half of
	// the tenants for ever.
	mu    sync.Mutex
	last  map[int16]string
	alone time.Time // until then nobody looks for a second tenant
}
