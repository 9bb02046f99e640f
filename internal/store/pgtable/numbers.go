package pgtable

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// Numbers checks the numbers that the order of a table rests on: positions must rise and be unique,
// and the transaction numbers of a log must be those of its server. A switch-over by logical
// replication, a restore and an ALTER SEQUENCE can break either, and no statement fails.
type Numbers struct {
	Pool   *pgxpool.Pool
	Layout outbox.Layout
	// Origin tells the server, the database and the table from all others.
	Origin func(ctx context.Context) (uint64, error)

	mu      sync.Mutex
	opened  int64 // connections that the pool had made before the last check
	checked time.Time
	from    uint64 // Origin
	err     error  // what the last check found
}

const (
	numbersEvery = 10 * time.Second // a pooler can lead a connection to another server
	brokenEvery  = time.Second      // until the numbers are repaired
	headRows     = 1000             // undelivered rows whose positions are compared
	allRows      = 1_000_000        // the same after a claim that has read a position twice
)

// Verify checks the numbers again if the pool has made a connection, which may lead to another
// server, or if the last check is some time ago. A claim calls it after it has read, so that no
// event leaves before the server that it was read from has been checked. repeated says that it has
// read a position twice. It returns the Origin.
func (n *Numbers) Verify(ctx context.Context, repeated bool) (from uint64, err error) {
	opened := n.Pool.Stat().NewConnsCount()
	n.mu.Lock()
	defer n.mu.Unlock()
	since := time.Since(n.checked)
	if n.err == nil && (repeated || opened != n.opened) || since >= numbersEvery || n.err != nil && since >= brokenEvery {
		err := n.Check(ctx, repeated || n.err != nil, false)
		if err != nil && OfTheData(err) {
			err = nil // a row cannot be read: the claim isolates it
		}
		if schema := (*outbox.SchemaError)(nil); err != nil && !errors.As(err, &schema) {
			return 0, err
		}
		if n.from, n.err = 0, err; err == nil {
			if n.from, err = n.Origin(ctx); err != nil {
				return 0, err
			}
		}
		n.opened, n.checked = opened, time.Now()
	}
	if n.err != nil {
		return 0, &outbox.RefusedError{Err: n.err, Whole: true}
	}
	return n.from, nil
}

// Check returns an *outbox.SchemaError that says which number is wrong and how to repair it.
// It compares more positions if wide is set. Delivered rows, which no relay orders, count if
// delivered is set.
func (n *Numbers) Check(ctx context.Context, wide, delivered bool) error {
	rows := headRows
	if wide {
		rows = allRows
	}
	if err := n.check(ctx, rows, delivered); err != nil {
		return fmt.Errorf("check positions of %s: %w", n.Layout.Table, err)
	}
	return nil
}

// numbered is what the statements are given.
type numbered struct {
	sqltable.Layout
	Sequence, SequenceName, Since string
	Readable                      bool // this role may read the sequence
}

func (n *Numbers) check(ctx context.Context, compared int, delivered bool) error {
	q := numbered{Layout: Quote(n.Layout)}
	rises, err := n.drawn(ctx, &q, n.Layout.Table, n.Layout.Position)
	if err != nil {
		return err
	}
	_, ours := migration.SetOf[n.Layout.Table]
	none := ours && q.Sequence == ""
	sql, err := files.Statement("check_numbers", q)
	if err != nil {
		return err
	}
	var last, top, twice *int64
	var since *string
	var later, foreign bool
	err = n.Pool.QueryRow(ctx, sql, compared, delivered || none).Scan(&last, &top, &twice, &since, &later, &foreign)
	if err != nil {
		return err
	}
	var highest int64
	if top != nil {
		highest = *top
	}
	if later && since != nil {
		q.Since = *since
	}
	switch {
	case none:
		return n.lacks("a sequence that draws "+n.Layout.Position, n.draw(&q, highest))
	case !rises:
		return n.lacks(fmt.Sprintf("a sequence that rises with every draw of every session (%s has a cache, cycles or falls)",
			q.Sequence), "ALTER SEQUENCE "+q.Sequence+" INCREMENT BY 1 CACHE 1 NO CYCLE")
	case foreign:
		return n.lacks("transaction numbers of this server (its rows or the places of its readers come from a server that "+
			"has counted further, and would be delivered again and again)", rebase)
	case last != nil && *last < highest:
		return n.lacks(fmt.Sprintf("a sequence at or above its highest position (%s is at %d and an event has position %d: "+
			"new events would overtake it)", q.Sequence, *last, highest), n.repair(&q, later || twice != nil, highest))
	case twice != nil:
		return n.lacks(fmt.Sprintf("unique positions (two events that must stay in order have position %d)", *twice),
			n.repair(&q, true, highest))
	}
	return n.beside(ctx)
}

