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
	conn, _, err := connect(ctx, databaseURL)
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
	var version int64
	var dirty bool
	row := conn.QueryRow(ctx, strings.ReplaceAll(versionSQL, "{table}", tables.VersionTable(set)))
	err := row.Scan(&version, &dirty)
	var server *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case errors.As(err, &server) && server.Code == undefinedTable:
	case err != nil:
		return tables.SetStatus{}, fmt.Errorf("read version table %s: %w", tables.VersionTable(set), err)
	}
	// golang-migrate writes -1 for "none" while it takes the first one away.
	return embedded.Status(set, uint(max(version, 0)), dirty), nil
}
