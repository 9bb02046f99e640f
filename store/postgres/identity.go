package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox"
)

// rowQuerier is a pool or a transaction.
type rowQuerier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// identify returns the name under which a table's lanes are leased, that of the table whose events it has (of a part of
// outbox_deliveries it is another), and the hash that tells those from the events of all other tables and databases.
func identify(ctx context.Context, db rowQuerier, layout outbox.Layout) (name, of string, origin uint64, err error) {
	table := layout.Table
	if name, err = leaseName(ctx, db, table); err != nil {
		return "", "", 0, err
	}
	of = name
	if layout.Part != "" {
		name, of = name+"/"+layout.PartValue, layout.Of
	}
	sql, err := plain("origin")
	if err != nil {
		return "", "", 0, err
	}
	var hash int64
	var refusal *pgconn.PgError
	err = db.QueryRow(ctx, sql, of).Scan(&hash)
	// A server that lets nobody see its identifier: the database's name has to do.
	if errors.As(err, &refusal) && refusal.Code == "42501" {
		if sql, err = plain("origin_by_name"); err == nil {
			err = db.QueryRow(ctx, sql, of).Scan(&hash)
		}
	}
	if err != nil {
		return "", "", 0, fmt.Errorf("identify %s: %w", table, err)
	}
	return name, of, uint64(hash), nil
}

// leaseName returns the one name of a table that has several: with its schema, without, in quotes.
func leaseName(ctx context.Context, db rowQuerier, table string) (name string, err error) {
	sql, err := plain("lease_name")
	if err != nil {
		return "", err
	}
	if err := db.QueryRow(ctx, sql, quoteTable(table), table).Scan(&name); err != nil {
		return "", fmt.Errorf("look for the name of %s: %w", table, err)
	}
	return name, nil
}
