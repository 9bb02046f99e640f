package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/retention"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqlitetime"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// sweepRows is how many rows one search of a sweep reads. More make it faster by little and the pauses between them
// longer.
const sweepRows = 5000

// letterTable is the table of dead letters.
const letterTable = "job_dlq"

// retain is a table that old rows can be removed from. It is safe for concurrent use. A removal is one write
// transaction, and holds up other writers as long as it takes.
//
// What it frees is used again by later rows; the file does not shrink before somebody runs VACUUM.
type retain struct {
	db     *DB
	layout outbox.Layout
	byTime bool // a walk stops by itself at what is not old
	sql    struct{ lease, release, held, walk, sweep, keep, remove string }
}

var _ retention.Table = (*retain)(nil)

// archivedColumns are those that the archive has of a table.
func archivedColumns(ctx context.Context, db *DB, l outbox.Layout) (all []archivedColumn, err error) {
	columns, err := db.file().StoredColumns(ctx, l)
	if err != nil {
		return nil, err
	}
	isJSON := []string{l.Payload, l.Metadata, l.Destinations, l.DeliveredTo, l.ErrorHistory}
	if l.Table == letterTable {
		isJSON = []string{"payload", "error_history", "origin"}
	}
	for _, c := range columns {
		all = append(all, archivedColumn{c, slices.ContainsFunc(isJSON,
			func(name string) bool { return name != "" && sqlitetable.QuoteName(name) == c.Name })})
	}
	return all, nil
}

// retentionNames is what the templates need beside the layout.
type retentionNames struct {
	sqltable.Layout
	Columns   []archivedColumn
	ByColumn  string
	ByTime    bool
	WrittenOr string // the time of writing, or else of delivery
}

// OpenRetention returns the retention of an outbox table, whose rows grow old in the order of their positions, or of
// retention.Letters. Errors are an *outbox.SchemaError or retention.ErrNoAge if waiting does not cure them. A table
// WITHOUT ROWID has none.
func (d *DB) OpenRetention(ctx context.Context, layout outbox.Layout) (retention.Table, error) {
	return openRetention(ctx, d, layout)
}

func openRetention(ctx context.Context, db *DB, layout outbox.Layout) (*retain, error) {
	if layout.Table == letterTable {
		// Letters with the time of the page's last one may wait for the next run.
		return newRetain(ctx, db, layout, layout.DeliveredAt, true)
	}
	if err := layout.Validate(); err != nil {
		return nil, err
	}
	if layout.DeliveredAt == "" && layout.WrittenAt == "" {
		return nil, fmt.Errorf("remove rows of %s: %w: give its layout delivered_at or written_at", layout.Table,
			retention.ErrNoAge)
	}
	return newRetain(ctx, db, layout, layout.Position, false)
}

func newRetain(
	ctx context.Context, db *DB, layout outbox.Layout, by string, byTime bool,
) (_ *retain, err error) {
	if layout.Table, err = db.file().Spelled(ctx, layout.Table); err != nil {
		return nil, err
	}
	for _, t := range []struct {
		table   string
		columns []string
	}{{layout.Table, sqltable.Names(layout)}, {"outbox_maintenance", []string{"ran_at", "swept_at"}},
		{"outbox_archive", []string{"position", "row"}}} {
		if _, err := db.file().CheckTable(ctx, t.table, t.columns); err != nil {
			return nil, err
		}
	}
	columns, err := archivedColumns(ctx, db, layout)
	if err != nil {
		return nil, err
	}
	r := &retain{db: db, layout: layout, byTime: byTime}
	return r, r.prepare(ctx, columns, sqlitetable.QuoteName(by))
}

// prepare fills the statements in, and has SQLite compile them: a table may be a view, or have no rowid.
func (r *retain) prepare(ctx context.Context, columns []archivedColumn, by string) error {
	q := sqlitetable.Quote(r.layout)
	names := retentionNames{Layout: q, Columns: columns, ByColumn: by, ByTime: r.byTime, WrittenOr: q.DeliveredAt}
	if q.WrittenAt != "" {
		names.WrittenOr = q.WrittenAt
	}
	sweep := names
	sweep.ByColumn, sweep.ByTime = "rowid", false
	if err := errors.Join(
		files.Fill(names, map[string]*string{
			"retention_lease": &r.sql.lease, "retention_release": &r.sql.release, "retention_held": &r.sql.held,
			"retention_walk": &r.sql.walk, "retention_keep": &r.sql.keep, "retention_remove": &r.sql.remove}),
		files.Fill(sweep, map[string]*string{"retention_walk": &r.sql.sweep})); err != nil {
		return err
	}
	for _, text := range []string{r.sql.sweep, r.sql.walk, r.sql.keep, r.sql.remove} {
		if err := compiles(ctx, r.db, text); err != nil {
			return fmt.Errorf("check statements for %s: %w", r.layout.Table, explain(err))
		}
	}
	return nil
}

func compiles(ctx context.Context, db *DB, statement string) error {
	stmt, err := db.read.PrepareContext(ctx, statement)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	return nil
}

