package pooler

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Sessions is a pool that sends statements with settings of their own. A session that is marked by
// SetUp has them already. On any other one, behind a pooler or of a pool of the caller's, they go
// in front of the statement and end with its transaction. Both are one pipeline, and so one round
// trip and one transaction.
type Sessions struct {
	*pgxpool.Pool
	// Settings is a statement of two parameters: whether the settings end with the transaction and,
	// if not, which process of the server they are for.
	Settings string
}

// SendBatch sends the batch as one transaction.
func (s Sessions) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	conn, err := s.Acquire(ctx)
	if err != nil {
		return failed{err}
	}
	return lentResults{s.send(ctx, conn, batch), conn}
}

// send sends the batch with the settings, where they are needed. Their result is in front of the
// others and is read when those are closed.
func (s Sessions) send(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch) pgx.BatchResults {
	if isSetUp(conn) {
		return conn.SendBatch(ctx, batch)
	}
	return conn.SendBatch(ctx, s.with(batch))
}

// with returns a batch that begins with the settings.
func (s Sessions) with(batch *pgx.Batch) *pgx.Batch {
	all := new(pgx.Batch)
	all.Queue(s.Settings, true, 0) // until the end of the transaction, whichever process it is
	all.QueuedQueries = append(all.QueuedQueries, batch.QueuedQueries...)
	return all
}

// Query runs one statement. Options of pgx may come before its arguments; where it goes with the
// settings, result formats are those of the types.
func (s Sessions) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	conn, err := s.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if isSetUp(conn) {
		rows, err := conn.Query(ctx, sql, args...)
		if err != nil {
			conn.Release()
			return nil, err
		}
		return &lentRows{Rows: rows, conn: conn}, nil
	}
	if len(args) > 0 {
		if _, formats := args[0].(pgx.QueryResultFormats); formats {
			args = args[1:] // a batch has no such option, and asks for binary wherever it is not the same as text
		}
	}
	batch := new(pgx.Batch)
	batch.Queue(sql, args...)
	results := conn.SendBatch(ctx, s.with(batch))
	rows, err := second(results)
	if err != nil {
		_ = results.Close() // with the same error
		conn.Release()
		return nil, err
	}
	return &lentRows{Rows: rows, results: results, conn: conn}, nil
}

// second reads the settings' result, and begins with the statement's.
func second(results pgx.BatchResults) (pgx.Rows, error) {
	if _, err := results.Exec(); err != nil {
		return nil, err
	}
	return results.Query()
}

// QueryRow runs a statement of one row.
func (s Sessions) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := s.Query(ctx, sql, args...)
	return lentRow{rows, err}
}

// Exec runs one statement that returns no rows.
func (s Sessions) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	rows, err := s.Query(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

// Still calls read with a transaction whose statements all see the same rows, at one time. It can
// write nothing.
func (s Sessions) Still(ctx context.Context, read func(pgx.Tx) error) error {
	options := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, s.Pool, options, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, s.Settings, true, 0); err != nil {
			return err
		}
		return read(tx)
	})
}

// Distrust closes the idle connections if ctx has run out of time: where the other end of one has
// vanished theirs may have too, and each would cost as long.
func (s Sessions) Distrust(ctx context.Context) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.Reset()
	}
}

func isSetUp(conn *pgxpool.Conn) bool { return conn.Conn().PgConn().CustomData()[setUp] != nil }

// lentResults give their connection back when they are closed, as those of a pool do.
type lentResults struct {
	pgx.BatchResults
	conn *pgxpool.Conn
}

func (r lentResults) Close() error {
	defer r.conn.Release()
	return r.BatchResults.Close()
}

// lentRows give their connection back when they are closed, as those of a pool do.
type lentRows struct {
	pgx.Rows
	results pgx.BatchResults // nil: they are no part of a batch
	conn    *pgxpool.Conn    // nil: it was given back
	err     error
}

func (r *lentRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *lentRows) Close() {
	if r.conn == nil {
		return
	}
	r.Rows.Close()
	if r.results != nil {
		r.err = r.results.Close() // also the error of the commit, which comes after the last row
	}
	r.conn.Release()
	r.conn = nil
}

func (r *lentRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}

type lentRow struct {
	rows pgx.Rows
	err  error
}

func (r lentRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// failed are the results of a batch that could not be sent.
type failed struct{ err error }

func (f failed) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, f.err }
func (f failed) Query() (pgx.Rows, error)         { return nil, f.err }
func (f failed) QueryRow() pgx.Row                { return lentRow{err: f.err} }
func (f failed) Close() error                     { return f.err }
func (failed) Tx() pgx.Tx                         { return nil }

const setUp = "outbox: session is set up"

// SetUp marks a connection whose session has the settings.
func SetUp(conn *pgx.Conn) { conn.PgConn().CustomData()[setUp] = true }
