package sqlite

import (
	"context"
	"database/sql"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/cold"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/store/sqlfile"
	"github.com/outboxrelay/outbox/internal/store/sqlitecold"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
)

// sweepRows is how many rows one search of a sweep reads. More make it faster by little and the
// pauses between them longer.
const sweepRows = 5000

// aging is a retention.Dialect. A removal is one write transaction, and holds up other writers as
// long as it takes.
//
// What it frees is used again by later rows; the file does not shrink before somebody runs VACUUM.
type aging struct {
	sqlitecold.DB
	db *DB
}

var _ retention.Dialect = aging{}

func newAging(db *DB) aging { return aging{sqlitecold.DB{File: db}, db} }

// OpenRetention returns the retention of an outbox table, whose rows grow old in the order of their
// positions, or of retention.Letters. Errors are an *outbox.SchemaError or retention.ErrNoAge if
// waiting does not cure them. A table WITHOUT ROWID has none.
func (d *DB) OpenRetention(ctx context.Context, layout outbox.Layout) (*retention.Table, error) {
	return retention.Open(ctx, newAging(d), layout)
}

// Statements implements cold.Database.
func (aging) Statements() (*sqlfile.Set, error) { return files.Set() }

// Reads implements retention.Dialect.
func (a aging) Reads() cold.Conn { return cold.SQL{SQLTx: a.db.read} }

// Change implements retention.Dialect.
func (a aging) Change(ctx context.Context, patient bool, fn func(*cold.Tx) error) error {
	in := a.db.inTx
	if patient {
		in = a.db.inTurn
	}
	return in(ctx, func(tx *sql.Tx) error { return fn(cold.In(a, cold.Of(tx))) })
}

// Removable implements retention.Dialect: who can write the file may.
func (aging) Removable(context.Context, string) error { return nil }

// Compiles implements retention.Dialect.
func (a aging) Compiles(ctx context.Context, statement string) error {
	return explain(a.db.compile(ctx, statement))
}

// Removes implements retention.Dialect.
func (aging) Removes() []string {
	return []string{"retention_rowid", "retention_keep", "retention_remove"}
}

// Refuses implements retention.Dialect.
func (aging) Refuses(err error) bool { return sqlitefile.OfTheData(err) }

// Sweep implements retention.Dialect: a walk in the order of the rowid, which a table may lack.
func (a aging) Sweep(
	ctx context.Context, t *retention.Table, search retention.Search, row func(retention.Row) error,
) (string, error) {
	q := t.Query(search)
	q.ByColumn, q.ByType, q.Limit = "rowid", "rowid", sweepRows
	return t.Page(ctx, q, search.Limit, row)
}

// Remove implements retention.Dialect.
func (a aging) Remove(ctx context.Context, tx *cold.Tx, q retention.Query) (int, error) {
	positions := make([]int64, len(q.Rows))
	for i, row := range q.Rows {
		positions[i] = row.Position
	}
	if q.Places = positions; q.Position == "" {
		q.Places = q.IDs
	}
	var held bool
	if err := tx.One(ctx, "retention_held", q, &held); err != nil || !held {
		return 0, err
	}
	if q.Archive {
		if _, err := tx.Change(ctx, "retention_keep", q); err != nil {
			return 0, err
		}
	}
	return tx.Change(ctx, "retention_remove", q)
}
