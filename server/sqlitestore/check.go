package sqlitestore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/outbox"
	"github.com/outboxrelay/outbox/internal/store/migration"
	"github.com/outboxrelay/outbox/internal/store/sqlitefile"
	"github.com/outboxrelay/outbox/store/sqlite"
)

// checkTable answers with an *outbox.SchemaError if the table is not there or lacks one of the columns.
func checkTable(ctx context.Context, db *sqlite.DB, table string, columns []string) error {
	have, err := names(ctx, db, "check_columns", table)
	if err != nil {
		return fmt.Errorf("check table %s: %w", table, err)
	}
	return migration.CheckColumns(table, have, columns, strings.EqualFold)
}

// checkIndexes answers with an *outbox.SchemaError if a table lacks one of the indexes, which statements name: SQLite
// would refuse to prepare them.
func checkIndexes(ctx context.Context, db *sqlite.DB, table string, wanted ...string) error {
	have, err := names(ctx, db, "check_indexes", table)
	if err != nil {
		return fmt.Errorf("check the indexes of %s: %w", table, err)
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(w string) bool { return slices.Contains(have, w) })
	if len(missing) > 0 {
		return &outbox.SchemaError{Table: table, Missing: missing,
			Remedy: "run: outbox migrate up --set " + migration.SetOf[table]}
	}
	return nil
}

// names runs a statement that lists the names of what a table has.
func names(ctx context.Context, db *sqlite.DB, file, table string) (list []string, err error) {
	text, err := plain(file)
	if err != nil {
		return nil, err
	}
	rows, err := db.Reads().QueryContext(ctx, text, table)
	if err != nil {
		return nil, sqlitefile.Explain(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, sqlitefile.Explain(err)
		}
		list = append(list, name)
	}
	return list, sqlitefile.Explain(rows.Err())
}
