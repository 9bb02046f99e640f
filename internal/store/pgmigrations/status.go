package pgmigrations

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outboxrelay/outbox/internal/store/migration"
)

//go:embed sql/version.sql
var versionSQL string

// undefinedTable is the SQLSTATE of a set that was never applied.
const undefinedTable = "42P01"

// Status reads the state of the default sets, and of the others that are applied or named, in their order. That
// is what Up has recorded, or, where it has recorded nothing, what is there in the catalog. It has who applied a set
// as far as that is known. It changes nothing and takes no lock, so while another process migrates it may see Dirty.
func Status(ctx context.Context, databaseURL string, named ...string) ([]migration.SetStatus, error) {
	conn, _, err := connect(ctx, databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()

	all, err := observe(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("read migration status: %w", err)
	}
	return migration.Unasked(all, named), nil
}

// status is what Up has recorded of a set.
func status(ctx context.Context, conn *pgx.Conn, set string) (migration.SetStatus, error) {
	s, _, err := recordedStatus(ctx, conn, set)
	return s, err
}

// recordedStatus tells whether there is a record too, be it one of nothing.
func recordedStatus(ctx context.Context, conn *pgx.Conn, set string) (s migration.SetStatus, recorded bool, err error) {
	var version int64
	var dirty bool
	row := conn.QueryRow(ctx, strings.ReplaceAll(versionSQL, "{table}", migration.VersionTable(set)))
	err = row.Scan(&version, &dirty)
	var server *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		recorded = true
	case errors.As(err, &server) && server.Code == undefinedTable:
	case err != nil:
		return migration.SetStatus{}, false, fmt.Errorf("read version table %s: %w", migration.VersionTable(set), err)
	default:
		recorded = true
	}
	// golang-migrate writes -1 for "none" while it takes the first one away.
	return embedded.Status(set, uint(max(version, 0)), dirty), recorded, nil
}
