package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/migration"
	"github.com/outboxrelay/outbox/internal/sqlitefile"
	"github.com/outboxrelay/outbox/internal/sqlitetable"
	"github.com/outboxrelay/outbox/internal/uuid7"
)

// store is an outbox table that a relay can serve. It is safe for concurrent use.
type store struct {
	db         *DB
	layout     outbox.Layout
	sql        statements
	fair       fairness
	name       string // of the table in its leases
	of         string // the name of the table whose events these are
	origin     uint64 // see outbox.Delivery
	trusted    bool   // the table's own checks see to it that payloads are JSON
	maxPayload int    // bytes; a longer one is a defect
}

// maxPayload is below what a broker answers by closing the connection, and so the whole relay would wait for ever
// (Redis: 512 MB).
const maxPayload = 256 << 20

var _ outbox.DeliveryStore = (*store)(nil)

// openTable is DB.OpenTable. A table that is missing or older than the layout needs is an *outbox.SchemaError.
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
	if layout.IsLog() {
		return nil, refuseLog(ctx, db, layout)
	}
	s := &store{db: db, layout: layout, name: layout.Name(), of: layout.Table, maxPayload: maxPayload}
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
	var id sqlitetable.Text
	if err := stmt.QueryRowContext(ctx, limit).Scan(&b.Count, &written, &id); err != nil {
		return b, err
	}
	oldest, err := parseTime(written.String)
	if err != nil { // none, or what is no time: the claim says so
		parsed, _ := sqlitetable.ParseID(id)
		oldest = uuid7.Time(parsed)
	}
	if !oldest.IsZero() {
		b.Oldest = max(time.Since(oldest), 0)
	}
	return b, nil
}
