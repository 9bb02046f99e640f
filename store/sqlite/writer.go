package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/eventrow"
	"github.com/outboxrelay/outbox/internal/store/identifier"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqltx"
)

// rowsPerInsert is how many events one statement takes. With twelve parameters each they stay far
// below the 32,766 that SQLite allows.
const rowsPerInsert = 200

// NewWriter returns a Writer for database/sql transactions, and so for whatever is built on them
// (GORM, ent, sqlx, bun, sqlc). The table must have the columns of outbox_events. See outbox.Writer
// for what Write guarantees; Strict order costs nothing here, because positions are always in the
// order of the commits. An error of the database undoes the call and, unlike in PostgreSQL, leaves
// the transaction usable where SQLite itself does.
//
// A process that has the file open as a DB may write with this package's SQLite alone,
// modernc.org/sqlite. It does so in transactions of DB.Begin, of DB.Writes, or of a handle of its
// own, sql.Open("sqlite", sqlite.Source(path)). Two SQLite libraries in one process damage the
// file, because each undoes the other's locks; Write finds that out and returns ErrTwoLibraries.
// Any library may write from another process, if its transactions wait and begin with BEGIN
// IMMEDIATE. One that reads first and then writes fails at once when somebody else has written
// meanwhile. For github.com/mattn/go-sqlite3 that is
//
//	file:shop.db?_busy_timeout=30000&_txlock=immediate&_journal_mode=WAL&_synchronous=FULL&_foreign_keys=on
//
// A transaction of this package's SQLite that does neither gets ErrBusy.
func NewWriter(cfg outbox.WriterConfig) (outbox.Writer[outbox.SQLTx], error) {
	in, err := newInserter(cfg)
	if err != nil {
		return nil, err
	}
	return eventrow.NewWriter(in, cfg), nil
}

// NewWriter is the package's NewWriter for transactions of d alone, Begin's and those of Writes.
// Its statement is compiled once and not at each Write, which is most of what a single event costs.
// It waits for the connection that writes.
func (d *DB) NewWriter(ctx context.Context, cfg outbox.WriterConfig) (outbox.Writer[outbox.SQLTx], error) {
	in, err := newInserter(cfg)
	if err != nil {
		return nil, err
	}
	if in.kept, err = d.write.PrepareContext(ctx, in.one); err != nil {
		return nil, fmt.Errorf("prepare writer: %w", explain(err))
	}
	return eventrow.NewWriter(in, cfg), nil
}

func newInserter(cfg outbox.WriterConfig) (*inserter, error) {
	table := cmp.Or(cfg.Table, outbox.OutboxEvents().Table)
	if err := identifier.CheckTable(table); err != nil {
		return nil, fmt.Errorf("configure writer: table: %w", err)
	}
	in := &inserter{table: sqlitetable.QuoteTable(table), returning: cfg.RefuseDuplicates}
	return in, files.Fill(in.names(1), map[string]*string{"write_one": &in.one})
}

type inserter struct {
	table     string
	one       string
	kept      *sql.Stmt // one, compiled; nil: for any database
	returning bool      // the ids that were new; nobody asks for them when duplicates are ignored

	asked atomic.Int64 // how many DBs there had been when checkLibrary asked

	mu   sync.Mutex
	many map[int]string // by how many rows they take, at most rowsPerInsert of them
}

// writeNames is what the templates write*.sql are given.
type writeNames struct {
	Table     string
	Returning bool
	Rows      []struct{}
}

func (in *inserter) names(rows int) writeNames {
	return writeNames{in.table, in.returning, make([]struct{}, rows)}
}

// statement returns the one that inserts so many rows.
func (in *inserter) statement(rows int) (string, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if text, ok := in.many[rows]; ok {
		return text, nil
	}
	text, err := files.Statement("write", in.names(rows))
	if err != nil {
		return "", err
	}
	if in.many == nil {
		in.many = map[int]string{}
	}
	in.many[rows] = text
	return text, nil
}

