package sqlite

import (
	"context"
	"slices"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// openTable is DB.OpenTable. A table that is missing or older than the layout needs is an
// *outbox.SchemaError.
func openTable(ctx context.Context, db *DB, layout outbox.Layout) (*store, error) {
	if err := layout.Validate(); err != nil {
		return nil, err
	}
	if err := db.checkIntegrity(ctx); err != nil {
		return nil, err
	}
	var err error
	if layout.Table, err = db.file().Spelled(ctx, layout.Table); err != nil {
		return nil, err
	}
	if !layout.KeepsState() {
		return nil, refuseLog(ctx, db, layout)
	}
	s := &store{db: db, layout: layout, name: layout.Name(), of: layout.Table, maxPayload: maxPayload,
		reader: sqltable.ReaderOf(layout)}
	if layout.Part != "" {
		s.of = layout.Of
	}
	s.origin = db.origin(s.of)
	_, s.trusted = migration.SetOf[layout.Table]
	columns, err := s.checkSchema(ctx)
	if err != nil {
		return nil, err
	}
	names, err := s.findNames(ctx, columns)
	if err != nil {
		return nil, err
	}
	if err := s.sql.prepare(names); err != nil {
		return nil, err
	}
	if err := s.checkStatements(ctx); err != nil {
		return nil, err
	}
	if err := sqlitefile.CheckWritable(ctx, db.read); err != nil {
		return nil, err
	}
	position := columns[slices.IndexFunc(columns, sqlitetable.Named(layout.Position))]
	if err := s.findFairness(ctx, names, position.Rowid); err != nil {
		return nil, err
	}
	return s, nil
}

// refuseLog says of a log table, which may be there, that it cannot be served.
func refuseLog(ctx context.Context, db *DB, layout outbox.Layout) error {
	have, err := db.file().Columns(ctx, layout.Table)
	if err != nil {
		return err
	}
	refusal := &outbox.SchemaError{Table: layout.Table, Remedy: sqlitetable.NoLogs}
	if len(have) > 0 {
		refusal.Missing = []string{"the numbers of transactions"}
	}
	return refusal
}

// OpenTable implements outbox.Database. It checks that the file is whole and that the table fits
// the layout. A file that can only be read is ErrReadOnly.
func (d served) OpenTable(ctx context.Context, layout outbox.Layout) (outbox.Store, error) {
	s, err := openTable(ctx, d.db, layout)
	if err != nil {
		if !sqlitefile.Passes(err) {
			err = outbox.Permanent(err)
		}
		return nil, err
	}
	return s, nil
}

// Retain implements outbox.Database with package retention.
func (d served) Retain(ctx context.Context, layout outbox.Layout, r outbox.Retention) error {
	return retention.Serve(ctx, layout, r, d.db.OpenRetention)
}

// RetainLetters implements outbox.Database.
func (d served) RetainLetters(ctx context.Context, r outbox.Retention) error {
	return retention.Serve(ctx, retention.Letters(), r, d.db.OpenRetention)
}
