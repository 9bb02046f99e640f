package sqlite

import (
	"context"
	"fmt"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/sqlitetable"
)

// findNames fills in what the table's statements need beside its layout: its columns, and the
// indexes that they are to use.
func (s *store) findNames(ctx context.Context, columns []sqlitetable.Column) (tableNames, error) {
	names := tableNames{Layout: sqlitetable.Quote(s.layout),
		Columns: sqlitetable.KeptColumns(columns, s.layout.Payload)}
	names.OneForm = s.trusted
	if s.layout.Settle == outbox.SettleArchive {
		var err error
		if names.Archived, err = s.db.file().StoredColumns(ctx, s.layout); err != nil {
			return tableNames{}, err
		}
	}
	if err := s.findIndex(ctx, "claim", &names, &names.Undelivered, s.layout.Position, nil, false); err != nil {
		return tableNames{}, err
	}
	return names, s.findIndex(ctx, "claim", &names, &names.Waiting, s.layout.NextRetryAt, nil, false)
}

// findIndex sets into to the first partial index on the columns that a statement can use, if there
// is one. SQLite refuses to run a statement that names an index which does not serve it; so a claim
// can rely on the one it names.
func (s *store) findIndex(
	ctx context.Context, statement string, names *tableNames, into *string, first string, second any, rowid bool,
) error {
	find, err := files.Statement("claim_index", nil)
	if err != nil {
		return err
	}
	candidates, err := s.list(ctx, find, first, second, rowid)
	if err != nil {
		return fmt.Errorf("look for indexes of %s: %w", s.layout.Table, explain(err))
	}
	for _, name := range candidates {
		*into = sqlitetable.QuoteName(name)
		text, err := files.Statement(statement, names)
		if err != nil {
			return err
		}
		if s.db.compile(ctx, text) == nil {
			return nil
		}
		*into = ""
	}
	return ctx.Err()
}

// list runs a statement that asks for names, of which the table and its database are the first two
// parameters.
func (s *store) list(ctx context.Context, text string, args ...any) (names []string, err error) {
	table, database := sqlitetable.SplitName(s.layout.Table)
	rows, err := s.db.read.QueryContext(ctx, text, append([]any{table, database}, args...)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}