const rebase = "SELECT outbox_log_rebase()"

// repair returns the statements that let positions rise again. If moves is set, they also place
// events behind the earlier ones of their keys.
func (n *Numbers) repair(q *numbered, moves bool, highest int64) string {
	if !n.Layout.KeepsState() {
		return rebase
	}
	if moves {
		if text, err := files.Statement("repair_positions", q); err == nil {
			return strings.Join(strings.Fields(text), " ")
		}
	}
	// The owner of a table with row-level security may see none of its rows.
	return fmt.Sprintf("SELECT setval(%s, greatest(%d, (SELECT max(%s) FROM %s)))", q.SequenceName, highest, q.Position,
		q.Table)
}

// draw returns the statement that gives the column its sequence again.
func (n *Numbers) draw(q *numbered, highest int64) string {
	column := fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s ", q.Table, q.Position)
	if !n.Layout.KeepsState() {
		return column + "SET DEFAULT CASE WHEN pg_current_xact_id() IS NOT NULL THEN nextval('outbox_log_position_seq') END"
	}
	return fmt.Sprintf("%sDROP DEFAULT, ALTER COLUMN %s ADD GENERATED BY DEFAULT AS IDENTITY (START WITH %d)", column,
		q.Position, highest+1)
}

// drawn looks for the sequence that a column draws from, and tells whether all that it draws rise.
func (n *Numbers) drawn(ctx context.Context, q *numbered, table, column string) (rises bool, err error) {
	sql, err := files.Statement("check_drawn", nil)
	if err != nil {
		return false, err
	}
	err = n.Pool.QueryRow(ctx, sql, QuoteTable(table), column).Scan(&q.Sequence, &rises, &q.Readable)
	if errors.Is(err, pgx.ErrNoRows) {
		return true, nil
	}
	q.SequenceName = sqltable.QuoteText(q.Sequence)
	return rises, err
}

// beside checks the other numbers of a log: one tells which of two places is the later one, and one
// an event that a subscription has fetched.
func (n *Numbers) beside(ctx context.Context) error {
	if n.Layout.KeepsState() {
		return nil
	}
	for _, c := range []struct{ table, column string }{
		{"outbox_log_positions", "id"}, {"outbox_subscription_events", "number"},
	} {
		q := numbered{}
		rises, err := n.drawn(ctx, &q, c.table, c.column)
		if err != nil {
			return err
		}
		if !q.Readable {
			continue
		}
		q.Table, q.Position = QuoteTable(c.table), QuoteColumn(c.column)
		sql, err := files.Statement("check_number", q)
		if err != nil {
			return err
		}
		var behind bool
		if err := n.Pool.QueryRow(ctx, sql).Scan(&behind); err != nil {
			return err
		}
		if behind || !rises {
			return n.lacks(fmt.Sprintf("a sequence at or above the highest %s of %s", c.column, c.table), fmt.Sprintf(
				"SELECT setval(%s, (SELECT max(%s) FROM %s))", q.SequenceName, q.Position, q.Table))
		}
	}
	return nil
}

func (n *Numbers) lacks(what, repair string) error {
	return &outbox.SchemaError{Table: n.Layout.Table, Missing: []string{what}, Remedy: "as its owner run: " + repair}
}
