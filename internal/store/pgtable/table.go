package pgtable

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Name returns the one name of a table that has several: with its schema, without, in quotes. Its
// lanes are leased under it.
func Name(ctx context.Context, db Querier, table string) (name string, err error) {
	sql, err := files.Statement("name", nil)
	if err != nil {
		return "", err
	}
	if err := db.QueryRow(ctx, sql, QuoteTable(table), table).Scan(&name); err != nil {
		return "", fmt.Errorf("look for the name of %s: %w", table, err)
	}
	return name, nil
}

// StoredColumns are those that a row is kept by: all but generated ones, quoted as in a Layout.
func StoredColumns(ctx context.Context, db Querier, table string) (columns []string, err error) {
	sql, err := files.Statement("stored_columns", nil)
	if err != nil {
		return nil, err
	}
	rows, err := db.Query(ctx, sql, QuoteTable(table))
	if err == nil {
		columns, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err != nil {
		return nil, fmt.Errorf("read columns of %s: %w", table, err)
	}
	for i, c := range columns {
		columns[i] = QuoteColumn(c)
	}
	return columns, nil
}

// Ordered tells whether an index gives a table's rows in the order of a column.
func Ordered(ctx context.Context, db Querier, table, column string) (ordered bool, err error) {
	sql, err := files.Statement("ordered", nil)
	if err != nil {
		return false, err
	}
	if err := db.QueryRow(ctx, sql, QuoteTable(table), column).Scan(&ordered); err != nil {
		return false, fmt.Errorf("look for an index of %s: %w", table, err)
	}
	return ordered, nil
}

// Likes are patterns of topics, in which * stands for any text, as LIKE has them.
func Likes(patterns []string) []string {
	all := make([]string, len(patterns))
	for i, p := range patterns {
		all[i] = likeEscapes.Replace(p)
	}
	return all
}

var likeEscapes = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`, "*", "%")
