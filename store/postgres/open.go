package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/pooler"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
	"github.com/outboxrelay/outbox/store/postgres/internal/logtable"
)

// open returns what every table has, after checking that the table fits the layout, and that the
// caller may see its rows. A table that is missing or older than the layout needs is an
// *outbox.SchemaError.
func open(ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout) (*store, error) {
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
	s := &store{pool: sessions, layout: layout, sql: sql, reader: sqltable.ReaderOf(layout)}
	s.number = &pgtable.Numbers{Pool: pool, Layout: layout, Origin: func(ctx context.Context) (uint64, error) {
		_, _, origin, err := identify(ctx, pool, layout)
		return origin, err
	}}
	s.rows.Layout, s.rows.MaxPayload = layout, pgtable.MaxPayload
	if err := s.checkSchema(ctx); err != nil {
		return nil, err
	}
	if err := s.checkTypes(ctx); err != nil {
		return nil, err
	}
	s.name, s.of, s.origin, err = identify(ctx, pool, layout)
	return s, err
}

// openTable is open for a table whose rows keep their state.
func openTable(ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout) (*store, error) {
	s, err := open(ctx, pool, layout)
	if err != nil {
		return nil, err
	}
	if err := s.checkStatements(ctx); err != nil {
		return nil, err
	}
	return s, s.findFairness(ctx)
}

// openLog is open for a log.
func openLog(ctx context.Context, pool *pgxpool.Pool, layout outbox.Layout) (*logtable.Store, error) {
	s, err := open(ctx, pool, layout)
	if err != nil {
		return nil, err
	}
	return logtable.Open(ctx, logtable.Table{DeliveryStore: s, Pool: s.pool, Layout: layout, Whole: s.whole,
		Numbers: s.number})
}

// OpenTable implements outbox.Database. It checks that the table fits the layout, and that this
// role sees its rows.
func (d served) OpenTable(ctx context.Context, layout outbox.Layout) (s outbox.Store, err error) {
	if layout.KeepsState() {
		s, err = openTable(ctx, d.pool, layout)
	} else {
		s, err = openLog(ctx, d.pool, layout)
	}
	if err != nil {
		return nil, lasting(err)
	}
	return s, nil
}

// BeginReader notes where a reader of a log begins, unless it has a place already: at what was
// written at a time or later, or from now on if that is zero. The reader of a layout is its Reader.
func (d *DB) BeginReader(ctx context.Context, layout outbox.Layout, at time.Time) error {
	s, err := open(ctx, d.pool, layout)
	if err == nil {
		err = logtable.Begin(ctx, s.pool, s.name, layout, at)
	}
	if err != nil && pgschema.Passes(err) {
		return outbox.Unavailable(err)
	}
	return err
}

// Retain implements outbox.Database with package retention.
func (d served) Retain(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
	if !layout.KeepsState() {
		db, err := newAging(d.pool)
		if err != nil {
			return err
		}
		return logtable.Retain(ctx, db.sessions, retention.TurnsOf(db, layout.Table), layout, r)
	}
	return retention.Serve(ctx, layout, r, d.openRetention)
}

// RetainLetters implements outbox.Database.
func (d served) RetainLetters(ctx context.Context, r outbox.Retention) error {
	return retention.Serve(ctx, retention.Letters(), r, d.openRetention)
}

// lasting marks what waiting does not cure as outbox.Permanent.
func lasting(err error) error {
	if pgschema.Passes(err) {
		return err
	}
	return outbox.Permanent(err)
}

// newSessions are a pool's with the settings of session.sql.
func newSessions(pool *pgxpool.Pool) (pooler.Sessions, error) {
	settings, err := plain("session")
	return pooler.Sessions{Pool: pool, Settings: settings}, err
}
