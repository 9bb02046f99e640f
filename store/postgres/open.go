package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/retention"
)

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

// OpenTable implements outbox.Database. It checks that the table fits the layout, and that this role sees its rows.
func (d served) OpenTable(ctx context.Context, layout outbox.Layout) (outbox.Store, error) {
	s, err := openTable(ctx, d.pool, layout)
	if err != nil {
		return nil, lasting(err)
	}
	if !layout.IsLog() {
		return s, nil
	}
	log, err := openLog(ctx, s)
	if err != nil {
		return nil, lasting(err)
	}
	return log, nil
}

// Retain implements outbox.Database with package retention.
func (d served) Retain(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
	if layout.IsLog() {
		return d.retainLog(ctx, layout, r)
	}
	return retention.Serve(ctx, layout.Table, r, func(ctx context.Context) (retention.Store, error) {
		return openRetention(ctx, d.pool, layout)
	})
}

// RetainLetters implements outbox.Database.
func (d served) RetainLetters(ctx context.Context, r outbox.Retention) error {
	return retention.Serve(ctx, letterTable, r, func(ctx context.Context) (retention.Store, error) {
		return openRetention(ctx, d.pool, retention.Letters())
	})
}

// lasting marks what waiting does not cure as outbox.Permanent.
func lasting(err error) error {
	if pgschema.Passes(err) {
		return err
	}
	return outbox.Permanent(err)
}
