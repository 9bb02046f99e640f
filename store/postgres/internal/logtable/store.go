// Package logtable serves outbox tables in PostgreSQL whose rows are only inserted (docs/adr/0035).
// What is delivered is known by positions, one a lane, which are written into outbox_log_positions.
// A row that a sink does not take is copied into outbox_deliveries, and a dead one into job_dlq,
// before a position passes it.
//
//	claim:   place ──► rows behind its position, and late ones in front of it that its snapshot did not see
//	settle:  rows done ──► the place after the last one that is ──► noted, in the settle's transaction
//	era:     the server has forgotten its last commits ──► every place is loaded again
//	retain:  parts, filled in a circle ──► truncated once every row of one is settled and old
//
// Guaranteed: a position passes no row that is not settled, whatever order the commits had. No row
// of a log is changed, and none is deleted but with its part. A held snapshot of somebody else's
// costs nothing.
//
// Not guaranteed: leases, and what sinks owe of a log. They are those of any table, and come with a
// [Table].
package logtable

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/pgschema"
	"github.com/outboxrelay/outbox/internal/store/pgtable"
	"github.com/outboxrelay/outbox/internal/store/pooler"
)

// A server that crashes, or a standby that is promoted, may lack the last commits, and gives their
// positions and transactions out again. What a relay remembers of positions is then not true any
// more: it would pass over the new rows, and count on what it settled. So each memory belongs to an
// era, the one row of an unlogged table, which both empty. What is noted in outbox_log_positions is
// true in every era: a server that has the note has all that was committed before it.
const (
	eraTable       = "outbox_log_era"
	positionsTable = "outbox_log_positions"
)

// Table is what a log has as every table of its database, whose columns were checked.
type Table struct {
	outbox.DeliveryStore // its leases, and what its sinks owe

	Pool   pooler.Sessions
	Layout outbox.Layout
	// Whole returns an *outbox.RefusedError that says what to do if the server takes an error's
	// statement for no row of the table.
	Whole   func(ctx context.Context, err error) error
	Numbers *pgtable.Numbers
}

// Store is an outbox table whose rows are only inserted. It knows how far its lanes have come. It
// is safe for concurrent use by workers of different lanes.
type Store struct {
	Table
	rows  pgtable.Reader
	sieve pgtable.Sieve
	sql   statements

	mu    sync.Mutex
	from  uint64 // Numbers.Origin, when the numbers were checked last
	era   string // the last one that was read
	lanes map[int16]*held
	turns int // claims
	notes int // positions written
}

//go:embed sql/*.sql
var sqlFiles embed.FS

var files = pgtable.Files(sqlFiles)

type statements struct {
	claim, unreadable, bare, load, era, settle, note, owed, apps, dead, durable, compact, backlog string

	deadReduced [3]string // see sqltable.Layout.Reduced
}

// Open returns the store of a log.
func Open(ctx context.Context, t Table) (*Store, error) {
	l := &Store{Table: t, lanes: map[int16]*held{}}
	l.rows.Layout, l.rows.MaxPayload = t.Layout, pgtable.MaxPayload
	q := pgtable.Quote(t.Layout)
	err := files.Fill(q, map[string]*string{"claim": &l.sql.claim, "load": &l.sql.load, "era": &l.sql.era,
		"settle": &l.sql.settle, "note": &l.sql.note, "dead": &l.sql.dead, "compact": &l.sql.compact,
		"backlog": &l.sql.backlog, "settle_owed": &l.sql.owed, "settle_apps": &l.sql.apps,
		"durable": &l.sql.durable})
	if err != nil {
		return nil, err
	}
	for i, form := range q.Reduced() {
		err = errors.Join(err, files.Fill(form, map[string]*string{"dead": &l.sql.deadReduced[i]}))
	}
	q.Unreadable = true
	err = errors.Join(err, files.Fill(q, map[string]*string{"claim": &l.sql.unreadable}))
	q.Bare = true
	if err = errors.Join(err, files.Fill(q, map[string]*string{"claim": &l.sql.bare})); err != nil {
		return nil, err
	}
	columns := []string{"lanes", "position", "snapshot", "late_position", "late_snapshot"}
	if err := pgschema.CheckTable(ctx, t.Pool.Pool, positionsTable, columns); err != nil {
		return nil, err
	}
	if err := pgschema.CheckTable(ctx, t.Pool.Pool, eraTable, []string{"one", "era"}); err != nil {
		return nil, err
	}
	return l, l.checkAllowed(ctx)
}

