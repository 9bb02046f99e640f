package sqlitetable

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// File is a file whose schema is asked.
type File struct {
	Reads   *sql.DB           // handles that only read
	Explain func(error) error // gives an error of SQLite's the name that callers branch on
}

// Column is what a file's schema says of one column.
type Column struct {
	Name    string
	Type    string // upper case
	NotNull bool
	Unique  bool // alone
	Key     bool // the table's only primary key
	Strict  bool // of the table: the values are of the type
	Rowid   bool // another name of the rowid: integer, unique, never NULL, drawn by SQLite
}

// Columns reads a table's columns; none if there is no such table.
func (f File) Columns(ctx context.Context, table string) ([]Column, error) {
	text, err := files.Statement("columns", nil)
	if err != nil {
		return nil, err
	}
	name, database := SplitName(table)
	rows, err := f.Reads.QueryContext(ctx, text, name, database)
	if err != nil {
		return nil, fmt.Errorf("check table %s: %w", table, f.Explain(err))
	}
	defer func() { _ = rows.Close() }()
	var all []Column
	for rows.Next() {
		var c Column
		var key int
		var withoutRowid, isTable bool
		if err := rows.Scan(&c.Name, &c.Type, &c.NotNull, &key, &withoutRowid, &c.Strict, &isTable, &c.Unique); err != nil {
			return nil, fmt.Errorf("check table %s: %w", table, err)
		}
		c.Key = key == 1 && c.Unique
		c.Rowid = c.Key && c.Type == "INTEGER" && !withoutRowid && isTable
		c.NotNull = c.NotNull || c.Rowid || key > 0 && withoutRowid
		all = append(all, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("check table %s: %w", table, f.Explain(err))
	}
	return all, nil
}

// Spelled returns a table's name as the schema spells it, and without the database if that is main,
// so that leases, letters and migration.SetOf know a table under one name. outbox_events,
// OUTBOX_EVENTS and main.outbox_events are one, and under three would be delivered three times. The
// name of a table that is not there stays as it is.
func (f File) Spelled(ctx context.Context, table string) (string, error) {
	text, err := files.Statement("name", nil)
	if err != nil {
		return "", err
	}
	name, database := SplitName(table)
	err = f.Reads.QueryRowContext(ctx, text, name, database).Scan(&name, &database)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return table, nil
	case err != nil:
		return "", fmt.Errorf("check table %s: %w", table, f.Explain(err))
	case database == "main":
		return name, nil
	}
	return database + "." + name, nil
}

// SplitName takes the attached database off a table's name.
func SplitName(table string) (name, database string) {
	if database, name, ok := strings.Cut(table, "."); ok {
		return name, database
	}
	return table, "main"
}

// CheckTable answers with a SchemaError if the table lacks one of the columns, and returns all that
// it has.
func (f File) CheckTable(ctx context.Context, table string, columns []string) ([]Column, error) {
	have, err := f.Columns(ctx, table)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(have))
	for i, c := range have {
		names[i] = c.Name
	}
	err = migration.CheckColumns(table, names, columns, strings.EqualFold)
	var schema *outbox.SchemaError
	if errors.As(err, &schema) && strings.EqualFold(table, outbox.OutboxLog().Table) {
		schema.Remedy = NoLogs
	}
	if err != nil {
		return nil, err
	}
	return have, nil
}

// NoLogs is the remedy for a log table.
const NoLogs = "log tables are PostgreSQL's, SQLite has none: take outbox_events"

// Named finds a column by its name, which SQLite takes in any case.
func Named(name string) func(Column) bool {
	return func(c Column) bool { return strings.EqualFold(c.Name, name) }
}

// KeptColumns are all columns but the payload, as settle_letter.sql has them.
func KeptColumns(columns []Column, payload string) (quoted []sqltable.Column) {
	for _, c := range columns {
		if !Named(payload)(c) {
			quoted = append(quoted, sqltable.Column{Name: QuoteName(c.Name), Text: sqltable.QuoteText(c.Name)})
		}
	}
	return quoted
}

// StoredColumns are those that a row is kept by: all but generated ones. Names are spelled as in
// the layout, where it has them.
func (f File) StoredColumns(ctx context.Context, l outbox.Layout) (all []sqltable.Column, err error) {
	statement, err := files.Statement("stored_columns", nil)
	if err != nil {
		return nil, err
	}
	name, database := SplitName(l.Table)
	rows, err := f.Reads.QueryContext(ctx, statement, name, database)
	if err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", l.Table, f.Explain(err))
	}
	defer func() { _ = rows.Close() }()
	known := sqltable.Names(l)
	isJSON := []string{l.Payload, l.Metadata, l.Destinations, l.DeliveredTo, l.ErrorHistory}
	if l.Table == "job_dlq" { // its layout has what retention asks of it
		isJSON = []string{"payload", "error_history", "origin"}
	}
	for rows.Next() {
		var name string
		var c sqltable.Column
		if err := rows.Scan(&name); err != nil {
			return nil, fmt.Errorf("read columns of %s: %w", l.Table, err)
		}
		c.Name, c.Text = QuoteName(name), sqltable.QuoteText(name)
		if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
			c.Name = QuoteName(known[i])
		}
		c.JSON = slices.ContainsFunc(isJSON, func(k string) bool { return k != "" && QuoteName(k) == c.Name })
		all = append(all, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", l.Table, f.Explain(err))
	}
	return all, nil
}

// Snapshot runs fn in a transaction that only reads, and sees one state of the file.
func (f File) Snapshot(ctx context.Context, fn func(*sql.Tx) error) error {
	tx, err := f.Reads.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // it has nothing to commit
	return fn(tx)
}
