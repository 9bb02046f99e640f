package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
	"github.com/outboxrelay/outbox/internal/store/sqltable"
)

// checkSchema returns the columns of the store's table.
func (s *store) checkSchema(ctx context.Context) ([]sqlitetable.Column, error) {
	needed := sqltable.Beside
	if s.layout.Settle == outbox.SettleArchive {
		needed = append(needed[:len(needed):len(needed)], sqltable.Archive)
	}
	for _, t := range needed {
		if _, err := s.db.file().CheckTable(ctx, t.Table, t.Columns); err != nil {
			return nil, err
		}
	}
	have, err := s.db.file().CheckTable(ctx, s.layout.Table, sqltable.Names(s.layout))
	if err != nil {
		return nil, err
	}
	if err := s.checkTypes(have); err != nil {
		return nil, err
	}
	return have, s.checkPositions(ctx, have)
}

// checkPositions refuses to remove delivered rows where the next event would get the position of
// the last: to consumers it is the event's number.
func (s *store) checkPositions(ctx context.Context, have []sqlitetable.Column) error {
	position := have[slices.IndexFunc(have, sqlitetable.Named(s.layout.Position))]
	if !s.layout.Settle.Removes() || !position.Rowid || s.layout.Sequence != "" {
		return nil
	}
	table, database := sqlitetable.SplitName(s.layout.Table)
	text, err := files.Statement("check_positions", sqlitetable.QuoteName(database))
	if err != nil {
		return err
	}
	var once bool
	if err := s.db.read.QueryRowContext(ctx, text, table).Scan(&once); err != nil {
		return fmt.Errorf("check positions of %s: %w", s.layout.Table, explain(err))
	}
	if once {
		return nil
	}
	return &outbox.SchemaError{Table: s.layout.Table, Missing: []string{"AUTOINCREMENT on " + position.Name},
		Remedy: fmt.Sprintf("with settle mode %s SQLite would give the position of a delivered event to the next one: take "+
			"mode mark, or make the table anew with INTEGER PRIMARY KEY AUTOINCREMENT", s.layout.Settle)}
}

// checkTypes finds columns of a mapped table that cannot play their part. Otherwise it would turn
// out after the first publish. A row without a position is never delivered and nobody is told, and
// of two rows with one position the settle of one would be the other's.
func (s *store) checkTypes(have []sqlitetable.Column) error {
	of := func(name string) sqlitetable.Column { return have[slices.IndexFunc(have, sqlitetable.Named(name))] }
	var lacks []string
	if c := of(s.layout.ID); !c.NotNull {
		lacks = append(lacks, "NOT NULL on "+c.Name)
	}
	c := of(s.layout.Position)
	if integer := c.Strict && c.NotNull && c.Unique && strings.HasPrefix(c.Type, "INT"); !c.Rowid && !integer {
		lacks = append(lacks, "INTEGER PRIMARY KEY on "+c.Name)
	}
	if len(lacks) == 0 {
		return nil
	}
	return &outbox.SchemaError{Table: s.layout.Table, Missing: lacks,
		Remedy: "a row without an id could not be told from others, and the order of delivery is that of an integer " +
			"that SQLite draws and gives to one row only"}
}

// checkStatements compiles everything once where it cannot write: a table that is a view, or a name
// that is none, is found before anything is published.
func (s *store) checkStatements(ctx context.Context) error {
	for _, p := range append(s.removing(), &s.sql.claim, &s.sql.backlog, &s.sql.settleDelivered, &s.sql.settleRetry,
		&s.sql.settleLetter, &s.sql.settleDead) {
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