// Insert implements eventrow.Inserter. Strict order needs nothing: see NewWriter.
func (in *inserter) Insert(
	ctx context.Context, given outbox.SQLTx, rows []eventrow.Row,
) (inserted []uuid.UUID, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	tx, err := sqltx.Open(given)
	if err != nil {
		return nil, err
	}
	// From here on a statement is not interrupted: SQLite would roll the whole transaction back,
	// the caller's part of it too, and his next statements would each commit by themselves.
	between, ctx := ctx, context.WithoutCancel(ctx)
	if err := in.checkLibrary(ctx, tx); err != nil {
		return nil, err
	}
	switch {
	case len(rows) == 1:
		result, err := in.insertOne(ctx, tx, &rows[0])
		if err != nil {
			return nil, explainWrite(err)
		}
		if n, err := result.RowsAffected(); err != nil || n == 0 {
			return nil, err
		}
		return []uuid.UUID{rows[0].ID}, nil
	case len(rows) <= rowsPerInsert:
		return in.insert(ctx, tx, rows)
	}
	// Several statements: if a later one fails, nothing of the call may stay in the transaction.
	if _, err := tx.ExecContext(ctx, "SAVEPOINT outbox_write"); err != nil {
		return nil, explainWrite(err)
	}
	for len(rows) > 0 && err == nil {
		n := min(len(rows), rowsPerInsert)
		var ids []uuid.UUID
		if err = between.Err(); err == nil {
			ids, err = in.insert(ctx, tx, rows[:n])
		}
		inserted, rows = append(inserted, ids...), rows[n:]
	}
	end := "RELEASE outbox_write"
	if err != nil {
		inserted, end = nil, "ROLLBACK TO outbox_write; RELEASE outbox_write"
	}
	if _, ending := tx.ExecContext(ctx, end); ending != nil {
		err = errors.Join(err, explainWrite(ending))
	}
	return inserted, err
}

func (in *inserter) insertOne(ctx context.Context, tx outbox.SQLTx, row *eventrow.Row) (sql.Result, error) {
	compiled, ok := tx.(interface {
		StmtContext(ctx context.Context, stmt *sql.Stmt) *sql.Stmt
	})
	if in.kept == nil || !ok {
		return tx.ExecContext(ctx, in.one, rowArgs(nil, row)...)
	}
	return compiled.StmtContext(ctx, in.kept).ExecContext(ctx, rowArgs(nil, row)...)
}

// insert is one statement, which SQLite does wholly or not at all.
func (in *inserter) insert(
	ctx context.Context, tx outbox.SQLTx, rows []eventrow.Row,
) (inserted []uuid.UUID, err error) {
	text, err := in.statement(len(rows))
	if err != nil {
		return nil, err
	}
	args := make([]any, 0, strings.Count(text, "?"))
	for i := range rows {
		args = rowArgs(args, &rows[i])
	}
	if !in.returning {
		_, err := tx.ExecContext(ctx, text, args...)
		return nil, explainWrite(err)
	}
	result, err := tx.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, explainWrite(err)
	}
	defer func() { _ = result.Close() }()
	for result.Next() {
		var id uuid.UUID
		if err := result.Scan(&id); err != nil {
			return nil, fmt.Errorf("read id: %w", err)
		}
		inserted = append(inserted, id)
	}
	return inserted, explainWrite(result.Err())
}

// explainWrite is explain for a transaction that somebody else began, to whom other things are
// said: one of DB.Begin has the write lock already.
func explainWrite(err error) error {
	return sqlitefile.Classify(err,
		"this transaction does not wait for it, or has read before it wrote: open its handle with sqlite.Source, or set "+
			"busy_timeout and begin it with BEGIN IMMEDIATE (_txlock=immediate)")
}

// rowArgs adds the parameters of one row. Texts, not bytes: a payload that is a BLOB is no JSON to
// SQLite.
func rowArgs(args []any, r *eventrow.Row) []any {
	return append(args, r.ID.String(), r.Topic, stamp(r.OccurredAt), r.SchemaID, r.SchemaVersion, r.AggregateID,
		r.AggregateType, r.TenantID, r.Source,
		string(r.DestinationsJSON), string(r.Payload), string(r.MetadataJSON))
}

// checkLibrary is asked at the first Write, and again once a further DB was opened. It refuses only
// what is certain: a transaction that cannot be asked is left alone.
func (in *inserter) checkLibrary(ctx context.Context, tx outbox.SQLTx) error {
	count := opened.count.Load()
	if in.kept != nil || in.asked.Load() == count {
		return nil
	}
	text, err := plain("library")
	if err != nil {
		return err
	}
	var library, file string
	if sqltx.QueryRow(ctx, tx, text, nil, &library, &file) != nil {
		return nil
	}
	info, err := os.Stat(file)
	if err != nil {
		return nil // in memory
	}
	opened.mu.Lock()
	defer opened.mu.Unlock()
	if slices.ContainsFunc(slices.Collect(maps.Keys(opened.all)),
		func(d *DB) bool { return opened.all[d] != library && d.is(info) }) {
		return fmt.Errorf("write to %s: %w", file, ErrTwoLibraries)
	}
	in.asked.Store(count)
	return nil
}