// Lease implements retention.Store.
func (r *retain) Lease(ctx context.Context, request retention.LeaseRequest) (lease retention.Lease, err error) {
	err = r.db.inTx(ctx, func(tx *sql.Tx) error {
		now := time.Now()
		var swept sql.NullString
		err := tx.QueryRowContext(ctx, r.sql.lease, r.layout.Table, request.Owner.String(), stamp(now.Add(request.TTL)),
			stamp(now), stamp(now.Add(-request.Least)),
			stamp(sqlitetime.Farthest(now, request.TTL))).Scan(&swept)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		lease = retention.Lease{Held: true, SinceSweep: math.MaxInt64}
		at, err := timePointer(swept)
		if at != nil && !at.After(now) { // a sweep that is yet to come was before the clock was set back
			lease.SinceSweep = now.Sub(*at)
		}
		return err
	})
	if err != nil {
		return retention.Lease{}, fmt.Errorf("lease maintenance of %s: %w", r.layout.Table, explain(err))
	}
	return lease, nil
}

// Release implements retention.Store.
func (r *retain) Release(ctx context.Context, owner uuid.UUID, done retention.Done) error {
	if _, err := r.db.write.ExecContext(ctx, r.sql.release, r.layout.Table, owner.String(), done.Rows,
		done.Swept); err != nil {
		return fmt.Errorf("release maintenance of %s: %w", r.layout.Table, explain(err))
	}
	return nil
}

// Find implements retention.Store.
func (r *retain) Find(
	ctx context.Context, search retention.Search, row func(retention.Row) error,
) (next string, err error) {
	statement, limit := r.sql.walk, search.Limit
	if search.Sweep {
		statement, limit = r.sql.sweep, sweepRows
	}
	if next, err = r.find(ctx, statement, limit, search, row); err != nil {
		return "", fmt.Errorf("look for old rows of %s: %w", r.layout.Table, explain(err))
	}
	return next, nil
}

// find looks at up to limit rows, of which it takes as many as the search asks for.
func (r *retain) find(
	ctx context.Context, statement string, limit int, search retention.Search, take func(retention.Row) error,
) (next string, err error) {
	var after any
	if search.After != "" {
		after = search.After
	}
	rows, err := r.db.read.QueryContext(ctx, statement, stamp(time.Now().Add(-search.OlderThan)), after, limit,
		search.Content)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	seen, taken, someOld := 0, 0, false
	for rows.Next() {
		var id, content, at sqltable.Text
		var found retention.Row
		var due, old bool
		if err := rows.Scan(&id, &found.Position, &content, &at, &due, &old); err != nil {
			return "", err
		}
		seen++
		someOld = someOld || old
		next = at.S
		if !due {
			continue
		}
		found.ID, _ = sqltable.ParseID(id)
		if search.Content {
			found.Content = []byte(content.S)
		}
		if err := take(found); err != nil {
			return "", err
		}
		if taken++; taken == search.Limit {
			return next, nil
		}
	}
	if err := rows.Err(); err != nil {
		return "", err
	}
	// After a page of a walk without anything old, what follows is newer still; where it is not, a later run or the
	// next sweep gets to it. Times are bounded by the statement.
	if seen < limit || !search.Sweep && !r.byTime && !someOld {
		return "", nil
	}
	return next, nil
}

// Remove implements retention.Store.
func (r *retain) Remove(ctx context.Context, removal retention.Removal) (n int, err error) {
	which := make([]any, len(removal.Rows))
	for i, row := range removal.Rows {
		if which[i] = row.Position; r.layout.Position == "" {
			which[i] = row.ID
		}
	}
	rows, err := json.Marshal(which)
	if err != nil {
		return 0, fmt.Errorf("encode positions: %w", err)
	}
	err = r.db.inTurn(ctx, func(tx *sql.Tx) error {
		now := time.Now() // read now: the transaction may have waited
		var held bool
		if err := tx.QueryRowContext(ctx, r.sql.held, r.layout.Table, removal.Owner.String(),
			stamp(now)).Scan(&held); err != nil || !held {
			return err
		}
		args := []any{stamp(now.Add(-removal.OlderThan)), string(rows)}
		if removal.Archive {
			if _, err := tx.ExecContext(ctx, r.sql.keep, append(args, r.layout.Table, stamp(now))...); err != nil {
				return err
			}
		}
		gone, err := tx.ExecContext(ctx, r.sql.remove, args...)
		if err != nil {
			return err
		}
		removed, err := gone.RowsAffected()
		n = int(removed)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("remove old rows of %s: %w", r.layout.Table, explain(err))
	}
	return n, nil
}

// Audit records in outbox_audit that somebody removed rows by hand.
func (r *retain) Audit(ctx context.Context, actor string, olderThan time.Duration, done retention.Report) error {
	statement, err := plain("retention_audit")
	if err != nil {
		return err
	}
	filter, err := json.Marshal(map[string]any{"table": done.Table, "older_than": olderThan.String()})
	if err != nil {
		return fmt.Errorf("encode filter: %w", err)
	}
	detail, err := json.Marshal(map[string]any{"action": done.Action, "files": done.Files})
	if err != nil {
		return fmt.Errorf("encode details: %w", err)
	}
	id, err := outbox.NewID()
	if err != nil {
		return err
	}
	if _, err := r.db.write.ExecContext(ctx, statement, id.String(), stamp(time.Now()), actor, done.Rows, string(filter),
		string(detail)); err != nil {
		return fmt.Errorf("record the purge of %s in outbox_audit: %w", r.layout.Table, explain(err))
	}
	return nil
}
