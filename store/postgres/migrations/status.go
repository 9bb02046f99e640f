package migrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/tables"
)

//go:embed sql/version.sql
var versionSQL string

// undefinedTable is the SQLSTATE of a set that was never applied.
const undefinedTable = "42P01"

// Status reads the state of every set, in the order of Sets. It changes nothing and takes no lock, so while
// another process migrates it may see Dirty.
func Status(ctx context.Context, databaseURL string) ([]tables.SetStatus, error) {
	conn, err := connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	var all []tables.SetStatus
	for _, set := range Sets {
		s, err := status(ctx, conn, set)
		if err != nil {
			return nil, fmt.Errorf("read migration status: %w", err)
		}
		all = append(all, s)
	}
	return all, nil
}

func status(ctx context.Context, conn *pgx.Conn, set string) (tables.SetStatus, error) {
	s := tables.SetStatus{Set: set, Latest: Required(set), Pending: []string{}} // an empty list in JSON, not null

	var version int64
	row := conn.QueryRow(ctx, strings.ReplaceAll(versionSQL, "{table}", versionTable(set)))
	err := row.Scan(&version, &s.Dirty)
	var server *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case errors.As(err, &server) && server.Code == undefinedTable:
	case err != nil:
		return s, fmt.Errorf("read version table %s: %w", versionTable(set), err)
	}
	if version > 0 { // golang-migrate writes -1 for "none" while it takes the first one away
		s.Current = uint(version)
	}
	for _, m := range list(set) {
		if m.version > s.Current {
			s.Pending = append(s.Pending, m.name)
		}
	}
	return s, nil
}