// OnlyGroups returns the groups that read the log if no relay has ever served it for sinks.
func (l *Store) OnlyGroups(ctx context.Context) ([]string, error) {
	sql, err := files.Statement("groups", nil)
	if err != nil {
		return nil, err
	}
	rows, err := l.Pool.Query(ctx, sql, l.LeaseName())
	if err != nil {
		return nil, fmt.Errorf("read the groups of %s: %w", l.Layout.Table, err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// checkAllowed finds out whether this role may note how far it has read.
func (l *Store) checkAllowed(ctx context.Context) error {
	err := pgschema.CheckAllowed(ctx, l.Pool.Pool, "begin an era in", eraTable, []string{"SELECT", "INSERT"})
	if err != nil {
		return err
	}
	return pgschema.CheckAllowed(ctx, l.Pool.Pool, "note positions in", positionsTable,
		[]string{"SELECT", "INSERT", "DELETE"})
}

// whole is Whole, which also knows the tables of logs.
func (l *Store) whole(ctx context.Context, err error) error {
	whole := l.Whole(ctx, err)
	if whole != nil || !pgtable.OfAccess(err) {
		return whole
	}
	if err := l.checkAllowed(ctx); err != nil {
		return &outbox.RefusedError{Err: err, Whole: true}
	}
	return nil
}

// CheckNumbers returns an error if the numbers that the order of the log's events rests on are
// wrong.
func (l *Store) CheckNumbers(ctx context.Context) error { return l.Numbers.Check(ctx, true, true) }

// verify is Numbers.Verify after a claim. On another server, which can have the era of this one
// from a dump, all places are read again.
func (l *Store) verify(ctx context.Context, lanes []outbox.Lane, repeated bool) error {
	from, err := l.Numbers.Verify(ctx, repeated)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from != from && l.from != 0 {
		for _, at := range l.lanes {
			at.epoch = -1
		}
	}
	l.from = from
	for _, lane := range lanes {
		if !l.knows(lane) {
			return errors.New("the database is on another server now, the places of all lanes are read again")
		}
	}
	return nil
}

// Backlog implements outbox.Store.
func (l *Store) Backlog(ctx context.Context, limit int) (outbox.Backlog, error) {
	return pgtable.ScanBacklog(l.Pool.QueryRow(ctx, l.sql.backlog, l.LeaseName(), limit, outbox.LaneCount), l.Layout)
}

// Watch returns the statement that looks for something that is not settled, and whose events it
// looks for.
func (l *Store) Watch(number int) (sql, of string, err error) {
	sql, err = files.Statement("watch", pgtable.Watched{Layout: pgtable.Quote(l.Layout), Number: number})
	return sql, l.LeaseName(), err
}

// Begin notes where a reader begins, which is called as its lanes are leased, unless it has a place
// already.
func Begin(ctx context.Context, pool pooler.Sessions, reader string, layout outbox.Layout, at time.Time) error {
	sql, err := files.Statement("begin", pgtable.Quote(layout))
	if err != nil {
		return err
	}
	var since *time.Time
	if !at.IsZero() {
		since = &at
	}
	if _, err := pool.Exec(ctx, sql, reader, since); err != nil {
		return fmt.Errorf("note where %s begins: %w", reader, err)
	}
	return nil
}
