package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/tables"
)

// column is what a file's schema says of one column.
type column struct {
	name    string
	typ     string // upper case
	notNull bool
	unique  bool // alone
	key     bool // the table's only primary key
	strict  bool // of the table: the values are of the type
	rowid   bool // another name of the rowid: integer, unique, never NULL, drawn by SQLite
}

// columnsOf reads a table's columns; none if there is no such table.
func columnsOf(ctx context.Context, db *DB, table string) ([]column, error) {
	text, err := plain("check_columns")
	if err != nil {
		return nil, err
	}
	name, database := splitName(table)
	rows, err := db.read.QueryContext(ctx, text, name, database)
	if err != nil {
		return nil, fmt.Errorf("check table %s: %w", table, explain(err))
	}
	defer func() { _ = rows.Close() }()
	var all []column
	for rows.Next() {
		var c column
		var key int
		var withoutRowid, isTable bool
		if err := rows.Scan(&c.name, &c.typ, &c.notNull, &key, &withoutRowid, &c.strict, &isTable, &c.unique); err != nil {
			return nil, fmt.Errorf("check table %s: %w", table, err)
		}
		c.key = key == 1 && c.unique
		c.rowid = c.key && c.typ == "INTEGER" && !withoutRowid && isTable
		c.notNull = c.notNull || c.rowid || key > 0 && withoutRowid
		all = append(all, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("check table %s: %w", table, explain(err))
	}
	return all, nil
}

// spelled returns a table's name as the schema spells it, and without the database if that is main, so that leases,
// letters and tables.SetOf know a table under one name: outbox_events, OUTBOX_EVENTS and main.outbox_events are one,
// and under three would be delivered three times. The name of a table that is not there stays as it is.
func (d *DB) spelled(ctx context.Context, table string) (string, error) {
	text, err := plain("check_name")
	if err != nil {
		return "", err
	}
	name, database := splitName(table)
	err = d.read.QueryRowContext(ctx, text, name, database).Scan(&name, &database)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return table, nil
	case err != nil:
		return "", fmt.Errorf("check table %s: %w", table, explain(err))
	case database == "main":
		return name, nil
	}
	return database + "." + name, nil
}

// splitName takes the attached database off a table's name.
func splitName(table string) (name, database string) {
	if database, name, ok := strings.Cut(table, "."); ok {
		return name, database
	}
	return table, "main"
}

// checkTable answers with a SchemaError if the table lacks one of the columns, and returns all that it has.
func checkTable(ctx context.Context, db *DB, table string, columns []string) ([]column, error) {
	have, err := columnsOf(ctx, db, table)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(have))
	for i, c := range have {
		names[i] = c.name
	}
	if err := tables.CheckColumns(table, names, columns, strings.EqualFold); err != nil {
		return nil, err
	}
	return have, nil
}

// named finds a column by its name, which SQLite takes in any case.
func named(name string) func(column) bool {
	return func(c column) bool { return strings.EqualFold(c.name, name) }
}

// checkSchema returns the columns of the store's table.
func (s *store) checkSchema(ctx context.Context) ([]column, error) {
	for table, columns := range map[string][]string{
		"outbox_lanes":  {"owner", "epoch", "expires_at", "crashes", "trial_size", "trial_event"},
		"outbox_relays": {"owner", "name", "expires_at"},
		"job_dlq":       {"destination", "outbox_table", "event_key", "generation", "position", "origin"},
		"apps":          {"namespace"},
		"outbox_pauses": {"destination"},
	} {
		if _, err := checkTable(ctx, s.db, table, columns); err != nil {
			return nil, err
		}
	}
	var columns []string
	for _, c := range s.layout.Columns() {
		columns = append(columns, c)
	}
	have, err := checkTable(ctx, s.db, s.layout.Table, columns)
	if err != nil {
		return nil, err
	}
	return have, s.checkTypes(have)
}

// checkTypes finds columns of a mapped table that cannot play their part. Otherwise it would turn out after the first
// publish: a row without a position is never delivered and nobody is told, and of two rows with one position the settle
// of one would be the other's.
func (s *store) checkTypes(have []column) error {
	of := func(name string) column { return have[slices.IndexFunc(have, named(name))] }
	var lacks []string
	if c := of(s.layout.ID); !c.notNull {
		lacks = append(lacks, "NOT NULL on "+c.name)
	}
	if c := of(s.layout.Position); !c.rowid && (!c.strict || !c.notNull || !c.unique || !strings.HasPrefix(c.typ, "INT")) {
		lacks = append(lacks, "INTEGER PRIMARY KEY on "+c.name)
	}
	if len(lacks) == 0 {
		return nil
	}
	return &outbox.SchemaError{Table: s.layout.Table, Missing: lacks,
		Remedy: "a row without an id could not be told from others, and the order of delivery is that of an integer that " +
			"SQLite draws and gives to one row only"}
}

// checkStatements compiles everything once where it cannot write: a table that is a view, or a name that is none, is
// found before anything is published.
func (s *store) checkStatements(ctx context.Context) error {
	for _, p := range []*prepared{&s.sql.claim, &s.sql.backlog, &s.sql.settleDelivered, &s.sql.settleRetry,
		&s.sql.settleLetter, &s.sql.settleDead} {
		if err := s.db.compile(ctx, p.text); err != nil {
			return fmt.Errorf("check statements for %s: %w", s.layout.Table, explain(err))
		}
	}
	return nil
}

// compile tells whether a statement can be compiled, where it cannot write.
func (d *DB) compile(ctx context.Context, text string) (err error) {
	stmt, err := d.read.PrepareContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() { err = stmt.Close() }()
	return nil
}
